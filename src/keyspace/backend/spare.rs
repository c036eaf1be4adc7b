//! Calls that give way to lookups: they are made only if the limit and the breaker leave one at once.

use tokio::time::{Instant, timeout_at};

use super::limiter::ConcurrencyPermit;
use super::{BackendClient, Fetched, is_no_answer};
use crate::backend::{BackendError, FetchContext, Value};
use crate::breaker::CallGuard;
use crate::key::Key;
use crate::keyspace::error::LookupError;

/// The right to one call now.
pub(crate) struct SpareCall<'a> {
    client: &'a BackendClient,
    permit: ConcurrencyPermit<'a>,
    call: CallGuard<'a>,
}

/// The backend gave no answer; the reason is in the log.
#[derive(Debug)]
pub(crate) struct Unanswered;

impl BackendClient {
    /// The right to one call; `None` while the backend is busy or the breaker open.
    pub(crate) fn spare_call(&self) -> Option<SpareCall<'_>> {
        let permit = self.limiter.enter_if_free()?;
        Some(SpareCall { client: self, permit, call: self.breaker.begin().ok()? })
    }

    /// Asks for one key in each of its spellings, as a lookup does.
    pub(super) async fn fetch_one(&self, key: &Key, context: &FetchContext) -> Result<Option<Value>, BackendError> {
        let row = self.backend.fetch(key, context).await;
        match (&row, key.given()) {
            (Ok(None), Some(given)) => self.backend.fetch(&given, context).await,
            _ => row,
        }
    }
}

impl SpareCall<'_> {
    /// Asks for one key and counts the call as one of a lookup.
    ///
    /// # Errors
    /// [`LookupError`] if there is no answer within the deadline of a lookup.
    pub(crate) async fn fetch_counted(self, key: Key) -> Result<Fetched, LookupError> {
        let Self { client, permit: _permit, call } = self;
        let deadline = Instant::now() + client.deadline;
        let mut rows = client.run_call(call, &[key], FetchContext::default(), deadline).await;
        rows.pop().unwrap_or(Err(LookupError::Cancelled))
    }

    /// Asks for one key without counting the call. `None`: the key has no row.
    ///
    /// # Errors
    /// [`Unanswered`] within the deadline of a lookup.
    pub(crate) async fn fetch(self, key: &Key) -> Result<Option<Value>, Unanswered> {
        let Self { client, permit, call } = self;
        let deadline = Instant::now() + client.deadline;
        let context = FetchContext { trace: None, deadline: Some(deadline), ..FetchContext::default() };
        let fetched = timeout_at(deadline, client.fetch_one(key, &context)).await;
        drop(permit);
        if fetched.as_ref().is_ok_and(|row| !row.as_ref().is_err_and(is_no_answer)) {
            client.breaker.succeed(call);
        } else {
            client.breaker.fail(call);
        }
        match fetched {
            Ok(Ok(row)) => Ok(row),
            Ok(Err(error)) => {
                client.failures.backend_failed(&error);
                Err(Unanswered)
            }
            Err(_) => Err(Unanswered),
        }
    }
}
