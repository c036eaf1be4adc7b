//! The guard of one keyspace: [`Guard::lookup`], announces and drops.

mod error;
mod outcome;
mod status;

pub use self::error::{AnnounceError, DropError, LookupError};
pub use self::outcome::{Answer, Lookup, LookupOptions, Probe};
pub use self::status::{KeyspaceStatus, LastRebuild};

use crate::key::{Key, KeyError};

/// One keyspace's guard.
#[derive(Debug)]
pub struct Guard {}

/// A key that can't be taken.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// Without canonical form.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The form is not known yet: the database that would tell it has not been reached.
    #[error(
        "the key form of this keyspace is not known yet: its database has not been reached; set `key` in the configuration to know it from the start"
    )]
    UnknownForm,
}

#[allow(clippy::unimplemented, unused_variables)]
impl Guard {
    /// Brings a request's bytes into canonical form.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn key(&self, raw: &[u8]) -> Result<Key, ParseError> {
        unimplemented!()
    }

    /// Looks a key up. Never lasts longer than the keyspace's deadline.
    pub async fn lookup(&self, key: Key, options: LookupOptions) -> Lookup {
        unimplemented!()
    }

    /// Asks the filter only.
    pub fn check(&self, key: &Key) -> Probe {
        unimplemented!()
    }

    /// State without a key, for headers of answers that asked no filter.
    pub fn state(&self) -> crate::words::State {
        unimplemented!()
    }

    /// Takes note of a key before its row is committed; returns once it can't be lost.
    ///
    /// # Errors
    /// [`AnnounceError`]: not durable.
    pub async fn announce(&self, key: Key) -> Result<(), AnnounceError> {
        unimplemented!()
    }

    /// Drops a removed row's key from every cache.
    ///
    /// # Errors
    /// [`DropError`]: the shared cache may still hold it.
    pub async fn delete(&self, key: Key) -> Result<(), DropError> {
        unimplemented!()
    }

    /// For `/status`.
    pub fn status(&self) -> KeyspaceStatus {
        unimplemented!()
    }
}
