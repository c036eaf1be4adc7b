//! Says in the log that the backend fails, without a line for each lookup.

use std::time::Duration;

use parking_lot::Mutex;

use crate::backend::BackendError;
use crate::clock::Moment;

/// Time between two lines.
const QUIET: Duration = Duration::from_secs(10);

/// The last line, and how many failures it stands for.
#[derive(Debug, Default)]
pub(super) struct Trouble(Mutex<(Option<Moment>, u64)>);

impl Trouble {
    pub(super) fn backend_failed(&self, error: &BackendError) {
        let now = Moment::now();
        let mut last = self.0.lock();
        last.1 += 1;
        if last.0.is_none_or(|at| now.since(at) >= QUIET) {
            tracing::warn!(%error, failures = last.1, "the backend fails");
            *last = (Some(now), 0);
        }
    }
}
