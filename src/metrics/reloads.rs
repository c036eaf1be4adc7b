//! Reloads of the configuration.

use super::Registry;
use super::series::{Counter, Gauge};
use crate::labels::ReloadOutcome;

/// Recorders of reloads.
#[derive(Debug)]
pub struct ReloadMetrics {
    ended: Vec<Counter>,
    last_successful: Gauge,
    awaiting_restart: Gauge,
}

impl ReloadMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let ended = |outcome: &ReloadOutcome| {
            registry.counter(
                "config_reloads_total",
                "Reloads of the configuration by outcome",
                &[("outcome", outcome.as_str())],
            )
        };
        let gauge = |name, help| registry.gauge(name, help, &[]);
        let metrics = Self {
            ended: ReloadOutcome::ALL.iter().map(ended).collect(),
            last_successful: gauge(
                "config_last_reload_successful",
                "1 if the last read of the configuration was valid, else 0",
            ),
            awaiting_restart: gauge("config_settings_awaiting_restart", "Changed settings that need a restart"),
        };
        // The configuration was valid when the process started.
        metrics.last_successful.set(1.0);
        metrics
    }

    /// Counts a reload. `awaiting_restart` changed settings need a restart.
    pub fn ended(&self, outcome: ReloadOutcome, awaiting_restart: usize) {
        self.ended[outcome as usize].increment(1);
        self.last_successful.set(f64::from(u8::from(outcome != ReloadOutcome::Failed)));
        self.awaiting_restart.set(awaiting_restart as f64);
    }
}
