//! What the filter got right and wrong, and whether it has become too small.
//!
//! Records what lookups and the canary report; decides nothing about lookups.

mod counters;
mod distinct;
mod growth;
mod mismatches;

use std::sync::Arc;

use self::counters::Counters;
pub(crate) use self::growth::GrowthMonitor;
use self::mismatches::MismatchLog;
pub use self::mismatches::{Mismatch, Mismatches};
use super::outcome::Probe;
use crate::config::KeyspaceConfig;
use crate::key::{Key, KeyHash};
use crate::labels::{FoundBy, MismatchKind, Verdict};
use crate::metrics::KeyspaceMetrics;

/// The record of one keyspace's filters.
#[derive(Debug)]
pub(crate) struct FilterStats {
    counters: Counters,
    growth: GrowthMonitor,
    mismatches: MismatchLog,
    metrics: Arc<KeyspaceMetrics>,
}

impl FilterStats {
    pub(crate) fn new(config: &KeyspaceConfig, metrics: &Arc<KeyspaceMetrics>) -> Self {
        Self {
            counters: Counters::default(),
            growth: GrowthMonitor::new(&config.filter),
            mismatches: MismatchLog::new(config.reveal_keys),
            metrics: Arc::clone(metrics),
        }
    }

    /// The filter was asked for one key.
    pub(crate) fn record_probe(&self, hash: KeyHash, probe: Probe) {
        if probe.generation == 0 {
            return;
        }
        self.metrics.check(probe.verdict);
        if probe.verdict == Verdict::Absent {
            self.counters.true_negatives(1);
            self.growth.true_negative(hash);
        }
    }

    /// Keys of a batch that the filter does not hold.
    pub(crate) fn record_absent_keys(&self, hashes: impl IntoIterator<Item = KeyHash>) {
        self.growth.true_negatives(hashes);
    }

    /// The filter was asked for a batch of keys.
    pub(crate) fn record_batch(&self, absent: u64, maybe: u64) {
        self.metrics.checked(Verdict::Absent, absent);
        self.metrics.checked(Verdict::Maybe, maybe);
        self.counters.true_negatives(absent);
    }

    /// The filter answered maybe, and the key has no row.
    pub(crate) fn record_false_positive(&self, probe: Probe, hash: KeyHash, key: &Key) {
        self.metrics.false_positive();
        self.counters.false_positive();
        self.growth.false_positive(hash);
        self.mismatches.record(MismatchKind::FalsePositive, FoundBy::Lookup, probe, hash, key);
    }

    /// The filter answered absent, and the key has a row that it should have contained.
    pub(crate) fn record_false_negative(&self, found_by: FoundBy, probe: Probe, hash: KeyHash, key: &Key) {
        self.metrics.false_negative();
        self.counters.false_negative();
        self.mismatches.record(MismatchKind::FalseNegative, found_by, probe, hash, key);
    }

    /// The filter answered absent, and the key has a row whose announce may be lost.
    pub(crate) fn record_explained_negative(&self) {
        self.metrics.explained_negative();
    }

    /// Keys were inserted one by one, not by a scan.
    pub(crate) fn record_inserts(&self, hashes: &[KeyHash]) {
        self.growth.inserted(hashes);
    }

    /// Another filter is active.
    pub(crate) fn swapped(&self) {
        self.counters.swapped();
    }

    pub(crate) fn reconfigure(&self, config: &KeyspaceConfig) {
        self.mismatches.reveal_keys(config.reveal_keys);
    }

    /// Absent verdicts since the swap.
    pub(crate) fn absent_verdicts(&self) -> u64 {
        self.counters.absent_verdicts()
    }

    /// FP / (FP + TN) since the swap; `None` before the first of either.
    pub(crate) fn observed_rate(&self) -> Option<f64> {
        self.counters.rate()
    }

    /// Since the start.
    pub(crate) fn false_negatives(&self) -> u64 {
        self.counters.false_negatives()
    }

    pub(crate) const fn growth(&self) -> &GrowthMonitor {
        &self.growth
    }

    /// The latest mismatches.
    pub(crate) fn mismatches(&self) -> Mismatches {
        self.mismatches.show()
    }
}
