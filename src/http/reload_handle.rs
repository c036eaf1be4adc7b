//! How the admin listener and the reloader exchange requests, reports and the active configuration.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::ConfigErrors;
use crate::labels::ReloadOutcome;

/// A request to reload the configuration. The sender receives the result.
pub type ReloadRequest = oneshot::Sender<Result<ReloadReport, ConfigErrors>>;

/// The admin listener's access to the configuration.
#[derive(Debug)]
pub struct ReloadHandle {
    /// To the reloader.
    pub requests: mpsc::Sender<ReloadRequest>,
    /// The active configuration.
    pub active: watch::Receiver<Arc<ActiveConfig>>,
}

/// The result of a reload with a valid configuration.
#[derive(Debug, Clone, Serialize)]
pub struct ReloadReport {
    /// The outcome.
    pub outcome: ReloadOutcome,
    /// Changed settings that are active now.
    pub applied: Vec<String>,
    /// Changed settings that need a restart.
    pub needs_restart: Vec<String>,
}

/// The configuration that the process uses.
#[derive(Debug, Clone, Serialize)]
pub struct ActiveConfig {
    /// Every setting, secrets redacted.
    pub config: Value,
    /// Settings that had other values in the files when they were last read.
    pub needs_restart: Vec<String>,
}
