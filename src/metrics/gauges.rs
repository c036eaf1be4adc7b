//! The gauges of one keyspace.

use crate::labels::State;

/// Values of the gauges; set before each scrape.
#[derive(Debug, Clone, Copy)]
pub struct Gauges {
    /// The keyspace's state.
    pub state: State,
    /// Keys, estimated from the fill.
    pub items: u64,
    /// Keys it was sized for.
    pub capacity: u64,
    /// items / capacity.
    pub load_ratio: f64,
    /// Share of bits set.
    pub fill_ratio: f64,
    /// Bytes.
    pub bytes: u64,
    /// `filter.false_positive_rate`.
    pub target_fpr: f64,
    /// Predicted by the fill.
    pub estimated_fpr: f64,
    /// FP / (FP + TN) since the swap.
    pub observed_fpr: f64,
    /// Distinct absent keys of the last five minutes.
    pub distinct_absent_keys: u64,
    /// Distinct keys that announces and polls inserted in the last five minutes.
    pub distinct_inserted_keys: u64,
    /// Number of the active filter.
    pub generation: u64,
    /// Seconds since the swap.
    pub age_seconds: f64,
    /// Seconds since the start of the last complete poll, else of the scan.
    pub freshness_lag_seconds: f64,
    /// Freshness lag in seconds at which the keyspace stops answering 404; NaN if there is no such limit.
    pub max_staleness_seconds: f64,
    /// Seconds since the delta log was read completely; 0 without a log.
    pub delta_lag_seconds: f64,
    /// Comparisons with the backend that are needed before the keyspace enforces; 0 = none.
    pub proof_remaining: u32,
    /// Share of the sampled source keys without a backend row; NaN if none were sampled.
    pub source_sample_absent_ratio: f64,
    /// Keys held exactly; 0 without a key set.
    pub set_keys: u64,
    /// Bytes of those keys.
    pub set_bytes: u64,
}
