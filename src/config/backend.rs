//! `[keyspaces.NAME.backend]`

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AbsentHeader, Headers, SecretUrl, units};
use crate::client::Trust;

/// Where rows are read.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackendConfig {
    /// Default `sql`.
    pub kind: BackendKind,
    /// `postgres://…`, `mysql://…` (also `mariadb://…`) or `sqlite:…`; for `http` an `http(s)://…` URL with `{key}`
    /// once, in its path or query. Required, here or by `url_file`.
    pub url: SecretUrl,
    /// A file that contains the URL.
    pub url_file: Option<PathBuf>,
    /// The statement that reads one row; the key is its only parameter, `$1` (MySQL `?`, SQLite either). Required for
    /// `sql`.
    pub query: String,
    /// Time limit of one call, including the wait for a connection. Default 200 ms.
    #[serde(with = "units::duration")]
    pub timeout: Duration,
    /// Concurrent calls. Default 16.
    pub max_concurrency: usize,
    /// Lookups that may wait for a call; further ones are shed. Default 256.
    pub max_queue: usize,
    /// Connections kept open. Default 1.
    pub min_connections: u32,
    /// Prepared statements per connection; 0 works behind a transaction-mode pooler. Default 100.
    pub statement_cache: usize,
    /// `http`: statuses that mean "no such row"; 4xx, or 204. Default 404 only.
    pub absent_status: Vec<u16>,
    /// `http`: a header, `Name` or `Name: value`. Without it such a status is a failure and not an absence. Default:
    /// none is required.
    pub absent_header: Option<AbsentHeader>,
    /// `http`: headers sent with each request.
    pub headers: Headers,
    /// `http`: a file of further headers, one `Name: value` per line, for secret ones.
    pub headers_file: Option<PathBuf>,
    /// `http`: a PEM file of the trusted certificate authorities, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Content of `headers_file`.
    #[serde(skip)]
    pub secret_headers: Headers,
    /// Content of `ca_file`.
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
