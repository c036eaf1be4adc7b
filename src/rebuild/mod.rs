//! Building the next filter: schedule, runner, progress.

mod progress;

pub use self::progress::{Progress, Running};

/// Asks for rebuilds of one keyspace and tells how they go.
#[derive(Debug, Clone)]
pub struct RebuildHandle {}

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

#[allow(clippy::unimplemented, unused_variables)]
impl RebuildHandle {
    /// Starts a rebuild now and returns its job id.
    ///
    /// # Errors
    /// [`AlreadyRunning`].
    pub fn request(&self, request: RebuildRequest) -> Result<u64, AlreadyRunning> {
        unimplemented!()
    }

    /// How the running rebuild goes, and how the last one went.
    pub fn progress(&self) -> Progress {
        unimplemented!()
    }
}
