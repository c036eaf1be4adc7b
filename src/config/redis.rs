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
    /// (`redis+sentinel://host:port,…/service/db`), or a cluster (`redis+cluster://host:port,…`); with TLS
    /// `rediss://`, `rediss+sentinel://`, `rediss+cluster://`. Required, here or by `url_file`.
    pub url: SecretUrl,
    /// A file that contains the URL.
    pub url_file: Option<PathBuf>,
    /// A file that contains the password of the server, in place of one in the URL, whose user it belongs to. One line;
    /// all white space but its line end belongs to it. Read again for each new connection.
    pub password_file: Option<PathBuf>,
    /// The same for the sentinels' own password.
    pub sentinel_password_file: Option<PathBuf>,
    /// TLS: a PEM file of the trusted certificate authorities, instead of the system's. Read again for each new
    /// connection.
    pub ca_file: Option<PathBuf>,
    /// TLS: a PEM file of our own certificate and its chain, for servers that ask for one. Needs `key_file`. Read again
    /// for each new connection.
    pub cert_file: Option<PathBuf>,
    /// TLS: a PEM file of the private key of `cert_file`.
    pub key_file: Option<PathBuf>,
    /// TLS: the name that the server's certificate must hold. Default: the host that is connected to. For sentinels and
    /// clusters, whose servers often have only addresses.
    pub server_name: Option<String>,
    /// Time limit of one command. Default 50 ms.
    #[serde(with = "units::duration")]
    pub timeout: Duration,
    /// Lag of the delta log at which the keyspace stops answering 404, because announces of other instances may be
    /// missing. Default 2 s.
    #[serde(with = "units::duration")]
    pub max_lag: Duration,
    /// How long an instance may wait for reports of the others instead of scanning when Redis comes back with another
    /// delta log: all must have announced again by then. New instances take announces after this time at the latest.
    /// The same for all instances; at most 10 s, and counted as `commit_window` less `max_lag` where that is shorter.
    /// `0s` turns it off. Default 10 s.
    #[serde(with = "units::duration")]
    pub roll_call: Duration,
    /// The operator's word that there were no announces before: a delta log that is younger than the commit window is
    /// then no reason to wait for a scan. For the very first start only: a Redis that lost its data looks the same.
    /// Refused where journal, snapshot or Redis show otherwise. Default false.
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
            password_file: None,
            sentinel_password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            server_name: None,
            timeout: Duration::from_millis(50),
            max_lag: Duration::from_secs(2),
            roll_call: Duration::from_secs(10),
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
