//! `[keyspaces.NAME.backend]`

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AbsentHeader, Headers, SecretUrl, units};
use crate::client::Trust;

/// Where a row is read.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackendConfig {
    /// Default `sql`.
    pub kind: BackendKind,
    /// `postgres://…`, `mysql://…` (also `mariadb://…`) or `sqlite:…`; for `http` an `http(s)://…` URL that holds `{key}` once, in its path or query. Required, here or by `url_file`.
    pub url: SecretUrl,
    /// A file that holds the URL.
    pub url_file: Option<PathBuf>,
    /// The statement that reads one row; the key is its only parameter, `$1` (MySQL `?`, SQLite either). Required for `sql`.
    pub query: String,
    /// How long one call may take, waiting for a connection included. Default 200 ms.
    #[serde(with = "units::duration")]
    pub timeout: Duration,
    /// Calls at a time. Default 16.
    pub max_concurrency: usize,
    /// Lookups that may wait for their turn; further ones are shed. Default 256.
    pub max_queue: usize,
    /// Connections kept open. Default 1.
    pub min_connections: u32,
    /// Prepared statements a connection keeps; 0 works behind a transaction-mode pooler. Default 100.
    pub statement_cache: usize,
    /// `http`: statuses that mean "no such row"; 4xx, or 204. Default 404 alone.
    pub absent_status: Vec<u16>,
    /// `http`: a header, `Name` or `Name: value`, without which such a status is a failure and no absence. Default: none is demanded.
    pub absent_header: Option<AbsentHeader>,
    /// `http`: headers sent with each request.
    pub headers: Headers,
    /// `http`: a file of further headers, `Name: value` a line, for those that are secret.
    pub headers_file: Option<PathBuf>,
    /// `http`: a PEM file of the certificate authorities that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// What `headers_file` holds.
    #[serde(skip)]
    pub secret_headers: Headers,
    /// What `ca_file` holds.
    #[serde(skip)]
    pub ca: Option<Trust>,
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
            absent_status: vec![404],
            absent_header: None,
            headers: Headers::default(),
            headers_file: None,
            ca_file: None,
            secret_headers: Headers::default(),
            ca: None,
        }
    }
}

/// Kind of backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    /// A database.
    Sql,
    /// An HTTP API.
    Http,
    /// The source's keys, held exactly in memory.
    Set,
}
