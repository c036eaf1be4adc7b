//! Step 6 of a lookup: what an entry of the shared cache is good for.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::Reader;
use crate::cache::{CacheError, Entry, Seen, Stamp};
use crate::clock::Moment;
use crate::keyspace::outcome::Answer;
use crate::keyspace::request::LookupRequest;
use crate::labels::{CacheResult, CacheTier, Source};

/// The result of a read of the shared cache.
pub(super) enum SharedRead {
    Answer(Answer),
    /// The backend has to be asked; the entry that a fill may replace, `None` if the cache did not answer.
    Miss(Option<CachedEntry>),
}

/// An entry that a fill may replace.
pub(super) struct CachedEntry {
    pub(super) stamp: Stamp,
    /// A value, expired or not.
    pub(super) value: bool,
    /// The value has expired.
    pub(super) stale: bool,
    pub(super) mark: bool,
    /// When the entry was read, the filter was trusted, and the cache's log was the one that is followed.
    pub(super) trusted: bool,
}

impl Reader {
    pub(super) async fn read_shared(self: &Arc<Self>, request: &LookupRequest, began: Instant) -> SharedRead {
        let seen = self.within_read_deadline(began, self.shared.get(&request.key)).await;
        self.classify_shared(request, seen)
    }

    /// Bounds a read of the shared cache so that the backend keeps its time: a cache that hangs takes no more of a
    /// lookup than the wait for another instance's load, however long `redis.timeout` is, and keeps no load alive past
    /// its deadline.
    pub(super) async fn within_read_deadline<T>(
        &self,
        began: Instant,
        read: impl Future<Output = Result<T, CacheError>>,
    ) -> Result<T, CacheError> {
        let longest = self.lease_times.read_deadline;
        timeout_at(began + longest, read).await.unwrap_or(Err(CacheError::Timeout(longest)))
    }

    /// Counts a read of the shared cache, and refreshes a value that expires soon.
    pub(super) fn classify_shared(
        self: &Arc<Self>,
        request: &LookupRequest,
        seen: Result<Seen, CacheError>,
    ) -> SharedRead {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                tracing::debug!(%error, "shared cache gave no answer");
                self.metrics.cache(CacheTier::Redis, CacheResult::Error);
                return SharedRead::Miss(None);
            }
        };
        if request.options.bypass {
            // It reads the entry only to be able to replace it.
            return self.usable(request, seen);
        }
        if let Some(expiry) = seen.expiry {
            self.refresh_if_due(request, expiry, &seen.stamp);
        }
        let read = self.usable(request, seen);
        let answer = if let SharedRead::Answer(answer) = &read { Some(answer) } else { None };
        self.metrics.cache(CacheTier::Redis, cache_result(answer));
        read
    }

    /// The entry's answer, if this lookup may use it.
    pub(super) fn usable(&self, request: &LookupRequest, seen: Seen) -> SharedRead {
        // Before the right to reject, see `LogFollower::follows`.
        let follows = self.follower.as_ref().is_none_or(|follower| follower.follows(&seen.stamp));
        let cached = CachedEntry {
            stamp: seen.stamp,
            value: matches!(seen.entry, Entry::Value(_) | Entry::Stale { .. }),
            stale: matches!(seen.entry, Entry::Stale { .. }),
            mark: matches!(seen.entry, Entry::Mark(_)),
            trusted: follows && self.prober.probe_hash(request.hash, Moment::now()).trusted,
        };
        let value = match seen.entry {
            _ if request.options.bypass => return SharedRead::Miss(Some(cached)),
            Entry::Value(value) => Some(value),
            // Asked after the right to reject, which comes back after it is known which absences to believe.
            Entry::Absence
                if follows && self.may_serve_absence(request) && self.shared.believes_absence(&cached.stamp) =>
            {
                None
            }
            Entry::Absence | Entry::Mark(_) | Entry::Nothing | Entry::Stale { .. } => {
                return SharedRead::Miss(Some(cached));
            }
        };
        SharedRead::Answer(Answer::fresh(value, Source::Redis))
    }
}

pub(super) fn cache_result(answer: Option<&Answer>) -> CacheResult {
    match answer {
        Some(Answer { value: Some(_), .. }) => CacheResult::Hit,
        Some(_) => CacheResult::Absent,
        None => CacheResult::Miss,
    }
}
