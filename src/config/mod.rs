//! The configuration: one small file a section, every field with its unit and default.
//!
//! Types here deserialize what [`load`] has merged; [`validate`] judges what types can't.

mod backend;
mod cache;
mod filter;
mod keyspace;
mod log;
mod rebuild;
mod redis;
mod secret;
mod server;
mod source;
pub mod units;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use self::backend::{BackendConfig, BackendKind};
pub use self::cache::CacheConfig;
pub use self::filter::{FilterConfig, FilterKind};
pub use self::keyspace::{Enforcement, Freshness, KeyspaceConfig};
pub use self::log::{LogConfig, LogFormat};
pub use self::rebuild::RebuildConfig;
pub use self::redis::RedisConfig;
pub use self::secret::SecretUrl;
pub use self::server::ServerConfig;
pub use self::source::{SourceConfig, SourceKind};

/// Everything that a process is told.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Listeners and limits of the process.
    pub server: ServerConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// The shared cache; left out: in-process caching only.
    pub redis: Option<RedisConfig>,
    /// The guarded sets of keys, by name.
    pub keyspaces: BTreeMap<String, KeyspaceConfig>,
}
