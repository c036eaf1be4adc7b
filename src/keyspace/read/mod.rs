//! Lookups: filter, hot tier, one load per key, shared cache, backend, fills.
//!
//! Knows no writer: announces and drops reach lookups through the commit windows, the caches and the flights.

mod batch;
mod budget;
mod fill;
mod lease;
mod load;
mod refresh;
mod set;
mod shared;
mod stale;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

pub(crate) use self::fill::FillLimits;
pub(crate) use self::lease::LeaseTimes;
use self::shared::cache_result;
use super::audit::Audit;
use super::backend::{BackendClient, Priority};
use super::outcome::{Answer, Lookup, LookupOptions};
use super::probe::Prober;
use super::replicate::LogFollower;
use super::request::LookupRequest;
use super::single_flight::{Flights, Loaded};
use super::stats::FilterStats;
use super::write::CommitWindows;
use crate::cache::{HotCache, HotEntry, SharedCache};
use crate::clock::Moment;
use crate::key::Key;
use crate::labels::{CacheResult, CacheTier, Source, Verdict};
use crate::metrics::KeyspaceMetrics;

/// Answers lookups.
pub(crate) struct Reader {
    pub(crate) deadline: Duration,
    pub(crate) limits: ArcSwap<FillLimits>,
    pub(crate) lease_times: LeaseTimes,
    pub(crate) prober: Arc<Prober>,
    pub(crate) hot: Arc<HotCache>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) shared: Arc<dyn SharedCache>,
    pub(crate) backend: Arc<BackendClient>,
    pub(crate) windows: Arc<CommitWindows>,
    /// Which log's cached absences count; `None`: there is no log.
    pub(crate) follower: Option<Arc<LogFollower>>,
    pub(crate) stats: Arc<FilterStats>,
    pub(crate) audit: Arc<Audit>,
    /// Refreshes that may run at a time: as many as calls of a batch, so that lookups keep three quarters of the
    /// backend.
    pub(crate) refreshes: Arc<Semaphore>,
    pub(crate) metrics: Arc<KeyspaceMetrics>,
}

impl Reader {
    /// Looks a key up. Lasts no longer than the keyspace's deadline; dropping the future ends the wait, not a load that
    /// others share.
    pub(crate) async fn lookup(self: &Arc<Self>, key: Key, options: LookupOptions) -> Lookup {
        // 2 hash once, 3 ask the filter
        let request = self.request(key, options);
        let answer = match self.answer_first(&request) {
            // 3 the filter's absence, 4 the hot tier, or the answer of a set in memory
            Some(answer) => answer,
            // 5 one load per key, 6 the shared cache, 7 the backend; then the caches are filled
            None => self.load(&request).await,
        };
        self.finish(&request, answer)
    }

    /// [`Reader::lookup`] if it waits for nothing. `None`, and nothing counted: the key has to be loaded.
    pub(crate) fn lookup_locally(&self, key: Key, options: LookupOptions) -> Option<Lookup> {
        let request = self.request(key, options);
        let answer = self.answer_locally(&request)?;
        self.count_probe(&request);
        Some(self.finish(&request, answer))
    }

    fn request(&self, key: Key, options: LookupOptions) -> LookupRequest {
        let probed = self.prober.probe(&key);
        LookupRequest::new(key, probed, options)
    }

    /// Steps 3 and 4, counted also if they have no answer.
    fn answer_first(&self, request: &LookupRequest) -> Option<Loaded> {
        self.count_probe(request);
        let answer = self.answer_locally(request);
        if answer.is_none() {
            self.count_hot_miss(request);
        }
        answer
    }

    /// The filter's absence, the answer of a set in memory, or the hot tier's.
    fn answer_locally(&self, request: &LookupRequest) -> Option<Loaded> {
        if request.is_rejected() {
            self.audit.sample(request.hash, request.probed.probe, || request.backend_key());
            return Some(Ok(Answer::fresh(None, Source::Filter)));
        }
        match self.backend.members() {
            Some(members) => Some(self.ask_set(members, request)),
            None => self.read_hot(request).map(Ok),
        }
    }

    /// Step 4. Leaves a miss to be counted by the caller.
    fn read_hot(&self, request: &LookupRequest) -> Option<Answer> {
        if request.options.bypass {
            return None;
        }
        let found = match self.hot.get(request.hash, &request.key)? {
            HotEntry::Value(value) => Answer::fresh(Some(value), Source::Hot),
            HotEntry::Absence if self.may_serve_absence(request) => Answer::fresh(None, Source::Hot),
            HotEntry::Absence => return None,
        };
        self.metrics.cache(CacheTier::Hot, cache_result(Some(&found)));
        Some(found)
    }

    /// [`Reader::read_hot`], which counts a miss.
    fn reread_hot(&self, request: &LookupRequest) -> Option<Answer> {
        let found = self.read_hot(request);
        if found.is_none() {
            self.count_hot_miss(request);
        }
        found
    }

    fn count_probe(&self, request: &LookupRequest) {
        if request.options.bypass {
            self.metrics.bypass();
        }
        self.stats.record_probe(request.hash, request.probed.probe);
    }

    fn count_hot_miss(&self, request: &LookupRequest) {
        if !request.options.bypass {
            self.metrics.cache(CacheTier::Hot, CacheResult::Miss);
        }
    }

    /// The class of the key's call in the backend's queue, by the filter's verdict in any state of the keyspace: it
    /// decides no answer. Looked at again where the lookup queues: an announce since it began has set the bits.
    fn priority(&self, request: &LookupRequest) -> Priority {
        // The caller has seen a version that this filter may not have.
        let may_be_new = request.options.unapplied_version;
        match request.probed.probe.verdict {
            Verdict::Absent if !may_be_new && !self.prober.holds(request.hash) => Priority::Low,
            Verdict::Absent | Verdict::Maybe => Priority::Normal,
        }
    }

    fn finish(&self, request: &LookupRequest, answer: Loaded) -> Lookup {
        let lookup = Lookup { probe: request.probed.probe, answer };
        self.metrics.lookup(lookup.source(), lookup.result(), Moment::now().since(request.probed.at));
        lookup
    }
}
