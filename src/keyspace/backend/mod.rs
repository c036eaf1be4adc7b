//! The backend of a keyspace, as lookups and checks call it: within its concurrency limit and a deadline, behind a
//! breaker.
//!
//! Knows no filter and no cache: it gets keys and returns what the backend has of them.

mod breaker;
mod failures;
mod limiter;
mod spare;
mod verify;

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use tokio::time::{Instant, timeout_at};

use self::breaker::BackendBreaker;
pub(crate) use self::failures::FailureLog;
pub(crate) use self::limiter::Priority;
use self::limiter::{ConcurrencyLimiter, ConcurrencyPermit};
pub(crate) use self::spare::SpareCall;
pub(crate) use self::verify::Verified;
use super::error::LookupError;
use crate::backend::{Backend, BackendError, FetchContext, Members, Value};
use crate::breaker::CallGuard;
use crate::config::KeyspaceConfig;
use crate::key::{Key, KeyError, KeyForm, KeyRef};
use crate::labels::{BackendOutcome, BreakerState, ShedReason};
use crate::metrics::KeyspaceMetrics;

/// What the backend has of one key.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    /// `None`: the key has no row.
    pub(crate) value: Option<Value>,
    /// Duration of the call.
    pub(crate) took: Duration,
    /// The row was found under the given spelling, and not under the canonical one.
    pub(crate) as_given: bool,
}

/// The backend's answers, and the indices of rows that exist only under the given spelling.
type Rows = (Vec<Result<Option<Value>, BackendError>>, Vec<usize>);

/// Calls the system of record.
pub(crate) struct BackendClient {
    backend: Arc<dyn Backend>,
    limiter: ConcurrencyLimiter,
    breaker: BackendBreaker,
    failures: FailureLog,
    /// Calls of one batch that may run at a time: a quarter of all, so that lookups keep the rest.
    batch_share: usize,
    deadline: Duration,
    metrics: Arc<KeyspaceMetrics>,
}

impl BackendClient {
    pub(crate) fn new(
        keyspace: &str,
        config: &KeyspaceConfig,
        backend: Arc<dyn Backend>,
        metrics: &Arc<KeyspaceMetrics>,
    ) -> Self {
        let calls = &config.backend;
        Self {
            backend,
            limiter: ConcurrencyLimiter::new(calls.max_concurrency, calls.max_queue, config.deadline),
            breaker: BackendBreaker::new(keyspace, config, metrics),
            failures: FailureLog::default(),
            batch_share: (calls.max_concurrency / 4).max(1),
            deadline: config.deadline,
            metrics: Arc::clone(metrics),
        }
    }

    /// The keys of a backend that holds them in memory; `None` for one that is called over a network.
    pub(crate) fn members(&self) -> Option<&Members> {
        self.backend.members()
    }

    /// # Errors
    /// [`KeyError`]: the backend can't be asked for this key.
    pub(crate) fn admits(&self, key: KeyRef<'_>) -> Result<(), KeyError> {
        self.backend.admits(key)
    }

    /// Returns true if the backend can be asked for every key of this form.
    pub(crate) fn admits_all(&self, form: KeyForm) -> bool {
        self.backend.admits_all(form)
    }

    /// Keys that one call may ask for. It may change while the backend is slow.
    pub(crate) fn batch_limit(&self) -> usize {
        self.backend.batch_limit().max(1)
    }

    pub(crate) const fn batch_share(&self) -> usize {
        self.batch_share
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Why the backend finds rows under keys that `form` distinguishes; `None` if it does not, or if that is unknown.
    ///
    /// # Errors
    /// [`BackendError`] if it gives no answer.
    pub(crate) async fn form_conflict(&self, form: KeyForm) -> Result<Option<String>, BackendError> {
        self.backend.form_conflict(form).await
    }

    /// Waits for a permit and calls the backend for all of `keys`; the answers are in their order.
    pub(crate) async fn fetch(
        &self,
        keys: &[Key],
        context: FetchContext,
        priority: Priority,
        deadline: Instant,
    ) -> Vec<Result<Fetched, LookupError>> {
        match self.enter(keys.len(), priority, deadline).await {
            Ok(_permit) => self.call(keys, context, deadline).await,
            Err(error) => vec![Err(error); keys.len()],
        }
    }

    /// Waits for the permit of a call for this many keys.
    ///
    /// # Errors
    /// The breaker is open or the queue is too long; counted for each key.
    pub(crate) async fn enter(
        &self,
        keys: usize,
        priority: Priority,
        deadline: Instant,
    ) -> Result<ConcurrencyPermit<'_>, LookupError> {
        // A permit is of no use while the breaker is open, so no lookup waits for one.
        self.check_breaker(keys)?;
        let permit = self.limiter.enter(priority, deadline).await;
        permit.map_err(|reason| self.shed(LookupError::Shed(reason), reason, keys))
    }

    /// Sheds a lookup of a key that the filter called absent, if the queue has no place for it.
    ///
    /// # Errors
    /// [`LookupError::Shed`], counted.
    pub(crate) fn check_place(&self, priority: Priority) -> Result<(), LookupError> {
        if priority == Priority::Low && self.limiter.is_full(priority) {
            return Err(self.shed(LookupError::Shed(ShedReason::QueueFull), ShedReason::QueueFull, 1));
        }
        Ok(())
    }

    /// # Errors
    /// [`LookupError::BreakerOpen`], counted for each key.
    pub(crate) fn check_breaker(&self, keys: usize) -> Result<(), LookupError> {
        self.breaker.check().map_err(|error| self.shed(error, ShedReason::BreakerOpen, keys))
    }

    /// Calls the backend now; the caller holds a permit.
    pub(crate) async fn call(
        &self,
        keys: &[Key],
        context: FetchContext,
        deadline: Instant,
    ) -> Vec<Result<Fetched, LookupError>> {
        match self.breaker.begin() {
            Ok(call) => self.run_call(call, keys, context, deadline).await,
            Err(error) => vec![Err(self.shed(error, ShedReason::BreakerOpen, keys.len())); keys.len()],
        }
    }

    async fn run_call(
        &self,
        call: CallGuard<'_>,
        keys: &[Key],
        context: FetchContext,
        deadline: Instant,
    ) -> Vec<Result<Fetched, LookupError>> {
        let started = StdInstant::now();
        let in_progress = self.metrics.backend_inflight();
        let context = FetchContext { deadline: Some(deadline), ..context };
        let fetched = timeout_at(deadline, self.fetch_rows(keys, &context)).await;
        drop(in_progress);
        let took = started.elapsed();
        self.metrics.backend(fetched.as_ref().map_or(BackendOutcome::Timeout, |(rows, _)| outcome_of(rows)), took);
        match &fetched {
            Ok((rows, _)) if is_answered(rows) => {
                self.limiter.record_duration(took);
                self.breaker.succeed(call);
            }
            // The next calls get more time, so that a backend that answers none is soon recognized.
            Err(_) if !self.breaker.is_conclusive(took) => self.limiter.record_duration(took * 2),
            Ok(_) | Err(_) => self.breaker.fail(call),
        }
        let Ok((rows, as_given)) = fetched else { return vec![Err(LookupError::Deadline(self.deadline)); keys.len()] };
        let answers = rows.into_iter().enumerate().map(|(index, row)| {
            row.map(|value| Fetched { value, took, as_given: as_given.contains(&index) })
                .map_err(|error| self.failed(error))
        });
        answers.collect()
    }

    fn failed(&self, error: BackendError) -> LookupError {
        if error.outcome().is_some() {
            self.failures.backend_failed(&error);
        }
        LookupError::Backend(Arc::new(error))
    }

    async fn fetch_rows(&self, keys: &[Key], context: &FetchContext) -> Rows {
        let rows = self.fetch_canonical(keys, context).await;
        self.fetch_as_given(keys, rows, context).await
    }

    async fn fetch_canonical(&self, keys: &[Key], context: &FetchContext) -> Vec<Result<Option<Value>, BackendError>> {
        match keys {
            // The query as it is configured, not its form for many keys.
            [key] => vec![self.backend.fetch(key, context).await],
            _ => self.backend.fetch_many(keys, context).await,
        }
    }

    /// Asks again for keys without a row whose given spelling the database may fold otherwise than [`KeyForm`] does. A
    /// failure of the second question fails the key: a failure is never an absence.
    async fn fetch_as_given(
        &self,
        keys: &[Key],
        mut rows: Vec<Result<Option<Value>, BackendError>>,
        context: &FetchContext,
    ) -> Rows {
        let absent = keys.iter().zip(&rows).enumerate().filter(|(_, (_, row))| matches!(row, Ok(None)));
        let (indices, given): (Vec<usize>, Vec<Key>) =
            absent.filter_map(|(index, (key, _))| Some((index, key.given()?))).unzip();
        let mut found = Vec::new();
        if given.is_empty() {
            return (rows, found);
        }
        let used = rows.iter().filter_map(|row| row.as_ref().ok()?.as_ref()).map(|value| value.bytes() as u64).sum();
        let context = FetchContext { room: context.room.map(|room| room.saturating_sub(used)), ..context.clone() };
        for (index, row) in indices.into_iter().zip(self.fetch_canonical(&given, &context).await) {
            if matches!(row, Ok(Some(_))) {
                found.push(index);
            }
            rows[index] = row;
        }
        (rows, found)
    }

    fn shed(&self, error: LookupError, reason: ShedReason, keys: usize) -> LookupError {
        (0..keys).for_each(|_| self.metrics.shed(reason));
        error
    }
}

/// Returns true if the backend answered at least one key. A query that it refuses is no outage: one key must not open
/// the breaker.
fn is_answered(rows: &[Result<Option<Value>, BackendError>]) -> bool {
    rows.iter().any(|row| !row.as_ref().is_err_and(is_no_answer))
}

const fn is_no_answer(error: &BackendError) -> bool {
    matches!(error, BackendError::Timeout(_) | BackendError::Unavailable(_))
}

/// One label for a call that answered several keys: its first failure, else whether it found a row.
fn outcome_of(rows: &[Result<Option<Value>, BackendError>]) -> BackendOutcome {
    match rows.iter().find_map(|row| row.as_ref().err()?.outcome()) {
        Some(failure) => failure,
        None if rows.iter().any(|row| matches!(row, Ok(Some(_)))) => BackendOutcome::Found,
        None => BackendOutcome::Absent,
    }
}
