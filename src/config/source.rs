//! `[keyspaces.NAME.source]`

use std::path::PathBuf;

use serde::Deserialize;

use super::SecretUrl;

/// Where the keys come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// Default `sql`.
    pub kind: SourceKind,
    /// Default: the backend's.
    pub url: SecretUrl,
    /// A file that holds the URL.
    pub url_file: Option<PathBuf>,
    /// The statement that lists every key in its first column. Required.
    pub query: String,
    /// Whether a source without keys is believed. Default off.
    pub allow_empty: bool,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self { kind: SourceKind::Sql, url: SecretUrl::default(), url_file: None, query: String::new(), allow_empty: false }
    }
}

/// Kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A database.
    Sql,
}
