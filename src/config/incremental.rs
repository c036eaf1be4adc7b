//! `[keyspaces.NAME.source.incremental]`

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// How new keys are found between two scans: by polling for the rows from a watermark on.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct IncrementalConfig {
    /// The statement that lists key and watermark, in this order, of every row at or above its only parameter, the
    /// watermark (`$1`, MySQL `?`). Required.
    pub query: String,
    /// The statement that returns the highest watermark. Required for watermarks of type integer and text. For
    /// timestamps the default is the database's clock.
    pub watermark: Option<String>,
    /// Pause between two polls. Default 1 s.
    #[serde(with = "units::duration")]
    pub interval: Duration,
    /// How much later a row may become visible than a row with a higher watermark. Default 30 s.
    #[serde(with = "units::duration")]
    pub overlap: Duration,
}

impl Default for IncrementalConfig {
    fn default() -> Self {
        Self {
            query: String::new(),
            watermark: None,
            interval: Duration::from_secs(1),
            overlap: Duration::from_secs(30),
        }
    }
}
