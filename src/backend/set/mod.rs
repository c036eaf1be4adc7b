//! The source's own keys, held exactly in memory: membership without a database.

mod arena;
mod key_set;
mod members;
mod notes;

use async_trait::async_trait;

pub use self::key_set::{KeySet, KeySetBuilder};
pub use self::members::{Members, Membership, SetStatus};

use super::{Backend, BackendError, FetchContext, Value};
use crate::key::{Key, KeyForm};

/// A backend whose rows are their keys.
#[derive(Debug)]
pub struct SetBackend(Members);

/// Why a key can't be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// It has not the form of the others.
    #[error("a key of the scan has not the form of the keyspace")]
    Form,
    /// No place is left that a start can address.
    #[error("the keys take more than 1 TiB")]
    TooLarge,
}

impl SetBackend {
    /// Answers from `members`.
    #[must_use]
    pub const fn new(members: Members) -> Self {
        Self(members)
    }
}

#[async_trait]
impl Backend for SetBackend {
    fn admits_all(&self, _: KeyForm) -> bool {
        true
    }

    /// The keyspace asks the members themselves: only it knows whether they are fresh enough for an absence.
    async fn fetch(&self, _key: &Key, _context: &FetchContext) -> Result<Option<Value>, BackendError> {
        Err(BackendError::Invalid("a set in memory is not fetched from".into()))
    }

    fn members(&self) -> Option<&Members> {
        Some(&self.0)
    }

    /// Its answers are not cached.
    fn fingerprint(&self) -> u64 {
        0
    }
}

/// Capacity of `keys` for `more` keys: grows by an eighth at a time, because doubling would reserve twice what is
/// needed.
fn grown<T>(keys: &Vec<T>, more: usize) -> usize {
    let (needed, capacity) = (keys.len() + more, keys.capacity());
    if needed <= capacity { capacity } else { needed.max(capacity + capacity / 8) }
}

fn make_room<T>(keys: &mut Vec<T>, more: usize) {
    keys.reserve_exact(grown(keys, more) - keys.len());
}
