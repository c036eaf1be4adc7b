//! `[keyspaces.NAME.canary]`

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// Checks of a sample of the filter's answers against the backend.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CanaryConfig {
    /// Share of the filter's absences that are checked at the backend; 0 to 1, 0 = none. Default 0.001.
    pub sample_rate: f64,
    /// Checks per second, at most. Default 50.
    pub max_per_second: u32,
    /// How long the filter stops answering 404 after a false negative. Doubles with each repetition, up to an hour.
    /// Default 1 min.
    #[serde(with = "units::duration")]
    pub hold: Duration,
    /// Absences that a keyspace without history compares with the backend before its filter answers; 0 = none. Default
    /// 300.
    pub proof: u32,
}

impl Default for CanaryConfig {
    fn default() -> Self {
        Self { sample_rate: 0.001, max_per_second: 50, hold: Duration::from_secs(60), proof: 300 }
    }
}
