//! The metrics of polls for new keys.

use std::time::Duration;

use super::series::{Counter, Histogram};
use super::{REBUILD_BUCKETS, Registry};
use crate::labels::PollOutcome;

/// Recorders of one keyspace's polls.
#[derive(Debug)]
pub struct PollMetrics {
    polls: Vec<Counter>,
    duration: Histogram,
    keys: Counter,
}

impl PollMetrics {
    pub(super) fn new(registry: &Registry, keyspace: &str) -> Self {
        let ks = ("keyspace", keyspace);
        Self {
            polls: PollOutcome::ALL
                .iter()
                .map(|o| {
                    registry.counter("polls_total", "Polls for new keys, by outcome", &[ks, ("outcome", o.as_str())])
                })
                .collect(),
            duration: registry.histogram(
                "poll_duration_seconds",
                "Duration of polls for new keys",
                REBUILD_BUCKETS,
                &[ks],
            ),
            keys: registry.counter("polled_keys_total", "New keys found by polls", &[ks]),
        }
    }

    /// Counts a finished poll.
    pub fn ended(&self, outcome: PollOutcome, took: Duration) {
        self.polls[outcome as usize].increment(1);
        self.duration.record(took);
    }

    /// Counts new rows.
    pub fn keys(&self, count: u64) {
        self.keys.increment(count);
    }
}
