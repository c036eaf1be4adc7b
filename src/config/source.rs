//! `[keyspaces.NAME.source]`, one or several.

use std::fmt;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

use super::{Headers, IncrementalConfig, SecretUrl};
use crate::client::Trust;

/// Where the keys come from.
#[derive(Debug, Clone, serde::Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// Default `sql`.
    pub kind: SourceKind,
    /// `sql`: the database, default the backend's. `redis`: the server, default that of `[redis]`. `http`: the list,
    /// required.
    pub url: SecretUrl,
    /// A file that contains the URL.
    pub url_file: Option<PathBuf>,
    /// `sql`: the statement that lists every key in its first column. Required.
    pub query: String,
    /// `http`: the format of the list. Default: by its content type.
    pub format: Option<KeyListFormat>,
    /// `http`: headers sent with each request.
    pub headers: Headers,
    /// `http`: a file of further headers, one `Name: value` per line, for secret ones.
    pub headers_file: Option<PathBuf>,
    /// `http`, and `redis` with a URL of its own: a PEM file of the trusted certificate authorities, instead of the
    /// system's.
    pub ca_file: Option<PathBuf>,
    /// `file`: one key per line; compressed if its name ends in `.gz` or `.zst`. Required.
    pub path: PathBuf,
    /// `redis`: names of matching keys are the keys. Required, or `set`.
    pub pattern: Option<String>,
    /// `redis`: prefix of the pattern that is not part of the key, such as `user:`. Default none.
    pub strip_prefix: String,
    /// `redis`: members of this set are the keys. Required, or `pattern`.
    pub set: Option<String>,
    /// Whether a source without keys is accepted. Default off.
    pub allow_empty: bool,
    /// `sql`: how new keys are found between two scans. Default: not at all.
    pub incremental: Option<IncrementalConfig>,
    /// Content of `headers_file`.
    #[serde(skip)]
    pub secret_headers: Headers,
    /// Content of `ca_file`.
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
            path: PathBuf::new(),
            pattern: None,
            strip_prefix: String::new(),
            set: None,
            allow_empty: false,
            incremental: None,
            secret_headers: Headers::default(),
            ca: None,
        }
    }
}

impl SourceConfig {
    /// Whether only a scan can count the keys; `filter.expected_keys` must size the filter then.
    #[must_use]
    pub fn is_uncounted(&self) -> bool {
        match self.kind {
            SourceKind::Sql => false,
            SourceKind::Http => true,
            SourceKind::File => {
                self.path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz") || e.eq_ignore_ascii_case("zst"))
            }
            SourceKind::Redis => self.pattern.is_some(),
        }
    }
}

/// Kind of source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A database.
    Sql,
    /// An HTTP server.
    Http,
    /// Lines of a file.
    File,
    /// Names of keys in Redis, or members of a set.
    Redis,
}

impl SourceKind {
    /// The spelling used in configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Http => "http",
            Self::File => "file",
            Self::Redis => "redis",
        }
    }
}

/// The format of a list of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyListFormat {
    /// One key per line.
    Lines,
    /// A JSON string, integer or object with a member `key` per line.
    Ndjson,
}

/// The sources of one keyspace: `[keyspaces.NAME.source]`, or several `[[keyspaces.NAME.source]]` whose union is the
/// key set.
#[derive(Debug, Clone)]
pub struct Sources {
    tables: Vec<SourceConfig>,
    is_list: bool,
}

impl Default for Sources {
    fn default() -> Self {
        SourceConfig::default().into()
    }
}

impl From<SourceConfig> for Sources {
    fn from(only: SourceConfig) -> Self {
        Self { tables: vec![only], is_list: false }
    }
}

impl Sources {
    /// All sources in the order of the configuration.
    pub fn iter(&self) -> std::slice::Iter<'_, SourceConfig> {
        self.tables.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, SourceConfig> {
        self.tables.iter_mut()
    }

    /// Whether they are a list and so have numbers.
    #[must_use]
    pub const fn is_list(&self) -> bool {
        self.is_list
    }

    /// The key of the source with this number: `source`, or `source[1]` of a list.
    #[must_use]
    pub fn key(&self, index: usize) -> String {
        if self.is_list { format!("source[{index}]") } else { "source".to_owned() }
    }
}

/// Serializes one table or a list, as it was written.
impl Serialize for Sources {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.tables.as_slice() {
            [only] if !self.is_list => only.serialize(to),
            tables => tables.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Sources {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMore)
    }
}

struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = Sources;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table or an array of tables")
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Sources, A::Error> {
        SourceConfig::deserialize(MapAccessDeserializer::new(table)).map(Sources::from)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Sources, A::Error> {
        let mut tables = Vec::new();
        while let Some(Table(table)) = items.next_element()? {
            tables.push(table);
        }
        Ok(Sources { tables, is_list: true })
    }
}

/// Only a table: a derived `Deserialize` would accept an array for a struct, field by field.
struct Table(SourceConfig);

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneTable)
    }
}

struct OneTable;

impl<'de> Visitor<'de> for OneTable {
    type Value = Table;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Table, A::Error> {
        SourceConfig::deserialize(MapAccessDeserializer::new(table)).map(Table)
    }
}
