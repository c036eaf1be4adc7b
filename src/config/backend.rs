//! `[keyspaces.NAME.backend]`

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::{SecretUrl, units};

/// Where a row is read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackendConfig {
    /// Default `sql`.
    pub kind: BackendKind,
    /// `postgres://…`, `mysql://…` (also `mariadb://…`) or `sqlite:…`. Required, here or by `url_file`.
    pub url: SecretUrl,
    /// A file that holds the URL.
    pub url_file: Option<PathBuf>,
    /// The statement that reads one row; the key is its only parameter, `$1` (MySQL `?`, SQLite either). Required.
    pub query: String,
    /// How long one call may take, waiting for a connection included. Default 200 ms.
    #[serde(deserialize_with = "units::duration")]
    pub timeout: Duration,
    /// Calls at a time. Default 16.
    pub max_concurrency: usize,
    /// Lookups that may wait for their turn; further ones are shed. Default 256.
    pub max_queue: usize,
    /// Connections kept open. Default 1.
    pub min_connections: u32,
    /// Prepared statements a connection keeps; 0 works behind a transaction-mode pooler. Default 100.
    pub statement_cache: usize,
}

impl Default for BackendConfig {
    fn default() -> Self {
        Self {
            kind: BackendKind::Sql,
            url: SecretUrl::default(),
            url_file: None,
            query: String::new(),
            timeout: Duration::from_millis(200),
            max_concurrency: 16,
            max_queue: 256,
            min_connections: 1,
            statement_cache: 100,
        }
    }
}

/// Kind of backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A database.
    Sql,
}
