//! `[keyspaces.NAME.filter]`

use serde::{Deserialize, Serialize};

use crate::filter;

/// The Bloom filter of a keyspace.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FilterConfig {
    /// Default `bloom`.
    pub kind: KeyspaceFilterKind,
    /// Share of absent keys that may pass as maybe, between 0 and 1. Default 0.001.
    pub false_positive_rate: f64,
    /// Expected keys; capacity = max(expected_keys, counted) × headroom. Default: the count of the source. `scalable`
    /// needs neither.
    pub expected_keys: Option<u64>,
    /// Factor for growth until the next build, at least 1. Default 1.3.
    pub headroom: f64,
}

impl Default for FilterConfig {
    fn default() -> Self {
        Self { kind: KeyspaceFilterKind::Bloom, false_positive_rate: 0.001, expected_keys: None, headroom: 1.3 }
    }
}

impl FilterConfig {
    /// Capacity for this number of keys.
    #[must_use]
    pub fn capacity_for(&self, keys: u64) -> u64 {
        (keys as f64 * self.headroom).ceil() as u64
    }
}

/// Kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyspaceFilterKind {
    /// Split block: one cache line per lookup.
    Bloom,
    /// Bits anywhere in memory: the fewest bits per key, worth it below a rate of 0.0001.
    Classic,
    /// Classic layers, each twice as large as the one before, added as keys arrive.
    Scalable,
}

impl From<KeyspaceFilterKind> for filter::FilterKind {
    fn from(kind: KeyspaceFilterKind) -> Self {
        match kind {
            KeyspaceFilterKind::Bloom => Self::Bloom,
            KeyspaceFilterKind::Classic => Self::Classic,
            KeyspaceFilterKind::Scalable => Self::Scalable,
        }
    }
}
