//! The secret under which keys are hashed: the fleet's, once it is known.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::key::{Key, KeyHash, KeyRef, KeySecret};

/// Until Redis provides the fleet's secret, a secret of this process serves what stays inside it: flights and the hot
/// tier. Nothing that others read may use it: no filter is built and no announce acknowledged before.
///
/// A wiped Redis may return with another secret, from an instance that was first. Then the active filter knows no key
/// any more. So a change of the secret revokes the trust **first**. A probe reads the secret **before** the trust, and
/// checks that it is still the same **after** it asked the filter: a whole build may have happened in between.
#[derive(Debug)]
pub(crate) struct Secret(ArcSwap<CurrentSecret>);

/// One secret, for all keys that must be hashed alike.
#[derive(Debug)]
pub(crate) struct CurrentSecret {
    secret: KeySecret,
    pub(crate) fingerprint: u64,
    pub(crate) agreed: bool,
}

impl CurrentSecret {
    pub(crate) fn hash(&self, key: &Key) -> KeyHash {
        self.secret.hash(key)
    }

    #[inline]
    pub(crate) fn hash_ref(&self, key: KeyRef<'_>) -> KeyHash {
        self.secret.hash_ref(key)
    }

    /// For the snapshot, which only this user can read.
    pub(crate) const fn bytes(&self) -> &[u8; KeySecret::LEN] {
        self.secret.as_bytes()
    }
}

impl Secret {
    /// `None`: not known yet.
    pub(crate) fn new(agreed: Option<KeySecret>) -> Self {
        let is_agreed = agreed.is_some();
        Self(ArcSwap::from_pointee(current(agreed.unwrap_or_else(KeySecret::random), is_agreed)))
    }

    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<CurrentSecret>> {
        self.0.load()
    }

    /// As [`load`](Self::load), to be held for longer.
    pub(crate) fn load_full(&self) -> Arc<CurrentSecret> {
        self.0.load_full()
    }

    /// Returns true if the caller's secret has not been replaced.
    pub(crate) fn is_still(&self, held: &Arc<CurrentSecret>) -> bool {
        Arc::ptr_eq(held, &self.0.load())
    }

    /// The fleet's secret, for a whole announce or drop; `None`: not known yet.
    pub(crate) fn agreed(&self) -> Option<Arc<CurrentSecret>> {
        Some(self.0.load_full()).filter(|current| current.agreed)
    }

    pub(crate) fn hash(&self, key: &Key) -> KeyHash {
        self.load().hash(key)
    }

    pub(crate) fn is_agreed(&self) -> bool {
        self.load().agreed
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.load().fingerprint
    }

    /// Sets the fleet's secret.
    pub(crate) fn agree(&self, secret: KeySecret) {
        self.0.store(Arc::new(current(secret, true)));
    }

    /// The secret proposed to a Redis without one: the agreed one, or a fresh one.
    pub(crate) fn proposal(&self) -> KeySecret {
        let current = self.load();
        if current.agreed { current.secret.clone() } else { KeySecret::random() }
    }
}

fn current(secret: KeySecret, agreed: bool) -> CurrentSecret {
    CurrentSecret { fingerprint: secret.fingerprint(), secret, agreed }
}
