//! How the last rebuild went.

use serde::Serialize;

use crate::labels::RebuildOutcome;

/// How the last rebuild went.
#[derive(Debug, Clone, Serialize)]
pub struct LastRebuild {
    /// Its number, as the admin API returned it.
    pub job: u64,
    /// How it ended.
    pub outcome: RebuildOutcome,
    /// Unix time of its end, seconds.
    pub finished_unix: u64,
    /// How long it took, seconds.
    pub duration_seconds: f64,
    /// How much of that it read keys and filled the filter, seconds; the rest is counting before and checking after.
    pub scan_seconds: f64,
    /// Keys read.
    pub keys: u64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
