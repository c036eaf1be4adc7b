//! What a load stores in the caches, and when an absence may be stored or served.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::shared::CachedEntry;
use super::{Reader, refresh};
use crate::cache::{Ending, Mark, Stored, jittered};
use crate::clock::Moment;
use crate::config::KeyspaceConfig;
use crate::keyspace::backend::Fetched;
use crate::keyspace::outcome::Answer;
use crate::keyspace::probe::ProbeResult;
use crate::keyspace::request::LookupRequest;
use crate::keyspace::single_flight::Loaded;
use crate::labels::{Source, Verdict};

impl Reader {
    /// Fills the shared cache until the deadline. After it the fill is dropped: the lookup answers without it.
    ///
    /// Nothing is sent after the deadline, as after a pause of the whole process: marks outlive a window by one
    /// deadline only.
    pub(super) async fn fill_shared_by(
        &self,
        deadline: Instant,
        request: &LookupRequest,
        row: &Fetched,
        cached: &CachedEntry,
    ) -> Ending {
        if Instant::now() >= deadline {
            return Ending::NotStored;
        }
        timeout_at(deadline, self.fill_shared(request, row, cached)).await.unwrap_or(Ending::NotStored)
    }

    async fn fill_shared(&self, request: &LookupRequest, row: &Fetched, cached: &CachedEntry) -> Ending {
        let limits = **self.limits.load();
        let stored = match &row.value {
            // The canonical spelling has no row: the cached row is gone, and this row belongs to another spelling.
            Some(_) if row.as_given && cached.value => self
                .shared
                .put_mark(&request.key, Mark::Dropped, self.windows.recent.life())
                .await
                .map(|()| Stored::Yes),
            Some(value) if !row.as_given && value.body.len() as u64 <= limits.max_value_bytes => {
                // A value that replaces a mark lives at least as long. Otherwise another instance could store an
                // absence where the mark forbade it.
                let shortest = if cached.mark { self.windows.recent.life() } else { Duration::ZERO };
                let ttl = jittered(limits.ttl, limits.jitter).max(shortest);
                self.shared.put_value(&request.key, value, ttl, row.took, &cached.stamp).await
            }
            // While the backend looks broken, its absence replaces no value that a refresh found, and no expired one
            // kept as the last resort.
            None if (request.refresh || cached.stale) && self.audit.storms.is_raging(Moment::now()) => {
                return Ending::NotStored;
            }
            // Here despite a cached value: a bypass, a refresh, or a lookup that found it expired. The row is gone, and
            // no drop was sent.
            None if cached.value => self
                .shared
                .put_mark(&request.key, Mark::Dropped, self.windows.recent.life())
                .await
                .map(|()| Stored::Yes),
            None if cached.trusted && self.may_store_absence(request) => {
                let ttl = jittered(limits.absent_ttl, limits.jitter).min(limits.longest_shared_absence);
                self.shared.put_absence(&request.key, ttl, &cached.stamp).await
            }
            _ => return Ending::NotStored,
        };
        match stored {
            Ok(Stored::Yes) => Ending::Stored,
            Ok(Stored::No) => Ending::NotStored,
            Err(error) => {
                tracing::debug!(%error, "shared cache fill failed");
                Ending::NotStored
            }
        }
    }

    /// Runs under the flight's lock, so that no announce or drop comes between the check of the flight and the store.
    /// An absence is stored, and the commit windows are checked again, in one stretch without `.await`. An announce
    /// opens the window first and drops second, so one of the two sees the other.
    pub(super) fn fill_hot(&self, request: &LookupRequest, loaded: &Loaded) {
        let limits = **self.limits.load();
        if request.options.bypass && loaded.is_ok() {
            self.hot.drop_entry(request.hash);
        }
        match loaded {
            Ok(Answer { value: Some(value), source: source @ (Source::Redis | Source::Backend), stale: None })
                if value.body.len() as u64 <= limits.max_value_bytes && request.may_keep(*source) =>
            {
                self.hot.put_value(
                    request.hash,
                    request.key.clone(),
                    value.clone(),
                    jittered(limits.hot_value_ttl, limits.jitter),
                );
            }
            Ok(Answer { value: None, source: Source::Redis | Source::Backend, .. })
                if self.may_store_absence(request) =>
            {
                let ttl = jittered(limits.hot_ttl, limits.jitter).min(limits.longest_hot_absence);
                self.hot.put_absence(request.hash, request.key.clone(), ttl);
                if !self.may_store_absence(request) {
                    self.hot.drop_absence(request.hash);
                }
            }
            _ => {}
        }
    }

    /// A cached absence counts only while the filter could answer 404 and the key is not within its commit window.
    pub(super) fn may_serve_absence(&self, request: &LookupRequest) -> bool {
        let now = Moment::now();
        !request.options.unapplied_version
            && !request.options.bypass
            && request.given.is_none()
            && self.prober.probe_hash(request.hash, now).trusted
            && !self.windows.contains(request.hash, now)
    }

    /// An absence is stored only if a trusted filter said maybe, at the first probe and now, the key is not within its
    /// commit window, and the backend does not look broken.
    ///
    /// And only within one deadline of the first probe, because windows are remembered for one deadline more. The
    /// process, or its host, may have been paused since the backend answered; this clock counts both.
    fn may_store_absence(&self, request: &LookupRequest) -> bool {
        let now = Moment::now();
        let maybe = |probed: &ProbeResult| probed.trusted && probed.probe.verdict == Verdict::Maybe;
        request.given.is_none()
            && now < request.probed.at.plus(self.deadline)
            && maybe(&request.probed)
            && maybe(&self.prober.probe_hash(request.hash, now))
            && !self.windows.contains(request.hash, now)
            && !self.audit.storms.is_raging(now)
    }
}

/// Lifetimes and sizes that fills keep to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillLimits {
    pub(super) ttl: Duration,
    pub(super) absent_ttl: Duration,
    pub(super) hot_ttl: Duration,
    /// Of values; short enough that the hot tier lets refreshes happen.
    pub(super) hot_value_ttl: Duration,
    /// The last part of a value's life in the shared cache, in which reads may refresh it; zero: no refreshes.
    pub(super) refresh_window: Duration,
    pub(super) jitter: f64,
    pub(super) max_value_bytes: u64,
    /// How long after its expiry a value may stand in for an answer of the backend.
    pub(super) stale_if_error: Duration,
    /// Both tiers' absences together live no longer than `max_staleness`: half each at the most.
    pub(super) longest_shared_absence: Duration,
    pub(super) longest_hot_absence: Duration,
}

impl FillLimits {
    pub(crate) fn new(config: &KeyspaceConfig) -> Self {
        let cache = &config.cache;
        let refresh_window = cache.ttl.mul_f64(cache.refresh_ahead);
        let between_reads =
            if refresh_window.is_zero() { Duration::MAX } else { refresh_window / refresh::READS_PER_WINDOW };
        Self {
            ttl: cache.ttl,
            absent_ttl: cache.absent_ttl,
            hot_ttl: cache.hot_ttl,
            hot_value_ttl: cache.hot_ttl.min(between_reads),
            refresh_window,
            jitter: cache.jitter,
            max_value_bytes: cache.max_value_bytes,
            stale_if_error: cache.stale_if_error,
            longest_shared_absence: config.max_staleness / 2,
            longest_hot_absence: cache.absent_ttl.min(config.max_staleness / 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_tier_lets_reads_through_while_a_value_may_be_refreshed() {
        let mut config = KeyspaceConfig::default();
        config.cache.hot_ttl = Duration::from_secs(60);
        config.cache.ttl = Duration::from_secs(1600);
        for (refresh_ahead, hot_value_ttl) in [(0.0, 60), (0.1, 10), (1.0, 60)] {
            config.cache.refresh_ahead = refresh_ahead;
            let limits = FillLimits::new(&config);
            assert_eq!(
                (limits.hot_value_ttl.as_secs(), limits.hot_ttl.as_secs()),
                (hot_value_ttl, 60),
                "refresh_ahead = {refresh_ahead}"
            );
        }
    }
}
