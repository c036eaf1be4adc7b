//! The metrics of rebuilds.

use std::time::Duration;

use super::series::{Counter, Gauge, Histogram};
use super::{REBUILD_BUCKETS, Registry};
use crate::labels::{RebuildOutcome, ScanTurn};

/// Recorders of one keyspace's rebuilds.
#[derive(Debug)]
pub struct RebuildMetrics {
    rebuilds: Vec<Counter>,
    duration: Histogram,
    keys: Gauge,
    last_success: Gauge,
    turns: Vec<Counter>,
}

impl RebuildMetrics {
    pub(super) fn new(registry: &Registry, keyspace: &str) -> Self {
        let ks = ("keyspace", keyspace);
        let gauge = |name, help| registry.gauge(name, help, &[ks]);
        Self {
            rebuilds: RebuildOutcome::ALL
                .iter()
                .map(|o| registry.counter("rebuilds_total", "Rebuilds by outcome", &[ks, ("outcome", o.as_str())]))
                .collect(),
            duration: registry.histogram("rebuild_duration_seconds", "Duration of rebuilds", REBUILD_BUCKETS, &[ks]),
            keys: gauge("rebuild_keys", "Keys read by the last successful rebuild"),
            last_success: gauge(
                "rebuild_last_success_timestamp_seconds",
                "Unix time of the last swap; 0 before the first",
            ),
            turns: ScanTurn::ALL
                .iter()
                .map(|t| {
                    let help = "Scans by how they got their turn among the instances";
                    registry.counter("rebuild_turns_total", help, &[ks, ("outcome", t.as_str())])
                })
                .collect(),
        }
    }

    /// Counts a finished rebuild.
    pub fn ended(&self, outcome: RebuildOutcome, took: Duration, keys: u64, unix: f64) {
        self.rebuilds[outcome as usize].increment(1);
        self.duration.record(took);
        if outcome == RebuildOutcome::Swapped {
            self.keys.set(keys as f64);
            self.last_success.set(unix);
        }
    }

    /// Counts how a scan got its turn.
    pub fn turn(&self, turn: ScanTurn) {
        self.turns[turn as usize].increment(1);
    }
}
