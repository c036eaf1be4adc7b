//! Where a row is read: [`Backend::fetch`].

use async_trait::async_trait;
use bytes::Bytes;

use crate::key::{Key, KeyError, KeyForm, KeyRef};
use crate::labels::BackendOutcome;

mod content_type;
mod context;
mod http;
mod set;
mod sql;

pub use content_type::ContentType;
use context::RowBudget;
pub use context::{FetchContext, TraceContext};
pub use http::HttpBackend;
pub use set::{KeySet, KeySetBuilder, Members, Membership, SetBackend, SetError, SetStatus};
pub use sql::SqlBackend;

/// A backend's value of a key, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The body.
    pub body: Bytes,
    /// Type of the body.
    pub content_type: ContentType,
}

impl Value {
    /// Memory beyond its own size, as caches count it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len() + self.content_type.bytes()
    }
}

/// Why a backend gave no answer. None of these is an absence.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BackendError {
    /// No answer within `backend.timeout`.
    #[error("the backend gave no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// Not reachable, it refused the connection, or it can't answer at present.
    #[error("the backend can't be reached: {0}")]
    Unavailable(String),
    /// It answered without a usable row: the query does not fit, a column can't be rendered, a status means neither row
    /// nor absence.
    #[error("the backend's answer can't be used: {0}")]
    Invalid(String),
    /// Not requested, or not kept: other rows of the call filled [`FetchContext::room`]. Says nothing about the row;
    /// ask again.
    #[error("the rows of other keys took all the room that the call had")]
    NoRoom,
}

impl BackendError {
    /// The label for metrics; `None` if it is not a failure of the backend.
    #[must_use]
    pub const fn outcome(&self) -> Option<BackendOutcome> {
        match self {
            Self::Timeout(_) => Some(BackendOutcome::Timeout),
            Self::Unavailable(_) => Some(BackendOutcome::Unavailable),
            Self::Invalid(_) => Some(BackendOutcome::Invalid),
            Self::NoRoom => None,
        }
    }
}

/// The system of record.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Checks whether a row of `key` can be requested. A key that is rejected here does not belong to the keyspace.
    ///
    /// # Errors
    /// [`KeyError`].
    fn admits(&self, _key: KeyRef<'_>) -> Result<(), KeyError> {
        Ok(())
    }

    /// Whether [`Backend::admits`] accepts all keys of this form, so that it need not be called for each.
    fn admits_all(&self, _form: KeyForm) -> bool {
        false
    }

    /// Reads the row of `key`. `Ok(None)` only if the backend itself said that there is none.
    ///
    /// Ends within the backend's own timeout. Dropping the future abandons the call.
    ///
    /// # Errors
    /// [`BackendError`]; a failure is never an absence.
    async fn fetch(&self, key: &Key, context: &FetchContext) -> Result<Option<Value>, BackendError>;

    /// Reads the rows of several keys: one answer a key, in their order. At most [`Backend::batch_limit`] keys. At
    /// least one answer is not [`BackendError::NoRoom`].
    ///
    /// Ends within the backend's own timeout, like `fetch`.
    async fn fetch_many(&self, keys: &[Key], context: &FetchContext) -> Vec<Result<Option<Value>, BackendError>> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut room = RowBudget::of(context);
        for key in keys {
            let row = if room.is_full() { Err(BackendError::NoRoom) } else { self.fetch(key, context).await };
            if let Ok(Some(value)) = &row {
                room.take(value.bytes());
            }
            rows.push(row);
        }
        rows
    }

    /// Keys that one call of the database or API can answer for; 1 if it has no such call.
    fn batch_limit(&self) -> usize {
        1
    }

    /// Why the column that the key is compared with treats keys as equal that `form` keeps apart; `None` if it doesn't,
    /// or if the driver does not tell. The filter would then call keys absent that `fetch` finds.
    ///
    /// # Errors
    /// [`BackendError`] if it can't be asked.
    async fn form_conflict(&self, _form: KeyForm) -> Result<Option<String>, BackendError> {
        Ok(None)
    }

    /// The keys themselves, if all of them are in memory. They are then asked instead of `fetch`.
    fn members(&self) -> Option<&Members> {
        None
    }

    /// Identifies what `fetch` reads and how: values cached under another query are not used for this one.
    fn fingerprint(&self) -> u64;
}
