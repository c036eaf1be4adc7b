//! Logs why calls fail, without a line for each: clients receive no error text of a database or of Redis.

use std::fmt::Display;
use std::time::Duration;

use parking_lot::Mutex;

use crate::backend::BackendError;
use crate::clock::Moment;

/// Time between two lines.
const QUIET: Duration = Duration::from_secs(10);

/// The last line, and how many failures it stands for.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<(Option<Moment>, u64)>);

impl FailureLog {
    pub(crate) fn backend_failed(&self, error: &BackendError) {
        self.count(|failures| tracing::warn!(%error, failures, "the backend fails"));
    }

    /// An announce or a drop.
    pub(crate) fn write_failed(&self, keyspace: &str, error: &dyn Display) {
        self.count(|failures| tracing::warn!(keyspace, %error, failures, "an announce or drop was not acknowledged"));
    }

    fn count(&self, log: impl FnOnce(u64)) {
        let now = Moment::now();
        let mut last = self.0.lock();
        last.1 += 1;
        if last.0.is_none_or(|at| now.since(at) >= QUIET) {
            log(last.1);
            *last = (Some(now), 0);
        }
    }
}
