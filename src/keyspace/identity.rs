//! Who a keyspace is: its name, the form of its keys, and the secret under which they are hashed.

use std::sync::{Arc, OnceLock};

use super::secret::Secret;
use crate::key::{Key, KeyForm, KeyHash};

#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: String,
    /// Shared with the backend, which binds keys by it. Empty until the configuration or the source provides it.
    pub(crate) form: Arc<OnceLock<KeyForm>>,
    pub(crate) secret: Secret,
}

impl Identity {
    /// The form of the keys, once it is known.
    pub(crate) fn form(&self) -> Option<KeyForm> {
        self.form.get().copied()
    }

    /// The hash of a key under the present secret.
    pub(crate) fn hash(&self, key: &Key) -> KeyHash {
        self.secret.hash(key)
    }

    pub(crate) fn hash_all<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> Vec<KeyHash> {
        keys.into_iter().map(|key| self.secret.hash(key)).collect()
    }
}
