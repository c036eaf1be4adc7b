//! `[keyspaces.NAME.filter]`

use serde::Deserialize;

/// The Bloom filter of a keyspace.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FilterConfig {
    /// Default `bloom`.
    pub kind: FilterKind,
    /// Share of absent keys that may pass as maybe, between 0 and 1. Default 0.001.
    pub false_positive_rate: f64,
    /// Keys to expect; capacity = max(expected_keys, counted) × headroom. Default: what the source counts.
    pub expected_keys: Option<u64>,
    /// Room to grow until the next build, at least 1. Default 1.3.
    pub headroom: f64,
}

impl Default for FilterConfig {
    fn default() -> Self {
        Self { kind: FilterKind::Bloom, false_positive_rate: 0.001, expected_keys: None, headroom: 1.3 }
    }
}

/// Kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilterKind {
    /// Split block.
    Bloom,
}
