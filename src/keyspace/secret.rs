//! The secret under which keys are hashed: the fleet's, once it is known.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::Keyspace;
use crate::clock::Moment;
use crate::key::{Key, KeyHash, KeyRef, KeySecret};

/// While Redis has not told the fleet's secret, one of this process's own does for what does not leave it: flights, the hot tier. Nothing that
/// others read may be made of it: no filter is built and no announce acknowledged before.
///
/// A Redis that was wiped may come back with another secret, of an instance that was there first. Then the filter in force knows no key any more:
/// whoever changes the secret ends the rejecting **first**; whoever hashes for a probe reads the secret **before** the right to reject, and looks whether it is still the
/// same **after** the filter was asked: a whole build may have come in between.
#[derive(Debug)]
pub(crate) struct Secret(ArcSwap<CurrentSecret>);

/// One secret, for everything that must be hashed alike.
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

    /// For the snapshot, which belongs to this user alone.
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

    /// Whether this one, which the caller holds, has been in force all the while.
    pub(crate) fn is_still(&self, held: &Arc<CurrentSecret>) -> bool {
        Arc::ptr_eq(held, &self.0.load())
    }

    /// The fleet's, for a whole announce or drop.
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

    /// Takes a secret's bytes as the fleet's.
    pub(crate) fn agree(&self, secret: KeySecret) {
        self.0.store(Arc::new(current(secret, true)));
    }

    /// What is proposed to a Redis that has none: the one that the fleet has agreed on, or a fresh one.
    pub(crate) fn proposal(&self) -> KeySecret {
        let current = self.load();
        if current.agreed { current.secret.clone() } else { KeySecret::random() }
    }
}

impl Keyspace {
    /// Returns true once the secret is known under which filters can be built.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        self.identity.secret.is_agreed()
    }

    /// What is proposed to a Redis that holds no secret for this keyspace.
    #[must_use]
    pub fn proposed_secret(&self) -> KeySecret {
        self.identity.secret.proposal()
    }

    /// Takes the fleet's secret. Announces within their window are hashed again under it. A filter of before knows no key under the new
    /// one, and announces of others were read under the old one: both revoke the promise.
    pub fn agree_on_secret(&self, secret: KeySecret) {
        let now = Moment::now();
        let known = &self.identity.secret;
        if known.is_agreed() {
            if known.fingerprint() == secret.fingerprint() {
                return;
            }
            tracing::warn!(keyspace = self.name(), "keyspace secret changed in Redis: rebuilding from the source");
            // First, see `Secret`.
            self.freshness.revoke(
                now.plus(self.writer.windows.longest().window),
                "the keyspace secret has changed, as after Redis was wiped; a scan restores it".into(),
            );
            self.builds.signal.request();
        }
        known.agree(secret);
        if let Err(full) = self.writer.rehash(now) {
            let count = full.0;
            self.freshness.revoke(
                now.plus(self.writer.windows.recent.life()),
                format!(
                    "{count} announces are within their window, and no more can be held; a scan after it restores them"
                ),
            );
        }
    }
}

fn current(secret: KeySecret, agreed: bool) -> CurrentSecret {
    CurrentSecret { fingerprint: secret.fingerprint(), secret, agreed }
}
