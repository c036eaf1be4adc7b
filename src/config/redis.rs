//! `[redis]`

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{SecretUrl, units};

/// The shared cache.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisConfig {
    /// One server (`redis://host:port/db`, `unix:///path`), the sentinels that know it (`redis+sentinel://host:port,…/service/db`), or a cluster
    /// (`redis+cluster://host:port,…`). Required, here or by `url_file`.
    pub url: SecretUrl,
    /// A file that holds the URL.
    pub url_file: Option<PathBuf>,
    /// How long one command may take. Default 50 ms.
    #[serde(with = "units::duration")]
    pub timeout: Duration,
    /// The delta log not read to its end for this long: other instances' announces may be missing here, and the keyspace stops rejecting. Default 2 s.
    #[serde(with = "units::duration")]
    pub max_lag: Duration,
    /// Replicas that must have an announce or a drop before it is acknowledged (`WAIT`). Default 0: none.
    pub min_replicas_acked: u32,
    /// `[redis.log]`
    pub log: RedisLogConfig,
    /// What every key of ours in Redis begins with. Default `bloomguard`.
    pub key_prefix: String,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: SecretUrl::default(),
            url_file: None,
            timeout: Duration::from_millis(50),
            max_lag: Duration::from_secs(2),
            min_replicas_acked: 0,
            log: RedisLogConfig::default(),
            key_prefix: "bloomguard".into(),
        }
    }
}

/// `[redis.log]`: how much of the delta logs is kept.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisLogConfig {
    /// Entries are kept for this long; longer than every keyspace's `commit_window` and `deadline` together. Default 1 h.
    #[serde(with = "units::duration")]
    pub retention: Duration,
    /// As far as they take no more than this, each keyspace's. Default 64 MiB.
    #[serde(with = "units::size")]
    pub max_bytes: u64,
}

impl Default for RedisLogConfig {
    fn default() -> Self {
        Self { retention: Duration::from_secs(3600), max_bytes: 64 << 20 }
    }
}
