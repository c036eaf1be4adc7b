//! Where deltas are written and read: [`DeltaLog`].

use std::time::Duration;

use async_trait::async_trait;

use super::entry::{Delta, EntryId, LogEntry};
use super::roster::{Enrolled, Roster, RosterChange};
use super::switch::Switch;
use super::terms::{Peer, Terms};
use crate::config::EnforcementSetting;
use crate::redis::{LogIdentity, Unreplicated};

/// The result of one read: log and entries as they were at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// Identity of the log.
    pub identity: LogIdentity,
    /// When the log was created, Unix milliseconds of the server's clock.
    pub born: u64,
    /// The server's clock at this read, Unix milliseconds.
    pub now: u64,
    /// The last entry ever appended.
    pub last: EntryId,
    /// How many entries were ever appended, including trimmed ones.
    pub made: u64,
    /// Entries before this place were trimmed for size, at any age, or deleted with the log; the end of every log if
    /// nothing was appended since.
    pub floor: EntryId,
    /// Entries behind the requested place, in order; `None` for one that can't be read.
    pub entries: Vec<(EntryId, Option<LogEntry>)>,
    /// Whether the read had room for more entries: nothing was left unread.
    pub complete: bool,
    /// The fleet's enforcement setting; `None` if there is none, or none that can be read.
    pub switch: Option<Switch>,
    /// Instances with other terms than the reader's, if the reader has registered its own.
    pub peers: Vec<Peer>,
    /// The members of this log; `None`: as the reader knows them.
    pub roster: Option<Roster>,
    /// The reader has registered its terms, and they are still there.
    pub is_registered: bool,
    /// The server may evict the log.
    pub is_evictable: bool,
}

/// Why the log accepted or returned nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// No answer in time: an entry may have been appended or not.
    #[error("the delta log did not answer in time")]
    Timeout,
    /// It can't be reached.
    #[error("the delta log can't be reached: {0}")]
    Unavailable(String),
    /// It rejected the command, or its answer can't be read.
    #[error("the delta log refused: {0}")]
    Refused(String),
    /// It was appended, but fewer replicas than required have it.
    #[error(transparent)]
    Unreplicated(#[from] Unreplicated),
    /// It was not appended: this instance may not announce in the log yet.
    #[error("this instance may not announce in the delta log yet")]
    NotAdmitted,
    /// It is another log than the caller meant.
    #[error("the delta log was replaced by another one")]
    Replaced,
}

/// One keyspace's log.
#[async_trait]
pub trait DeltaLog: Send + Sync {
    /// How long entries are kept, if there is room.
    fn retention(&self) -> Duration;

    /// Appends in order, all of them or none, and returns the place of the last. They are as durable as the server's
    /// own replication and persistence make them.
    ///
    /// `epoch` is the connection that set the marks of these keys, if there are any. Over another connection the
    /// entries might reach a server that lacks these marks.
    ///
    /// # Errors
    /// [`LogError`]. After `Timeout` they may be there or not; after `Unreplicated` they are.
    async fn append(&self, deltas: &[Delta], epoch: Option<u64>) -> Result<(LogIdentity, EntryId), LogError>;

    /// Reads the entries behind `after`, at most as many as one read returns. `roster`: the version of the roster that
    /// the reader knows; the page has the roster if that is another one.
    ///
    /// # Errors
    /// [`LogError`].
    async fn read(&self, after: EntryId, roster: Option<&str>) -> Result<LogPage, LogError>;

    /// Changes the roster of the log. `epoch` is as for [`DeltaLog::append`].
    ///
    /// # Errors
    /// [`LogError`]; `Replaced` if the log is another one by now. After `Timeout` it may be changed or not.
    async fn change_roster(&self, _change: RosterChange, _epoch: Option<u64>) -> Result<Enrolled, LogError> {
        Err(LogError::Refused("there is no roster".into()))
    }

    /// Registers the terms that this instance reads and writes under. From then on each page includes the others'
    /// terms. Called again while the instance lives.
    ///
    /// # Errors
    /// [`LogError`].
    async fn register(&self, _terms: &Terms) -> Result<(), LogError> {
        Ok(())
    }

    /// Other namespaces at the same server whose instances announce rows of the same backend, if [`DeltaLog::register`]
    /// has found any.
    fn other_namespaces(&self) -> Vec<String> {
        Vec::new()
    }

    /// Sets what the whole fleet enforces from now on. `known` is the highest serial that the caller has seen.
    ///
    /// # Errors
    /// [`LogError`]. After `Timeout` it may be set or not.
    async fn switch(&self, setting: Option<EnforcementSetting>, known: u64) -> Result<Switch, LogError>;

    /// Restores `switch` if the log has an older one, or none.
    ///
    /// # Errors
    /// [`LogError`].
    async fn restore_switch(&self, switch: Switch) -> Result<(), LogError>;
}
