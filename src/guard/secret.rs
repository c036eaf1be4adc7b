//! The secret under which keys are hashed: the fleet's, once it is known.

use std::sync::OnceLock;

use crate::key::{Key, KeyHash, KeySecret};

/// While Redis has not told the fleet's secret, one of this process's own does for what does not leave it: flights, the hot tier. Nothing that outlives
/// the change, or that others read, may be made of it: no filter is built and no announce acknowledged before.
#[derive(Debug)]
pub(super) struct Secret {
    agreed: OnceLock<KeySecret>,
    own: KeySecret,
}

impl Secret {
    /// `None`: not known yet.
    pub(super) fn new(agreed: Option<KeySecret>) -> Self {
        Self { agreed: agreed.map_or_else(OnceLock::new, OnceLock::from), own: KeySecret::random() }
    }

    pub(super) fn hash(&self, key: &Key) -> KeyHash {
        self.agreed.get().unwrap_or(&self.own).hash(key)
    }

    pub(super) fn is_agreed(&self) -> bool {
        self.agreed.get().is_some()
    }

    /// The first call decides.
    pub(super) fn agree(&self, secret: KeySecret) {
        let _ = self.agreed.set(secret);
    }
}
