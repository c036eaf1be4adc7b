//! The metrics of the delta log.

use super::Registry;
use super::series::Counter;
use crate::labels::{ResyncReason, RollCallOutcome};

/// Recorders of one keyspace's log.
#[derive(Debug)]
pub struct LogMetrics {
    resyncs: Vec<Counter>,
    roll_calls: Vec<Counter>,
}

impl LogMetrics {
    pub(super) fn new(registry: &Registry, keyspace: &str) -> Self {
        let counter = |name, help, label| registry.counter(name, help, &[("keyspace", keyspace), label]);
        let resync = |reason: &ResyncReason| {
            let help = "Times that announces of other instances may have been lost, by reason; the next scan recovers \
                        them";
            counter("delta_resyncs_total", help, ("reason", reason.as_str()))
        };
        let roll_call = |outcome: &RollCallOutcome| {
            let help = "Times that instances announced again after the delta log was replaced, by whether that made a \
                        scan unnecessary";
            counter("delta_roll_calls_total", help, ("outcome", outcome.as_str()))
        };
        Self {
            resyncs: ResyncReason::ALL.iter().map(resync).collect(),
            roll_calls: RollCallOutcome::ALL.iter().map(roll_call).collect(),
        }
    }

    /// Counts a resync: announces of other instances may have been lost.
    pub fn resync(&self, reason: ResyncReason) {
        self.resyncs[reason as usize].increment(1);
    }

    /// Counts a roll call.
    pub fn roll_call(&self, outcome: RollCallOutcome) {
        self.roll_calls[outcome as usize].increment(1);
    }
}
