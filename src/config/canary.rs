//! `[keyspaces.NAME.canary]`

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// Checks of a sample of the filter's answers against the backend.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CanaryConfig {
    /// Share of the filter's absences that are looked for at the backend; 0 to 1, 0 = none. Default 0.001.
    pub sample_rate: f64,
    /// Checks of one second, at the most. Default 50.
    pub max_per_second: u32,
    /// How long the filter rejects nobody once a row was found that it had called absent; doubled each time that it happens again, up to an hour. Default 1 min.
    #[serde(with = "units::duration")]
    pub hold: Duration,
    /// Absences of its filter that a keyspace without history compares with the backend before the filter answers anybody; 0 = none. Default 300.
    pub proof: u32,
}

impl Default for CanaryConfig {
    fn default() -> Self {
        Self { sample_rate: 0.001, max_per_second: 50, hold: Duration::from_secs(60), proof: 300 }
    }
}
