//! What an operator may ask of a rebuild, and the one reason to be turned away.

/// What an operator asks of a rebuild.
#[derive(Debug, Clone, Copy, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RebuildRequest {
    /// Overrides the collapse check (`min_keys_ratio`) once.
    pub accept_fewer: bool,
}

/// A rebuild of this keyspace runs already.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("rebuild {0} of this keyspace is running already")]
pub struct AlreadyRunning(pub u64);
