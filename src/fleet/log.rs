//! Where deltas are written and read: [`DeltaLog`].

use std::time::Duration;

use async_trait::async_trait;

use super::entry::{Delta, Entry, EntryId};
use super::switch::Switch;
use super::terms::{Peer, Terms};
use crate::config::EnforcementSetting;
use crate::redis::{LogIdentity, Unreplicated};

/// What one read brought: log and entries as they were at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Which log it was.
    pub identity: LogIdentity,
    /// When the log came to be, Unix milliseconds of the server's clock.
    pub born: u64,
    /// The server's clock at this read, Unix milliseconds.
    pub now: u64,
    /// The last entry that was ever made.
    pub last: EntryId,
    /// How many entries were ever made, also those that are gone.
    pub made: u64,
    /// Entries before this place were trimmed for want of room, however young.
    pub floor: EntryId,
    /// Entries behind the place that was asked for, in order; `None` in the place of one that can't be read.
    pub entries: Vec<(EntryId, Option<Entry>)>,
    /// Whether there was room for more entries than these: nothing was left unread.
    pub complete: bool,
    /// What the fleet was told to enforce; `None`: nothing, or nothing that can be read.
    pub switch: Option<Switch>,
    /// Instances that have registered other terms than the reader's, as far as it has registered its own.
    pub peers: Vec<Peer>,
}

/// Why the log did not take or tell anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// No answer in time: an entry may have been appended, or not.
    #[error("the delta log did not answer in time")]
    Timeout,
    /// It can't be reached.
    #[error("the delta log can't be reached: {0}")]
    Unavailable(String),
    /// It refused, or answered what can't be understood.
    #[error("the delta log refused: {0}")]
    Refused(String),
    /// It was appended, and fewer replicas have it than asked for.
    #[error(transparent)]
    Unreplicated(#[from] Unreplicated),
    /// It is not the log that the caller meant.
    #[error("the delta log was replaced by another one")]
    Replaced,
}

/// One keyspace's log.
#[async_trait]
pub trait DeltaLog: Send + Sync {
    /// For how long entries are kept, where there is room.
    fn retention(&self) -> Duration;

    /// Appends in order, all of them or none, and returns the place of the last; they are durable as far as the server's own replication and persistence go.
    ///
    /// `epoch` is the connection over which the marks of these keys were set, where there are any; appended over another one, the entries might be in a log whose
    /// server has no such marks.
    ///
    /// # Errors
    /// [`LogError`]; after `Timeout` nobody knows whether they are there, after `Unreplicated` they are.
    async fn append(&self, deltas: &[Delta], epoch: Option<u64>) -> Result<(LogIdentity, EntryId), LogError>;

    /// Reads what stands behind `after`, at most as many entries as one read takes.
    ///
    /// # Errors
    /// [`LogError`].
    async fn read(&self, after: EntryId) -> Result<Page, LogError>;

    /// Registers under which terms this instance writes, and reads: each page tells the others' from now on. To be said again while the instance lives.
    ///
    /// # Errors
    /// [`LogError`].
    async fn register(&self, _terms: &Terms) -> Result<(), LogError> {
        Ok(())
    }

    /// Other namespaces at the same server whose instances announce rows of the same backend, as far as [`DeltaLog::register`] has found any.
    fn other_namespaces(&self) -> Vec<String> {
        Vec::new()
    }

    /// Tells the whole fleet what to enforce from now on; `known` is the highest serial that the caller has seen.
    ///
    /// # Errors
    /// [`LogError`]; after `Timeout` nobody knows whether it was told.
    async fn switch(&self, setting: Option<EnforcementSetting>, known: u64) -> Result<Switch, LogError>;

    /// Puts `switch` back where only an older one is left, or none.
    ///
    /// # Errors
    /// [`LogError`].
    async fn restore_switch(&self, switch: Switch) -> Result<(), LogError>;
}
