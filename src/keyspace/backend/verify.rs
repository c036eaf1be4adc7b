//! Calls of a build's checks: neither counted nor limited as those of lookups.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::BackendClient;
use crate::backend::{BackendError, FetchContext, Value};
use crate::key::Key;

/// Calls of a backend that takes one key at a time: a check must not crowd out lookups.
const CALLS_AT_A_TIME: usize = 4;

/// The backend's answer for a key of a build's check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verified {
    /// It has the row.
    Row,
    /// It has none.
    NoRow,
    /// Unknown: the backend can't be asked for this key, or its answer can't be used. With the backend's reason, if it
    /// gave one.
    Unknown(Option<String>),
}

impl BackendClient {
    /// Looks up each of `keys` at the backend, many per call if it can.
    ///
    /// # Errors
    /// [`BackendError`] where it gives no answer; what it says of single keys is in their [`Verified`].
    pub(crate) async fn verify(&self, keys: &[Key]) -> Result<Vec<Verified>, BackendError> {
        let mut verified = Vec::with_capacity(keys.len());
        let mut rest = keys;
        while !rest.is_empty() {
            // Read each time: a slow backend lowers its batch limit.
            let limit = self.backend.batch_limit();
            if limit <= 1 {
                let each = stream::iter(rest.to_vec()).map(|key| async move { self.verify_alone(&key).await });
                verified.extend(each.buffered(CALLS_AT_A_TIME).try_collect::<Vec<_>>().await?);
                break;
            }
            let (chunk, more) = rest.split_at(limit.min(rest.len()));
            verified.extend(self.verify_together(chunk).await?);
            rest = more;
        }
        Ok(verified)
    }

    async fn verify_together(&self, keys: &[Key]) -> Result<Vec<Verified>, BackendError> {
        let asked: Vec<Key> = keys.iter().filter(|key| self.backend.admits((*key).into()).is_ok()).cloned().collect();
        let rows = self.backend.fetch_many(&asked, &FetchContext::default()).await;
        let (rows, _) = self.fetch_as_given(&asked, rows, &FetchContext::default()).await;
        let mut rows = asked.iter().zip(rows).peekable();
        let mut verified = Vec::with_capacity(keys.len());
        for key in keys {
            verified.push(match rows.next_if(|(asked, _)| *asked == key) {
                // Late together is not late alone.
                Some((_, Err(BackendError::Timeout(_)))) => self.verify_alone(key).await?,
                Some((_, row)) => classify(row)?,
                None => Verified::Unknown(None),
            });
        }
        Ok(verified)
    }

    async fn verify_alone(&self, key: &Key) -> Result<Verified, BackendError> {
        if self.backend.admits(key.into()).is_err() {
            return Ok(Verified::Unknown(None));
        }
        classify(self.fetch_one(key, &FetchContext::default()).await)
    }
}

fn classify(row: Result<Option<Value>, BackendError>) -> Result<Verified, BackendError> {
    match row {
        Ok(Some(_)) => Ok(Verified::Row),
        Ok(None) => Ok(Verified::NoRow),
        Err(BackendError::Invalid(reason)) => Ok(Verified::Unknown(Some(reason))),
        // There is no bound to the room here.
        Err(error @ (BackendError::Timeout(_) | BackendError::Unavailable(_) | BackendError::NoRoom)) => Err(error),
    }
}
