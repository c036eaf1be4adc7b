//! The breaker of a backend: when a call says something about the backend, and what is logged.

use std::sync::Arc;
use std::time::Duration;

use crate::breaker::{Breaker, BreakerPolicy, CallGuard};
use crate::config::KeyspaceConfig;
use crate::keyspace::error::LookupError;
use crate::labels::BreakerState;
use crate::metrics::KeyspaceMetrics;

/// Five calls in a row without an answer are no accident. The longest pause is short: a trial costs one call, and the
/// recovery of a backend is to be noticed soon.
const POLICY: BreakerPolicy =
    BreakerPolicy { failures: 5, first_pause: Duration::from_millis(100), longest_pause: Duration::from_secs(2) };

#[derive(Debug)]
pub(super) struct BackendBreaker {
    keyspace: String,
    breaker: Breaker,
    /// A call that a lookup's deadline cut sooner says nothing: the lookup had spent its time in the queue.
    conclusive: Duration,
}

impl BackendBreaker {
    pub(super) fn new(keyspace: &str, config: &KeyspaceConfig, metrics: &Arc<KeyspaceMetrics>) -> Self {
        let metrics = Arc::clone(metrics);
        let conclusive = config.backend.timeout.min(config.deadline) / 2;
        let breaker = Breaker::new(POLICY, move |state| metrics.backend_breaker(state)).unanswered_after(conclusive);
        Self { keyspace: keyspace.to_owned(), breaker, conclusive }
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Returns true if a call without an answer that took this long counts as a failure.
    pub(super) fn is_conclusive(&self, took: Duration) -> bool {
        took >= self.conclusive
    }

    /// # Errors
    /// [`LookupError::BreakerOpen`].
    pub(super) fn check(&self) -> Result<(), LookupError> {
        self.breaker.rejects_now().map_or(Ok(()), |rejected| Err(LookupError::BreakerOpen(rejected.retry_in)))
    }

    /// # Errors
    /// [`LookupError::BreakerOpen`].
    pub(super) fn begin(&self) -> Result<CallGuard<'_>, LookupError> {
        self.breaker.begin().map_err(|rejected| LookupError::BreakerOpen(rejected.retry_in))
    }

    /// The backend answered the call.
    pub(super) fn succeed(&self, call: CallGuard<'_>) {
        if call.succeed() {
            tracing::info!(keyspace = self.keyspace, "backend answers again");
        }
    }

    /// The backend gave no answer to the call.
    pub(super) fn fail(&self, call: CallGuard<'_>) {
        if call.fail() {
            tracing::warn!(keyspace = self.keyspace, "backend breaker open: one trial call at a time until it answers");
        }
    }
}
