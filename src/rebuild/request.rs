//! An operator's request for a rebuild, and the error if one is running.

/// An operator's request for a rebuild.
#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RebuildRequest {
    /// Overrides the collapse check (`min_keys_ratio`) once.
    pub accept_fewer: bool,
}

/// A rebuild of this keyspace is already running.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("rebuild {0} of this keyspace is running already")]
pub struct AlreadyRunning(pub u64);
