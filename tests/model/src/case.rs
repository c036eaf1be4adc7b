//! All searches, by name.

use crate::polls::{POLLS, Polls};
use crate::protocol::Protocol;
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
}

impl Case {
    /// The cases of every test run.
    pub fn short() -> impl Iterator<Item = Self> {
        SHORT.iter().copied().map(Self::Protocol).chain(POLLS.iter().take(1).copied().map(Self::Polls))
    }

    /// The cases that take long.
    pub fn deep() -> impl Iterator<Item = Self> {
        DEEP.iter().copied().map(Self::Protocol).chain(POLLS.iter().skip(1).copied().map(Self::Polls))
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
        }
    }
}
