//! `[redis]`

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{SecretUrl, units};

/// The shared cache.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisConfig {
    /// One server (`redis://host:port/db`, `unix:///path`), the sentinels that know it
    /// (`redis+sentinel://host:port,…/service/db`), or a cluster (`redis+cluster://host:port,…`). Required, here or by
    /// `url_file`.
    pub url: SecretUrl,
    /// A file that contains the URL.
    pub url_file: Option<PathBuf>,
    /// Time limit of one command. Default 50 ms.
    #[serde(with = "units::duration")]
    pub timeout: Duration,
    /// Lag of the delta log at which the keyspace stops answering 404, because announces of other instances may be
    /// missing. Default 2 s.
    #[serde(with = "units::duration")]
    pub max_lag: Duration,
    /// The operator's word that nobody announced before: a delta log that is younger than the commit window is then no
    /// reason to wait for a scan. For the very first start only: a Redis that lost its data looks the same. Refused
    /// where journal, snapshot or Redis show otherwise. Default false.
    pub first_start: bool,
    /// Replicas that must have an announce or a drop before it is acknowledged (`WAIT`). Default 0: none.
    pub min_replicas_acked: u32,
    /// `[redis.log]`
    pub log: RedisLogConfig,
    /// Prefix of all our keys in Redis. Default `bloomguard`.
    pub key_prefix: String,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: SecretUrl::default(),
            url_file: None,
            timeout: Duration::from_millis(50),
            max_lag: Duration::from_secs(2),
            first_start: false,
            min_replicas_acked: 0,
            log: RedisLogConfig::default(),
            key_prefix: "bloomguard".into(),
        }
    }
}

/// `[redis.log]`: retention of the delta logs.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisLogConfig {
    /// Lifetime of entries; longer than every keyspace's `commit_window` plus `deadline`. Default 1 h.
    #[serde(with = "units::duration")]
    pub retention: Duration,
    /// Size limit per keyspace, which takes precedence. Default 64 MiB.
    #[serde(with = "units::size")]
    pub max_bytes: u64,
}

impl Default for RedisLogConfig {
    fn default() -> Self {
        Self { retention: Duration::from_secs(3600), max_bytes: 64 << 20 }
    }
}
