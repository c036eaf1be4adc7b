//! Whether the delta log and polls know of a row that the filter lacks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Moment;
use crate::keyspace::polls::PollTracker;
use crate::keyspace::replicate::LogFollower;

/// What was checked about a row that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// The log was read to its end, or there is none.
    pub(super) log_read: bool,
    /// A poll was complete, or nothing is polled.
    pub(super) polled: bool,
}

pub(crate) struct EvidenceGatherer {
    /// `None`: there is no log.
    pub(crate) follower: Option<Arc<LogFollower>>,
    pub(crate) polls: Arc<PollTracker>,
    pub(crate) max_staleness: Duration,
}

impl EvidenceGatherer {
    /// Reads the log to its end and polls once, both from `since` on. A poll in progress ends by itself, and so does
    /// the next.
    pub(super) async fn gather(&self, since: Moment) -> Evidence {
        let log_read = async {
            match &self.follower {
                Some(follower) => follower.catch_up(since).await,
                None => true,
            }
        };
        let polled = timeout(self.max_staleness * 2, self.polls.poll_after(since));
        let (log_read, polled) = tokio::join!(log_read, polled);
        Evidence { log_read, polled: polled.unwrap_or(false) }
    }
}
