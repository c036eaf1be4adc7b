//! What builds leave for the next one and for `/status`, and what lookups and writers leave for builds.

mod confirmed_keys;
mod last;
mod pending_deletes;
mod source_sample;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Relaxed};

use parking_lot::Mutex;

pub(crate) use self::confirmed_keys::ConfirmedKeys;
pub use self::last::LastRebuild;
pub(crate) use self::pending_deletes::PendingDeletes;
pub(crate) use self::source_sample::SourceSample;
use super::rebuild_signal::RebuildSignal;
use crate::clock::Moment;
use crate::config::KeyspaceConfig;
use crate::key::{Key, KeyHash};

/// Keys with rows that the next filter must hold.
const CONFIRMED_LIMIT: usize = 10_000;

#[derive(Debug)]
pub(crate) struct BuildState {
    pub(crate) confirmed: ConfirmedKeys,
    pub(crate) deletes: PendingDeletes,
    /// `rebuild.max_deleted_ratio`, as bits.
    max_deleted_ratio: AtomicU64,
    /// Asks for a build before the schedule does.
    pub(crate) signal: Arc<RebuildSignal>,
    /// The last build ended because it had no secret to hash by.
    misses_secret: AtomicBool,
    latest: Mutex<Latest>,
}

#[derive(Debug, Default)]
struct Latest {
    rebuild: Option<LastRebuild>,
    /// What the last scan found that endangers the key set.
    source_warning: Option<String>,
    /// The backend's answers for keys of the last scan.
    sample: SourceSample,
    swapped_at: Option<Moment>,
    /// What the rebuild in progress waits for.
    waits_for: Option<&'static str>,
    /// Keys of the last scan, by source.
    counted: Vec<u64>,
}

impl BuildState {
    pub(crate) fn new(config: &KeyspaceConfig, signal: &Arc<RebuildSignal>) -> Self {
        let state = Self {
            confirmed: ConfirmedKeys::new(CONFIRMED_LIMIT),
            deletes: PendingDeletes::default(),
            max_deleted_ratio: AtomicU64::default(),
            signal: Arc::clone(signal),
            misses_secret: AtomicBool::new(false),
            latest: Mutex::default(),
        };
        state.reconfigure(config);
        state
    }

    /// Sets whether the last build ended because it had no secret; returns the value of before.
    pub(crate) fn fetch_misses_secret(&self, misses: bool) -> bool {
        // `AcqRel`: of a build that gives up and a secret that comes, the second sees what the first has done before.
        self.misses_secret.swap(misses, Ordering::AcqRel)
    }

    pub(crate) fn reconfigure(&self, config: &KeyspaceConfig) {
        // Relaxed, as where it is read: it publishes nothing else.
        self.max_deleted_ratio.store(config.rebuild.max_deleted_ratio.to_bits(), Relaxed);
    }

    /// Returns true if so many keys of a filter with this many items were deleted that it should be rebuilt.
    pub(crate) fn has_many_deletes(&self, items: u64) -> bool {
        self.deletes.count() as f64 > f64::from_bits(self.max_deleted_ratio.load(Relaxed)) * items as f64
    }

    /// Up to `count` keys whose rows the backend had, and that no client has deleted since: the latest that lookups
    /// found, then those of the last scan's sample.
    pub(crate) fn known_rows(&self, count: usize, hash: impl Fn(&Key) -> KeyHash) -> Vec<Key> {
        let mut known = self.confirmed.latest(count);
        let latest = self.latest.lock();
        let there = latest.sample.rows.iter().filter(|key| !self.deletes.contains(hash(key)));
        known.extend(there.take(count.saturating_sub(known.len())).cloned());
        known
    }

    /// A candidate has become the active filter.
    pub(crate) fn swapped(&self) {
        self.deletes.swapped();
        self.latest.lock().swapped_at = Some(Moment::now());
    }

    /// The filter of a snapshot is active.
    pub(crate) fn set_swapped_at(&self, at: Moment) {
        self.latest.lock().swapped_at = Some(at);
    }

    pub(crate) fn set_sample(&self, sample: SourceSample) {
        self.latest.lock().sample = sample;
    }

    pub(crate) fn set_source_warning(&self, warning: Option<String>) {
        self.latest.lock().source_warning = warning;
    }

    pub(crate) fn set_counted(&self, counted: Vec<u64>) {
        self.latest.lock().counted = counted;
    }

    /// Returns true if that has changed.
    pub(crate) fn set_waits_for(&self, what: Option<&'static str>) -> bool {
        std::mem::replace(&mut self.latest.lock().waits_for, what) != what
    }

    pub(crate) fn set_last_rebuild(&self, last: LastRebuild) {
        self.latest.lock().rebuild = Some(last);
    }

    pub(crate) fn last_rebuild(&self) -> Option<LastRebuild> {
        self.latest.lock().rebuild.clone()
    }

    /// Keys of the last scan, by source; empty before the first.
    pub(crate) fn counted(&self) -> Vec<u64> {
        self.latest.lock().counted.clone()
    }

    pub(crate) fn swapped_at(&self) -> Option<Moment> {
        self.latest.lock().swapped_at
    }

    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        self.latest.lock().waits_for
    }

    /// Share of the sampled keys that the backend has no row for.
    pub(crate) fn sampled_absent_ratio(&self) -> Option<f64> {
        self.latest.lock().sample.absent_ratio()
    }

    /// For an operator.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let latest = self.latest.lock();
        latest.source_warning.iter().cloned().chain(latest.sample.warning()).collect()
    }
}
