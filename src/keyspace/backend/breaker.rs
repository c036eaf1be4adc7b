//! The breaker of a backend: when a call says something about the backend, and how it is reported.

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use tokio::time::Instant;

use crate::breaker::{Breaker, BreakerPolicy, Permit};
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
    breaker: Breaker,
    /// A call that a lookup's deadline cut sooner says nothing: the lookup had spent its time in the queue.
    conclusive: Duration,
}

/// The right to one call. Dropped unreported (its caller is cancelled), it counts as a failure if it took long enough
/// to be conclusive, else as nothing.
pub(super) struct CallGuard<'a> {
    breaker: &'a BackendBreaker,
    permit: Option<Permit>,
    began: StdInstant,
}

impl BackendBreaker {
    pub(super) fn new(config: &KeyspaceConfig, metrics: &Arc<KeyspaceMetrics>) -> Self {
        let metrics = Arc::clone(metrics);
        let breaker = Breaker::new(POLICY, move |state| metrics.backend_breaker(state));
        Self { breaker, conclusive: config.backend.timeout.min(config.deadline) / 2 }
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
        self.breaker.rejects(now()).map_or(Ok(()), |rejected| Err(LookupError::BreakerOpen(rejected.retry_in)))
    }

    /// # Errors
    /// [`LookupError::BreakerOpen`].
    pub(super) fn try_call(&self) -> Result<CallGuard<'_>, LookupError> {
        match self.breaker.try_call(now()) {
            Ok(permit) => Ok(CallGuard { breaker: self, permit: Some(permit), began: now() }),
            Err(rejected) => Err(LookupError::BreakerOpen(rejected.retry_in)),
        }
    }
}

impl CallGuard<'_> {
    /// The backend answered.
    pub(super) fn succeed(mut self, keyspace: &str) {
        if self.permit.take().is_some_and(|permit| self.breaker.breaker.succeed(permit)) {
            tracing::info!(keyspace, "backend answers again");
        }
    }

    /// The backend gave no answer.
    pub(super) fn fail(mut self, keyspace: &str) {
        if self.permit.take().is_some_and(|permit| self.breaker.breaker.fail(permit, now())) {
            tracing::warn!(keyspace, "backend breaker open: one trial call at a time until it answers");
        }
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        if self.breaker.is_conclusive(now().saturating_duration_since(self.began)) {
            self.breaker.breaker.fail(permit, now());
        } else {
            self.breaker.breaker.give_up(permit, now());
        }
    }
}

/// Tokio's clock, which tests may pause.
fn now() -> StdInstant {
    Instant::now().into_std()
}
