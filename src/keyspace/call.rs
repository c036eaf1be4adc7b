//! Step seven of a lookup: the backend, within its cap and the deadline, and behind a breaker.

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::Keyspace;
use super::error::LookupError;
use crate::backend::{BackendError, FetchContext, Value};
use crate::breaker::{Breaker, BreakerPolicy, Permit};
use crate::config::KeyspaceConfig;
use crate::key::Key;
use crate::labels::{BackendOutcome, BreakerState, ShedReason};
use crate::metrics::KeyspaceMetrics;

/// Five calls in a row without an answer are no accident. The longest pause is short: a trial costs one call, and a backend that is back is to be
/// noticed.
const BREAKER: BreakerPolicy =
    BreakerPolicy { failures: 5, first_pause: Duration::from_millis(100), longest_pause: Duration::from_secs(2) };

/// What the backend said of one key.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// `None`: there is none.
    pub(super) value: Option<Value>,
    /// How long the backend took.
    pub(super) took: Duration,
    /// It was found under the spelling that was given, and not under the canonical one.
    pub(super) as_given: bool,
}

/// What the backend says of keys, and which rows it has only under the spelling that was given.
type Rows = (Vec<Result<Option<Value>, BackendError>>, Vec<usize>);

/// The breaker before the backend.
#[derive(Debug)]
pub(super) struct BackendBreaker {
    breaker: Breaker,
    /// A call that a lookup's deadline cut sooner tells nothing: it had waited for its turn for so long that it had no time left.
    enough: Duration,
}

/// The right to one call. Dropped unreported, as where nobody waits for the call any more, it counts as one without an answer if that was long enough,
/// and else tells nothing.
pub(super) struct Trial<'a> {
    of: &'a BackendBreaker,
    permit: Option<Permit>,
    began: StdInstant,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        match self.permit.take() {
            Some(permit) if now().saturating_duration_since(self.began) < self.of.enough => {
                self.of.breaker.give_up(permit, now())
            }
            Some(permit) => drop(self.of.breaker.fail(permit, now())),
            None => {}
        }
    }
}

impl BackendBreaker {
    pub(super) fn new(config: &KeyspaceConfig, metrics: &Arc<KeyspaceMetrics>) -> Self {
        let metrics = Arc::clone(metrics);
        let breaker = Breaker::new(BREAKER, move |state| metrics.backend_breaker(state));
        Self { breaker, enough: config.backend.timeout.min(config.deadline) / 2 }
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// # Errors
    /// [`LookupError::BreakerOpen`].
    fn rejects(&self) -> Result<(), LookupError> {
        self.breaker.rejects(now()).map_or(Ok(()), |rejected| Err(LookupError::BreakerOpen(rejected.retry_in)))
    }

    /// # Errors
    /// [`LookupError::BreakerOpen`].
    pub(super) fn try_call(&self) -> Result<Trial<'_>, LookupError> {
        match self.breaker.try_call(now()) {
            Ok(permit) => Ok(Trial { of: self, permit: Some(permit), began: now() }),
            Err(rejected) => Err(LookupError::BreakerOpen(rejected.retry_in)),
        }
    }
}

impl Trial<'_> {
    pub(super) fn answered(mut self, keyspace: &str) {
        if self.permit.take().is_some_and(|permit| self.of.breaker.succeed(permit)) {
            tracing::info!(keyspace, "the backend answers again");
        }
    }

    pub(super) fn failed(mut self, keyspace: &str) {
        if self.permit.take().is_some_and(|permit| self.of.breaker.fail(permit, now())) {
            tracing::warn!(keyspace, "the backend gives no answer: it is asked by one call at a time until it does");
        }
    }
}

/// By Tokio's clock, which tests may pause.
fn now() -> StdInstant {
    Instant::now().into_std()
}

impl Keyspace {
    /// One call of the backend for all of `keys`, in their order, once it is their turn. A failure is never an absence.
    pub(super) async fn ask_backend(
        &self,
        keys: &[Key],
        context: FetchContext,
        deadline: Instant,
    ) -> Vec<Result<Row, LookupError>> {
        match self.enter_backend(keys.len(), deadline).await {
            Ok(_turn) => self.call_backend(keys, context, deadline).await,
            Err(error) => vec![Err(error); keys.len()],
        }
    }

    /// Waits for the turn of a call for so many keys.
    ///
    /// # Errors
    /// Why there is none, counted for each of the keys.
    pub(super) async fn enter_backend(
        &self,
        keys: usize,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, LookupError> {
        // Nobody is to wait for a turn that leads nowhere.
        self.backend_takes_calls(keys)?;
        self.gate.enter(deadline).await.map_err(|reason| self.shed(LookupError::Shed(reason), reason, keys))
    }

    /// # Errors
    /// [`LookupError::BreakerOpen`], counted for so many keys.
    pub(super) fn backend_takes_calls(&self, keys: usize) -> Result<(), LookupError> {
        self.breaker.rejects().map_err(|error| self.shed(error, ShedReason::BreakerOpen, keys))
    }

    /// Calls the backend at once; the caller has its turn.
    pub(super) async fn call_backend(
        &self,
        keys: &[Key],
        context: FetchContext,
        deadline: Instant,
    ) -> Vec<Result<Row, LookupError>> {
        let trial = match self.breaker.try_call() {
            Ok(trial) => trial,
            Err(error) => return vec![Err(self.shed(error, ShedReason::BreakerOpen, keys.len())); keys.len()],
        };
        let started = StdInstant::now();
        let inflight = self.metrics.backend_inflight();
        let fetched =
            timeout_at(deadline, self.fetch(keys, &FetchContext { deadline: Some(deadline), ..context })).await;
        drop(inflight);
        let outcome = fetched.as_ref().map_or(BackendOutcome::Timeout, |(rows, _)| outcome_of(rows));
        let took = started.elapsed();
        self.metrics.backend(outcome, took);
        match &fetched {
            Ok((rows, _)) if is_answered(rows) => {
                self.gate.took(took);
                trial.answered(&self.name);
            }
            // Those behind are given more time, so that where nobody is answered any more this is soon found out.
            Err(_) if took < self.breaker.enough => self.gate.took(took * 2),
            Ok(_) | Err(_) => trial.failed(&self.name),
        }
        let Ok((rows, as_given)) = fetched else { return vec![Err(LookupError::Deadline(self.deadline)); keys.len()] };
        let told = rows.into_iter().enumerate().map(|(index, row)| {
            row.map(|value| Row { value, took, as_given: as_given.contains(&index) }).map_err(|error| {
                if error.outcome().is_some() {
                    self.trouble.backend_failed(&error);
                }
                LookupError::Backend(Arc::new(error))
            })
        });
        told.collect()
    }

    async fn fetch(&self, keys: &[Key], context: &FetchContext) -> Rows {
        let rows = self.fetch_spelled(keys, context).await;
        self.ask_as_given(keys, rows, context).await
    }

    async fn fetch_spelled(&self, keys: &[Key], context: &FetchContext) -> Vec<Result<Option<Value>, BackendError>> {
        match keys {
            // The query as it is configured, not what a backend makes of it for many keys.
            [key] => vec![self.backend.fetch(key, context).await],
            _ => self.backend.fetch_many(keys, context).await,
        }
    }

    /// As a lookup asks for one key, in each of its spellings.
    pub(super) async fn fetch_one(&self, key: &Key, context: &FetchContext) -> Result<Option<Value>, BackendError> {
        let row = self.backend.fetch(key, context).await;
        match (&row, key.given()) {
            (Ok(None), Some(given)) => self.backend.fetch(&given, context).await,
            _ => row,
        }
    }

    /// Asks again for those keys without a row that were given in a spelling which the database may fold otherwise than we do. What fails there fails the
    /// key: a failure is never an absence.
    pub(super) async fn ask_as_given(
        &self,
        keys: &[Key],
        mut rows: Vec<Result<Option<Value>, BackendError>>,
        context: &FetchContext,
    ) -> Rows {
        let absent = keys.iter().zip(&rows).enumerate().filter(|(_, (_, row))| matches!(row, Ok(None)));
        let (places, given): (Vec<usize>, Vec<Key>) =
            absent.filter_map(|(index, (key, _))| Some((index, key.given()?))).unzip();
        let mut found = Vec::new();
        if !given.is_empty() {
            let held =
                rows.iter().filter_map(|row| row.as_ref().ok()?.as_ref()).map(|value| value.bytes() as u64).sum();
            let room = context.room.map(|room| room.saturating_sub(held));
            for (index, row) in
                places.into_iter().zip(self.fetch_spelled(&given, &FetchContext { room, ..context.clone() }).await)
            {
                if matches!(row, Ok(Some(_))) {
                    found.push(index);
                }
                rows[index] = row;
            }
        }
        (rows, found)
    }

    fn shed(&self, error: LookupError, reason: ShedReason, keys: usize) -> LookupError {
        (0..keys).for_each(|_| self.metrics.shed(reason));
        error
    }
}

/// Whether there is a backend that answers, whatever it says: a query that does not fit is no outage, and one key must not be able to make one.
fn is_answered(rows: &[Result<Option<Value>, BackendError>]) -> bool {
    rows.iter().any(|row| !row.as_ref().is_err_and(is_no_answer))
}

pub(super) const fn is_no_answer(error: &BackendError) -> bool {
    matches!(error, BackendError::Timeout(_) | BackendError::Unavailable(_))
}

/// One word for a call that answered for several keys: a failure if there was one, else whether it found anything.
fn outcome_of(rows: &[Result<Option<Value>, BackendError>]) -> BackendOutcome {
    match rows.iter().find_map(|row| row.as_ref().err()?.outcome()) {
        Some(failure) => failure,
        None if rows.iter().any(|row| matches!(row, Ok(Some(_)))) => BackendOutcome::Found,
        None => BackendOutcome::Absent,
    }
}
