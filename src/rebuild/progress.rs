//! How far a rebuild is.

use serde::Serialize;

use crate::guard::LastRebuild;

/// What `GET /admin/keyspaces/{ks}/rebuild` shows.
#[derive(Debug, Clone, Serialize)]
pub struct Progress {
    /// The rebuild under way, if any.
    pub running: Option<Running>,
    /// The last one that ended.
    pub last: Option<LastRebuild>,
    /// Why the last one failed, in full: the admin listener may show it.
    pub last_error: Option<String>,
}

/// A rebuild under way.
#[derive(Debug, Clone, Serialize)]
pub struct Running {
    /// Its number.
    pub job: u64,
    /// Keys read so far.
    pub keys_read: u64,
    /// Keys expected, from a count before the scan.
    pub keys_expected: Option<u64>,
    /// Keys read a second so far.
    pub keys_per_second: f64,
    /// Share of the expected keys, in percent.
    pub percent: Option<f64>,
    /// Seconds to go at this rate.
    pub eta_seconds: Option<f64>,
    /// Seconds since it began.
    pub elapsed_seconds: f64,
}
