//! The metrics of snapshots of the filter.

use super::Registry;
use super::series::Counter;
use crate::labels::SnapshotOutcome;

/// Recorders of one keyspace's snapshots.
#[derive(Debug)]
pub struct SnapshotMetrics(Vec<Counter>);

impl SnapshotMetrics {
    pub(super) fn new(registry: &Registry, keyspace: &str) -> Self {
        let help = "Snapshots of the filter by outcome";
        let counter = |o: &SnapshotOutcome| {
            registry.counter("snapshots_total", help, &[("keyspace", keyspace), ("outcome", o.as_str())])
        };
        Self(SnapshotOutcome::ALL.iter().map(counter).collect())
    }

    /// Counts a snapshot that was written or read, or could not be.
    pub fn ended(&self, outcome: SnapshotOutcome) {
        self.0[outcome as usize].increment(1);
    }
}
