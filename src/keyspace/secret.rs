//! The secret under which keys are hashed: the fleet's, once it is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::{Mutex, MutexGuard};

use crate::key::{Key, KeyHash, KeyRef, KeySecret};

/// Until Redis provides the fleet's secret, a secret of this process serves what stays inside it: flights and the hot
/// tier. Nothing that others read may use it: no filter is built and no announce acknowledged before.
///
/// A wiped Redis may return with another secret, from an instance that was first. Then the active filter knows no key
/// any more. So a change of the secret revokes the trust **first**. A probe reads the secret **before** the trust, and
/// checks that it is still the same **after** it asked the filter: a whole build may have happened in between.
///
/// A keyspace whose right does not rest on the log starts with a secret of its own and builds under it. The fleet's is
/// then the **next** one, under which a build fills its candidate, while the active filter stays. Filter and secret are
/// exchanged in one step. An insert reads the next secret before the present one: between the two reads the
/// next one may have become the present.
#[derive(Debug)]
pub(crate) struct Secret {
    current: ArcSwap<CurrentSecret>,
    next: ArcSwapOption<CurrentSecret>,
    /// The fleet's secret was known once: after a wipe this instance may propose it at once.
    was_shared: AtomicBool,
    /// Held while `next` or `current` is changed.
    change: Mutex<()>,
}

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
        let current = current(agreed.unwrap_or_else(KeySecret::random), is_agreed);
        Self {
            current: ArcSwap::from_pointee(current),
            next: ArcSwapOption::empty(),
            was_shared: AtomicBool::new(false),
            change: Mutex::default(),
        }
    }

    pub(crate) fn load(&self) -> arc_swap::Guard<Arc<CurrentSecret>> {
        self.current.load()
    }

    /// As [`load`](Self::load), to be held for longer.
    pub(crate) fn load_full(&self) -> Arc<CurrentSecret> {
        self.current.load_full()
    }

    /// Returns true if the caller's secret has not been replaced.
    pub(crate) fn is_still(&self, held: &Arc<CurrentSecret>) -> bool {
        Arc::ptr_eq(held, &self.current.load())
    }

    /// The fleet's secret, for a whole announce or drop; `None`: not known yet.
    pub(crate) fn agreed(&self) -> Option<Arc<CurrentSecret>> {
        Some(self.current.load_full()).filter(|current| current.agreed)
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
        self.current.store(Arc::new(current(secret, true)));
    }

    /// The fleet's secret, if it is to be adopted.
    pub(crate) fn next(&self) -> Option<Arc<CurrentSecret>> {
        self.next.load_full()
    }

    /// The fleet's secret is known. Returns true if a filter has to be built under it first, and none is asked for yet.
    pub(crate) fn prepare(&self, secret: KeySecret) -> bool {
        let _change = self.change.lock();
        // Relaxed: it publishes no other memory.
        self.was_shared.store(true, Ordering::Relaxed);
        let fingerprint = secret.fingerprint();
        if self.fingerprint() == fingerprint {
            self.next.store(None);
            return false;
        }
        if self.next.load().as_ref().is_some_and(|next| next.fingerprint == fingerprint) {
            return false;
        }
        self.next.store(Some(Arc::new(current(secret, true))));
        true
    }

    /// Begins to adopt `built`, under which a build has hashed its keys; until that is over, the next one stays. `None`
    /// if it has not been the next one since the build began: meanwhile inserts were hashed under another one.
    pub(crate) fn begin_adoption(&self, built: &Arc<CurrentSecret>) -> Option<Adoption<'_>> {
        let change = self.change.lock();
        // The same object: the fleet may have changed its secret, and changed it back.
        let next = self.next.load_full().filter(|next| Arc::ptr_eq(next, built))?;
        Some(Adoption { secret: self, next, _change: change })
    }

    /// Returns true if this instance has known the fleet's secret.
    pub(crate) fn was_shared(&self) -> bool {
        self.was_shared.load(Ordering::Relaxed)
    }

    /// The secret proposed to a Redis without one: the fleet's, else the agreed one, or a fresh one.
    pub(crate) fn proposal(&self) -> KeySecret {
        if let Some(next) = self.next() {
            return next.secret.clone();
        }
        let current = self.load();
        if current.agreed { current.secret.clone() } else { KeySecret::random() }
    }
}

/// The next secret, which stays the next one until this is dropped.
#[derive(Debug)]
pub(crate) struct Adoption<'a> {
    secret: &'a Secret,
    next: Arc<CurrentSecret>,
    _change: MutexGuard<'a, ()>,
}

impl Adoption<'_> {
    /// Makes it the present one. The caller has revoked the trust, and makes a filter under it the active one before it
    /// returns.
    pub(crate) fn adopt(self) {
        self.secret.current.store(self.next);
        // Afterwards: a reader that finds no next secret finds this one as the present.
        self.secret.next.store(None);
    }
}

fn current(secret: KeySecret, agreed: bool) -> CurrentSecret {
    CurrentSecret { fingerprint: secret.fingerprint(), secret, agreed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> KeySecret {
        KeySecret::new([byte; KeySecret::LEN])
    }

    #[test]
    fn a_secret_is_adopted_only_if_it_was_the_next_one_all_the_time() {
        let known = Secret::new(Some(secret(1)));
        assert!(known.prepare(secret(2)));
        let built = known.next().unwrap();
        assert!(known.prepare(secret(3)));
        assert!(known.begin_adoption(&built).is_none(), "what was inserted since is hashed under the third");
        assert!(known.prepare(secret(2)));
        assert!(
            known.begin_adoption(&built).is_none(),
            "it came back, and what was inserted meanwhile is not under it"
        );
        assert_eq!(known.fingerprint(), secret(1).fingerprint());
        let built = known.next().unwrap();
        known.begin_adoption(&built).unwrap().adopt();
        assert_eq!((known.fingerprint(), known.next().is_none()), (secret(2).fingerprint(), true));
        assert!(known.begin_adoption(&built).is_none(), "it is the present one");
    }

    #[test]
    fn the_next_secret_stays_while_one_is_adopted() {
        let known = Secret::new(Some(secret(1)));
        known.prepare(secret(2));
        let built = known.next().unwrap();
        let adoption = known.begin_adoption(&built).unwrap();
        std::thread::scope(|scope| {
            let changed = scope.spawn(|| known.prepare(secret(3)));
            assert!(Arc::ptr_eq(&known.next().unwrap(), &built));
            adoption.adopt();
            assert!(changed.join().unwrap());
        });
        assert_eq!(known.fingerprint(), secret(2).fingerprint());
        assert_eq!(known.next().unwrap().fingerprint, secret(3).fingerprint());
    }
}
