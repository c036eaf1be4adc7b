//! What a keyspace shows of its state and its filter.

use crate::labels::State;

/// What the gauges show; set before each scrape.
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
    /// Asked for: `filter.false_positive_rate`.
    pub target_fpr: f64,
    /// Predicted by the fill.
    pub estimated_fpr: f64,
    /// FP / (FP + TN) since the swap.
    pub observed_fpr: f64,
    /// Distinct absent keys of the last five minutes.
    pub distinct_absent_keys: u64,
    /// Distinct keys that announces and polls have brought in the last five minutes.
    pub distinct_inserted_keys: u64,
    /// Number of the filter in force.
    pub generation: u64,
    /// Seconds since the swap.
    pub age_seconds: f64,
    /// Seconds since the start of the last complete poll, else of the scan.
    pub freshness_lag_seconds: f64,
    /// Seconds after which the freshness lag ends the rejecting; NaN where it does not.
    pub max_staleness_seconds: f64,
    /// Seconds since the delta log was read to its end; 0 where there is none.
    pub delta_lag_seconds: f64,
    /// Comparisons with the backend that the keyspace still needs before it enforces; 0 = none.
    pub proof_remaining: u32,
    /// Share of the sampled source keys that the backend has no row for; NaN where none were sampled.
    pub source_sample_absent_ratio: f64,
    /// Keys held exactly; 0 where none are.
    pub set_keys: u64,
    /// Bytes that they take.
    pub set_bytes: u64,
}
