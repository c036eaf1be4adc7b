//! How the admin listener and the reloader exchange requests, reports and the active configuration.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::ConfigErrors;
use crate::labels::ReloadOutcome;

/// Asks for the configuration to be read again, and names who waits for what became of it.
pub type ReloadRequest = oneshot::Sender<Result<ReloadReport, ConfigErrors>>;

/// The configuration as the admin listener sees it.
#[derive(Debug)]
pub struct ReloadHandle {
    /// To whoever reads it again.
    pub requests: mpsc::Sender<ReloadRequest>,
    /// What is in force.
    pub active: watch::Receiver<Arc<ActiveConfig>>,
}

/// What became of a configuration that was read again and found good.
#[derive(Debug, Clone, Serialize)]
pub struct ReloadReport {
    /// In one word.
    pub outcome: ReloadOutcome,
    /// Settings that have changed and are in force now.
    pub applied: Vec<String>,
    /// Settings that differ from what is in force until the process is restarted.
    pub needs_restart: Vec<String>,
}

/// What the process goes by.
#[derive(Debug, Clone, Serialize)]
pub struct ActiveConfig {
    /// Every setting, secrets redacted.
    pub config: Value,
    /// Settings that the files had otherwise when they were last read.
    pub needs_restart: Vec<String>,
}
