//! `[redis]`

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::{SecretUrl, units};

/// The shared cache.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisConfig {
    /// `redis://host:port/db`. Required, here or by `url_file`.
    pub url: SecretUrl,
    /// A file that holds the URL.
    pub url_file: Option<PathBuf>,
    /// How long one command may take. Default 50 ms.
    #[serde(deserialize_with = "units::duration")]
    pub timeout: Duration,
    /// What every key of ours in Redis begins with. Default `bloomguard`.
    pub key_prefix: String,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self { url: SecretUrl::default(), url_file: None, timeout: Duration::from_millis(50), key_prefix: "bloomguard".into() }
    }
}
