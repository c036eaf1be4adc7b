//! `[keyspaces.NAME.source]`

use std::path::PathBuf;

use serde::Deserialize;

use super::{Headers, SecretUrl};
use crate::client::Trust;

/// Where the keys come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// Default `sql`.
    pub kind: SourceKind,
    /// Default for `sql`: the backend's. Required for `http`, here or by `url_file`.
    pub url: SecretUrl,
    /// A file that holds the URL.
    pub url_file: Option<PathBuf>,
    /// The statement that lists every key in its first column. Required for `sql`.
    pub query: String,
    /// `http`: how the answer lists keys. Default: by its content type.
    pub format: Option<KeyListFormat>,
    /// `http`: headers sent with each request.
    pub headers: Headers,
    /// `http`: a file of further headers, `Name: value` a line, for those that are secret.
    pub headers_file: Option<PathBuf>,
    /// `http`: a PEM file of the certificate authorities that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether a source without keys is believed. Default off.
    pub allow_empty: bool,
    /// What `headers_file` holds.
    #[serde(skip)]
    pub secret_headers: Headers,
    /// What `ca_file` holds.
    #[serde(skip)]
    pub ca: Option<Trust>,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            kind: SourceKind::Sql,
            url: SecretUrl::default(),
            url_file: None,
            query: String::new(),
            format: None,
            headers: Headers::default(),
            headers_file: None,
            ca_file: None,
            allow_empty: false,
            secret_headers: Headers::default(),
            ca: None,
        }
    }
}

/// Kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A database.
    Sql,
    /// An HTTP server.
    Http,
}

/// How a list of keys is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyListFormat {
    /// One key a line.
    Lines,
    /// A JSON string, integer or object with a member `key` a line.
    Ndjson,
}
