//! Step seven of a lookup: the backend, within its cap and the deadline.

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use tokio::time::{Instant, timeout_at};

use super::Guard;
use super::error::LookupError;
use crate::backend::{BackendError, FetchContext, Value};
use crate::key::Key;
use crate::words::BackendOutcome;

/// What the backend said of one key.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// `None`: there is none.
    pub(super) value: Option<Value>,
    /// How long the backend took.
    pub(super) took: Duration,
}

impl Guard {
    /// One call of the backend for all of `keys`, in their order, once it is their turn. A failure is never an absence.
    pub(super) async fn ask_backend(&self, keys: &[Key], context: FetchContext, deadline: Instant) -> Vec<Result<Row, LookupError>> {
        match self.gate.enter(deadline).await {
            Ok(_permit) => self.call_backend(keys, context, deadline).await,
            Err(reason) => {
                keys.iter().for_each(|_| self.metrics.shed(reason));
                vec![Err(LookupError::Shed(reason)); keys.len()]
            }
        }
    }

    /// Calls the backend at once; the caller has its turn.
    pub(super) async fn call_backend(&self, keys: &[Key], context: FetchContext, deadline: Instant) -> Vec<Result<Row, LookupError>> {
        let started = StdInstant::now();
        let inflight = self.metrics.backend_inflight();
        let fetched = timeout_at(deadline, self.fetch(keys, &FetchContext { deadline: Some(deadline), ..context })).await;
        drop(inflight);
        let outcome = fetched.as_deref().map_or(BackendOutcome::Timeout, outcome_of);
        let took = started.elapsed();
        self.metrics.backend(outcome, took);
        let Ok(rows) = fetched else { return vec![Err(LookupError::Deadline(self.deadline)); keys.len()] };
        let told = rows.into_iter().map(|row| {
            row.map(|value| Row { value, took }).map_err(|error| {
                if error.outcome().is_some() {
                    self.trouble.backend_failed(&error);
                }
                LookupError::Backend(Arc::new(error))
            })
        });
        told.collect()
    }

    async fn fetch(&self, keys: &[Key], context: &FetchContext) -> Vec<Result<Option<Value>, BackendError>> {
        match keys {
            // The query as it is configured, not what a backend makes of it for many keys.
            [key] => vec![self.backend.fetch(key, context).await],
            _ => self.backend.fetch_many(keys, context).await,
        }
    }
}

/// One word for a call that answered for several keys: a failure if there was one, else whether it found anything.
fn outcome_of(rows: &[Result<Option<Value>, BackendError>]) -> BackendOutcome {
    match rows.iter().find_map(|row| row.as_ref().err()?.outcome()) {
        Some(failure) => failure,
        None if rows.iter().any(|row| matches!(row, Ok(Some(_)))) => BackendOutcome::Found,
        None => BackendOutcome::Absent,
    }
}
