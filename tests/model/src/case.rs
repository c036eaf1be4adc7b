//! All searches, by name.

use crate::polls::{POLLS, Polls};
use crate::protocol::Protocol;
use crate::roll_call::{self, RollCall};
use crate::rule::Rules;
use crate::scenario::{DEEP, SHORT, Scenario};
use crate::search::{Outcome, search};

/// One search.
#[derive(Debug, Clone, Copy)]
pub enum Case {
    /// Announces, lookups, builds and the delta log.
    Protocol(Scenario),
    /// Polls.
    Polls(Polls),
    /// The roll call.
    RollCall(RollCall),
}

impl Case {
    /// The cases of every test run.
    pub fn short() -> impl Iterator<Item = Self> {
        SHORT
            .iter()
            .copied()
            .map(Self::Protocol)
            .chain(POLLS.iter().take(1).copied().map(Self::Polls))
            .chain(roll_call::SHORT.iter().copied().map(Self::RollCall))
    }

    /// The cases that take long.
    pub fn deep() -> impl Iterator<Item = Self> {
        DEEP.iter()
            .copied()
            .map(Self::Protocol)
            .chain(POLLS.iter().skip(1).copied().map(Self::Polls))
            .chain(roll_call::DEEP.iter().copied().map(Self::RollCall))
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::short().chain(Self::deep())
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Protocol(scenario) => scenario.name,
            Self::Polls(polls) => polls.name,
            Self::RollCall(call) => call.name,
        }
    }

    /// True for a known remaining window: the search must find it.
    #[must_use]
    pub const fn window_remains(&self) -> bool {
        matches!(self, Self::Protocol(scenario) if scenario.window_remains)
    }

    /// Visits every state, up to `most` of them.
    #[must_use]
    pub fn search(self, rules: Rules, most: usize) -> Outcome {
        match self {
            Self::Protocol(scenario) => search(&Protocol { scenario, rules }, most),
            Self::Polls(polls) => search(&Polls { rules, ..polls }, most),
            Self::RollCall(call) => search(&RollCall { rules, ..call }, most),
        }
    }
}
