//! The configuration: one small file per section, every field with its unit and default.
//!
//! [`load`] is the entry point. Files and environment become a tree; `unsupported` rejects what is not implemented; the
//! section types deserialize the rest; `files` reads named files; `validate` checks what types can't. Each stage adds
//! its errors to the same list, so a user sees all of them at once.
//!
//! Layering is hand-written: the crates for it stop at the first error, and can't name the variable that set a value.

mod backend;
mod basis;
mod cache;
mod canary;
mod document;
mod encoding;
mod enforcement;
mod environment;
mod error;
mod files;
mod filter;
mod headers;
mod incremental;
mod keyspace;
mod listen;
mod live;
mod load;
mod log;
mod rebuild;
mod redaction;
mod redis;
mod redis_files;
mod redis_place;
mod regular_file;
mod schedule;
mod secret;
mod server;
mod source;
mod token;
mod typed;
pub mod units;
mod unsupported;
mod url_text;
mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::backend::{BackendConfig, BackendKind};
pub use self::cache::CacheConfig;
pub use self::canary::CanaryConfig;
pub use self::enforcement::{Enforcement, EnforcementSetting};
pub use self::environment::environment;
pub use self::error::{ConfigError, ConfigErrors};
pub use self::filter::{FilterConfig, KeyspaceFilterKind};
pub use self::headers::{AbsentHeader, Headers};
pub use self::incremental::IncrementalConfig;
pub use self::keyspace::{Freshness, KeyspaceConfig};
pub use self::listen::{Listen, ListenError};
pub use self::load::{fingerprint, load};
pub use self::log::{LogConfig, LogFormat};
pub use self::rebuild::RebuildConfig;
pub use self::redis::{RedisConfig, RedisLogConfig};
pub(crate) use self::redis_files::{RedisFileError, RedisFiles};
pub use self::redis_place::RedisPlace;
pub use self::schedule::parse_schedule;
pub use self::secret::{SecretText, SecretUrl};
pub use self::server::ServerConfig;
pub use self::source::{KeyListFormat, SourceConfig, SourceKind, Sources};
pub use self::token::{Scope, TokenConfig};

/// The configuration of a process.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Listeners and limits of the process.
    pub server: ServerConfig,
    /// What is logged, and how.
    pub log: LogConfig,
    /// The shared cache; without it caching is in-process only.
    pub redis: Option<RedisConfig>,
    /// The guarded keyspaces, by name.
    pub keyspaces: BTreeMap<String, KeyspaceConfig>,
}
