//! The metric of the time in which a keyspace does not answer 404 from the filter.

use super::Registry;
use super::series::Counter;
use crate::labels::UnprotectedReason;

/// Recorder of one keyspace's unprotected time.
#[derive(Debug)]
pub struct UnprotectedMetrics(Vec<Counter>);

impl UnprotectedMetrics {
    pub(super) fn new(registry: &Registry, keyspace: &str) -> Self {
        let help = "Seconds in which the keyspace did not answer 404 from the filter, by reason";
        let counter = |reason: &UnprotectedReason| {
            let labels = [("keyspace", keyspace), ("reason", reason.as_str())];
            registry.counter("keyspace_unprotected_seconds_total", help, &labels)
        };
        Self(UnprotectedReason::ALL.iter().map(counter).collect())
    }

    /// Counts seconds of this reason.
    pub fn add(&self, reason: UnprotectedReason, seconds: u64) {
        self.0[reason as usize].increment(seconds);
    }
}
