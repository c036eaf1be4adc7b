//! One lookup in progress.

use super::{Entry, Row};

/// A lookup of k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ask {
    pub at: AskStep,
    /// Ticks until its deadline.
    pub left: u8,
    /// The row is visible and this instance knows of it: 404 would be wrong.
    pub must_find: bool,
    /// An invalidate has taken effect here: the old value would be stale.
    pub must_be_new: bool,
    /// It has a version.
    pub version: bool,
    /// … that is not applied here.
    pub unapplied: bool,
    /// The instance's filter was trusted when it began.
    pub trusted: bool,
    /// The answer of the caches or the backend.
    pub found: Row,
    /// Redis's entry of k, and the connection of that read.
    pub seen: Entry,
    pub link: u8,
    /// The log that the follower knew when it began.
    pub log: u8,
    /// Builds that had begun when it did.
    pub scans: u8,
    /// The cache server's run was old enough when it began.
    pub ripe: bool,
    /// The flight was detached; for a waiter: it joined too late for an absence.
    pub detached: bool,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd)]
pub enum AskStep {
    #[default]
    None,
    Begun,
    Maybe,
    HotMissed,
    Leading,
    RedisMissed,
    Loaded,
    Filled,
    HotStored,
    Answering,
    /// Waits for the other lookup.
    Joined,
}
