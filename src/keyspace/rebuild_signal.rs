//! Asks the rebuild's runner for a build before the schedule does.

use tokio::sync::Notify;

/// One pending request at most: several that come before the runner looks are one.
#[derive(Debug, Default)]
pub(crate) struct RebuildSignal(Notify);

impl RebuildSignal {
    pub(crate) fn request(&self) {
        self.0.notify_one();
    }

    /// Returns once a build is requested.
    pub(crate) async fn requested(&self) {
        self.0.notified().await;
    }
}
