//! Why the keyspace gave no answer, or did not acknowledge a write.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::BackendError;
use crate::buffers::Overloaded;
use crate::cache::CacheError;
use crate::fleet::{Enrolling, LogError};
use crate::labels::ShedReason;
use crate::redis::Unreplicated;

/// Why a lookup has no answer. Each is answered 503, never 404.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LookupError {
    /// The lookup's deadline passed.
    #[error("no answer within the deadline of {0:?}")]
    Deadline(Duration),
    /// Too many lookups wait for the backend already.
    #[error("shed ({0}): the backend is at its cap")]
    Shed(ShedReason),
    /// The backend has failed repeatedly, and the breaker lets one call at a time through until it answers.
    #[error("the backend has given no answer for a while; it is tried again in {0:?}")]
    BreakerOpen(Duration),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] Arc<BackendError>),
    /// The key is not in the set of keys, and the set is too old or incomplete to call it absent.
    #[error(
        "the key is not in the set of keys, which is not fresh or complete enough to call it absent; /status shows why"
    )]
    SetTooOld,
    /// The values of the batch take all of `server.max_batch_bytes`, or this value alone takes more.
    #[error(
        "the values of the batch take all of server.max_batch_bytes = {0}: ask for this key again, alone or with \
         fewer others"
    )]
    BatchFull(u64),
    /// The process has no room for the value.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
    /// The task that loaded the key ended without an answer, for example at shutdown.
    #[error("the load of the key was cancelled")]
    Cancelled,
}

impl LookupError {
    /// Returns true if the backend could not be asked, rather than that the request was wrong: then an expired value is
    /// better than none.
    pub(super) const fn is_outage(&self) -> bool {
        match self {
            Self::Deadline(_) | Self::Shed(_) | Self::BreakerOpen(_) | Self::Backend(_) | Self::Cancelled => true,
            Self::SetTooOld | Self::BatchFull(_) | Self::Overloaded(_) => false,
        }
    }

    /// Returns true if the backend was asked, as far as is known.
    pub(super) const fn is_of_a_call(&self) -> bool {
        matches!(self, Self::Deadline(_) | Self::Backend(_))
    }
}

/// Why an announce was not acknowledged: the writer must not commit, or must announce again.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AnnounceError {
    /// The keyspace of this name takes no announces.
    #[error(
        "keyspaces.{0}.announces is false: this keyspace takes no announces, and finds new rows by its scans and polls; \
         do not announce, or set it to true and restart"
    )]
    Off(String),
    /// The key could not be written to the journal.
    #[error("the announce could not be written to the journal: {0}")]
    Journal(#[from] super::journal::JournalError),
    /// The marker could not be set in the shared cache.
    #[error("the announce's marker could not be set: {0}")]
    Marker(CacheError),
    /// The append to the delta log failed.
    #[error("the announce could not be appended to the delta log: {0}")]
    Log(LogError),
    /// The keyspace secret could not be read from Redis yet.
    #[error("the keyspace secret could not be read from Redis yet")]
    NoSecret,
    /// Other instances may not know this one yet. Nothing has changed.
    #[error(transparent)]
    Enrolling(#[from] Enrolling),
    /// The memory of announces within their window is full.
    #[error(
        "{0} announces are within their commit window, as many as server.max_announce_bytes holds; raise it, or \
         shorten commit_window"
    )]
    Full(usize),
    /// Too many keys per second. Nothing has changed.
    #[error(
        "more than server.max_announces_per_second = {limit} keys a second are announced to this keyspace; announce \
         again in {retry_in:?}"
    )]
    TooFast {
        /// `server.max_announces_per_second`.
        limit: u32,
        /// When this many keys would be admitted.
        retry_in: Duration,
    },
    /// The keyspace's deadline passed first.
    #[error("the announce was not durable within the deadline of {0:?}")]
    Deadline(Duration),
}

/// Why a drop was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DropError {
    /// The tombstone could not be set in the shared cache.
    #[error("the tombstone could not be set: {0}")]
    Tombstone(CacheError),
    /// The append to the delta log failed: other instances may still hold the old row.
    #[error("the drop could not be appended to the delta log: {0}")]
    Log(LogError),
    /// The keyspace secret could not be read from Redis yet.
    #[error("the keyspace secret could not be read from Redis yet")]
    NoSecret,
}

impl AnnounceError {
    /// How many replicas have it, if too few.
    #[must_use]
    pub const fn unreplicated(&self) -> Option<Unreplicated> {
        match self {
            Self::Marker(CacheError::Unreplicated(few)) | Self::Log(LogError::Unreplicated(few)) => Some(*few),
            _ => None,
        }
    }
}

impl DropError {
    /// How many replicas have it, if too few.
    #[must_use]
    pub const fn unreplicated(&self) -> Option<Unreplicated> {
        match self {
            Self::Tombstone(CacheError::Unreplicated(few)) | Self::Log(LogError::Unreplicated(few)) => Some(*few),
            _ => None,
        }
    }
}

/// Which of the two steps failed that publish a key to other instances.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum PublishError {
    #[error(transparent)]
    Mark(#[from] CacheError),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl From<PublishError> for AnnounceError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Mark(error) => Self::Marker(error),
            PublishError::Log(error) => Self::Log(error),
        }
    }
}

impl From<PublishError> for DropError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Mark(error) => Self::Tombstone(error),
            PublishError::Log(error) => Self::Log(error),
        }
    }
}
