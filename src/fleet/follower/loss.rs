//! What a page shows: [`PageOutcome`], and perhaps a [`Loss`].

use std::time::Duration;

use crate::fleet::entry::{EntryId, LogEntry};

/// Announces may have been lost: only a scan that begins after their windows have closed finds their rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// The reader begins within a window of the log's creation: earlier announces are unknown.
    #[error("the delta log is younger than the commit window")]
    Young {
        /// Until the last window from before the log's creation has closed.
        left: Duration,
    },
    /// Another log is in its place: Redis restarted, was wiped, or a replica took over.
    #[error("the delta log was replaced by another one, as by a restart or a failover of Redis")]
    Replaced,
    /// The same log lost its end.
    #[error("the delta log has lost entries at its end")]
    Shrunk,
    /// Entries were trimmed before they were read.
    #[error("the delta log was trimmed before it was read; raise redis.log.retention or redis.log.max_bytes")]
    Trimmed,
    /// The reader begins in a log that Redis may evict, so that nothing of it need be left.
    #[error("Redis may have evicted the delta log: set its maxmemory-policy to noeviction")]
    Evictable,
    /// A writer's chain has a hole.
    #[error("an entry of the delta log is missing")]
    Hole,
    /// An entry can't be read: damaged, or of a later version.
    #[error("an entry of the delta log can't be read: is a later version of bloomguard writing it?")]
    Unreadable,
    /// An entry's keys were hashed under another secret, so they are unknown here.
    #[error("an instance hashes keys under another secret, as after Redis was wiped")]
    Foreign,
    /// The log does not continue from a snapshot's place: it is another log, or too little is left of it. Any scan
    /// finds what the active filter misses, because all announces with an open window have been read.
    #[error("the delta log does not continue from the snapshot's place")]
    Unresumable,
    /// A writer lost announces.
    #[error("an instance had more announces than it could hold")]
    Gap,
}

impl Loss {
    /// How long until a scan can begin that finds everything, from the page's arrival. `window` is the commit window.
    #[must_use]
    pub const fn mended_by_scan_in(&self, window: Duration) -> Duration {
        match self {
            Self::Young { left } => *left,
            Self::Unresumable => Duration::ZERO,
            _ => window,
        }
    }
}

/// What to do with a page.
#[derive(Debug, PartialEq, Eq)]
pub struct PageOutcome {
    /// Its worst loss.
    pub loss: Option<Loss>,
    /// To be applied, in this order, even after a loss.
    pub entries: Vec<LogEntry>,
    /// Whether all entries of the log are applied after this one.
    pub complete: bool,
    /// For [`Follower::applied`].
    pub(in crate::fleet) upto: EntryId,
    /// For [`Follower::applied`].
    pub(in crate::fleet) made: Option<u64>,
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
