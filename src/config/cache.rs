//! `[keyspaces.NAME.cache]`

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::units;

/// Lifetimes and sizes of cached answers.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheConfig {
    /// Lifetime of a value in the shared cache. Default 30 min.
    #[serde(with = "units::duration")]
    pub ttl: Duration,
    /// Lifetime of an absence, never longer than `max_staleness`. Default 5 min.
    #[serde(with = "units::duration")]
    pub absent_ttl: Duration,
    /// Each lifetime is randomised by this share around its mean, 0 to 1. Default 0.1.
    pub jitter: f64,
    /// Size of the in-process tier in bytes. Default 64 MiB.
    #[serde(with = "units::size")]
    pub hot_capacity: u64,
    /// Lifetime in the in-process tier. Default 10 s.
    #[serde(with = "units::duration")]
    pub hot_ttl: Duration,
    /// Within this last share of `ttl` a read may refresh the value in the background, 0 to 1. Default 0: never.
    pub refresh_ahead: f64,
    /// How long after its expiry a value of the shared cache may be served if the backend fails. Default 0: never.
    #[serde(with = "units::duration")]
    pub stale_if_error: Duration,
    /// Larger values are served but not cached. Default 1 MiB.
    #[serde(with = "units::size")]
    pub max_value_bytes: u64,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30 * 60),
            absent_ttl: Duration::from_secs(5 * 60),
            jitter: 0.1,
            hot_capacity: 64 << 20,
            hot_ttl: Duration::from_secs(10),
            refresh_ahead: 0.0,
            stale_if_error: Duration::ZERO,
            max_value_bytes: 1 << 20,
        }
    }
}
