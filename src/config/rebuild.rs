//! `[keyspaces.NAME.rebuild]`

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// When the filter is rebuilt, and what a build must pass.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RebuildConfig {
    /// Cron expression of 5 fields, or 6 with seconds first; UTC. Default `0 2 * * *`.
    pub schedule: String,
    /// Random delay of each scheduled build, at most this long. Default 5 min.
    #[serde(with = "units::duration")]
    pub jitter: Duration,
    /// Whether a filter is built at startup. Default on.
    pub on_start: bool,
    /// Fewest keys that a build may find, as a share of the last count, else of `expected_keys`; 0 to 1. Applies to
    /// each of several sources. Default 0.9.
    pub min_keys_ratio: f64,
    /// Deletes since the last scan that start a build, as a share of its keys; 0 to 1. Default 0.1.
    pub max_deleted_ratio: f64,
    /// Scan rate; 0 = as fast as the source delivers. Default 0.
    pub max_keys_per_second: u64,
}

impl Default for RebuildConfig {
    fn default() -> Self {
        Self {
            schedule: "0 2 * * *".into(),
            jitter: Duration::from_secs(300),
            on_start: true,
            min_keys_ratio: 0.9,
            max_deleted_ratio: 0.1,
            max_keys_per_second: 0,
        }
    }
}
