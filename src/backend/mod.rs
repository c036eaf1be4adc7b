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
use context::Room;
pub use context::{FetchContext, TraceContext};
pub use http::HttpBackend;
pub use set::{KeySet, KeySetBuilder, Members, Membership, SetBackend, SetError, SetStatus};
pub use sql::SqlBackend;

/// What a backend holds under a key, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The body.
    pub body: Bytes,
    /// What the body is.
    pub content_type: ContentType,
}

impl Value {
    /// Memory that it takes beside its own size: what caches count.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.body.len() + self.content_type.bytes()
    }
}

/// Why a backend gave no answer. None of these is ever an absence.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BackendError {
    /// No answer within `backend.timeout`.
    #[error("the backend gave no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// Not reachable, it refused the connection, or says that it can't answer at present.
    #[error("the backend can't be reached: {0}")]
    Unavailable(String),
    /// It answered, but not with a row that can be used: the query does not fit, a column can't be rendered, a status means neither row nor
    /// absence.
    #[error("the backend's answer can't be used: {0}")]
    Invalid(String),
    /// Not asked for, or not kept: other rows of the call took all of [`FetchContext::room`]. Says nothing of the row; ask again.
    #[error("the rows of other keys took all the room that the call had")]
    NoRoom,
}

impl BackendError {
    /// The word that metrics use; `None` where it is no failure of the backend's.
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
    /// Whether there can be a row of `key` that can be asked for. What is refused here is no key of the keyspace.
    ///
    /// # Errors
    /// [`KeyError`].
    fn admits(&self, _key: KeyRef<'_>) -> Result<(), KeyError> {
        Ok(())
    }

    /// Whether there is no key of this form that [`Backend::admits`] refuses, so that it need not be asked of each.
    fn admits_all(&self, _form: KeyForm) -> bool {
        false
    }

    /// Reads the row of `key`: `Ok(None)` only where the backend itself said that there is none.
    ///
    /// Ends within the backend's own timeout. Dropping the future abandons the call.
    ///
    /// # Errors
    /// [`BackendError`]; a failure is never an absence.
    async fn fetch(&self, key: &Key, context: &FetchContext) -> Result<Option<Value>, BackendError>;

    /// Reads the rows of several keys, each for itself: one answer a key, in their order. At most [`Backend::batch_limit`] keys.
    /// At least one of them is answered otherwise than by [`BackendError::NoRoom`].
    ///
    /// Ends within the backend's own timeout, as `fetch` does.
    async fn fetch_many(&self, keys: &[Key], context: &FetchContext) -> Vec<Result<Option<Value>, BackendError>> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut room = Room::of(context);
        for key in keys {
            let row = if room.is_full() { Err(BackendError::NoRoom) } else { self.fetch(key, context).await };
            if let Ok(Some(value)) = &row {
                room.take(value.bytes());
            }
            rows.push(row);
        }
        rows
    }

    /// Keys that one call of the system behind can answer for; 1 where it has no such call.
    fn batch_limit(&self) -> usize {
        1
    }

    /// Why what the key is compared with takes keys for equal that `form` tells apart; `None` where it doesn't, or where the driver
    /// does not tell. Then the filter would call keys absent that `fetch` finds.
    ///
    /// # Errors
    /// [`BackendError`] where it can't be asked.
    async fn form_conflict(&self, _form: KeyForm) -> Result<Option<String>, BackendError> {
        Ok(None)
    }

    /// The keys themselves, where they are in memory and all that there is: these are asked then, and `fetch` is not.
    fn members(&self) -> Option<&Members> {
        None
    }

    /// Identifies what `fetch` reads and how, so that values cached under another query are not taken for this one's.
    fn fingerprint(&self) -> u64;
}
