//! The memory of recent announces: which keys are within their commit window.
//!
//! The window begins when an announce arrives and lasts `commit_window + deadline`: a lookup that read the backend just before the row became
//! visible may still want to store its absence one deadline later. While a key is in here no absence of it is stored or served, and every
//! build puts it into its candidate.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::{Key, KeyHash};

/// Bounded memory of announced keys.
#[derive(Debug)]
pub(super) struct Recent {
    life: Duration,
    limits: Limits,
    inner: Mutex<Inner>,
}

/// How much is remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Announces.
    pub(super) count: usize,
    /// Bytes of their keys.
    pub(super) bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    until: HashMap<KeyHash, (Moment, Key)>,
    /// In order of expiry; a key that was announced again appears twice, its older entry expires without effect.
    order: VecDeque<(Moment, KeyHash)>,
    /// Bytes of the keys in `until`.
    bytes: usize,
}

/// As many announces are within their window as are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full(pub(super) usize);

impl Recent {
    pub(super) fn new(life: Duration, limits: Limits) -> Self {
        Self { life, limits, inner: Mutex::default() }
    }

    /// How long a key is remembered.
    pub(super) const fn life(&self) -> Duration {
        self.life
    }

    /// Remembers a key from now on.
    pub(super) fn remember(&self, hash: KeyHash, key: &Key, now: Moment) -> Result<(), Full> {
        self.remember_all(&[hash], std::slice::from_ref(key), now)
    }

    /// Remembers all of these keys from now on, or none.
    pub(super) fn remember_all(&self, hashes: &[KeyHash], keys: &[Key], now: Moment) -> Result<(), Full> {
        let until = now.plus(self.life);
        let bytes: usize = keys.iter().map(|key| key.as_bytes().len()).sum();
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        if inner.order.len() + keys.len() > self.limits.count || inner.bytes + bytes > self.limits.bytes {
            return Err(Full(inner.order.len()));
        }
        for (hash, key) in hashes.iter().zip(keys) {
            if inner.until.insert(*hash, (until, key.clone())).is_none() {
                inner.bytes += key.as_bytes().len();
            }
            inner.order.push_back((until, *hash));
        }
        Ok(())
    }

    /// Whether the key is within its window.
    pub(super) fn contains(&self, hash: KeyHash, now: Moment) -> bool {
        self.inner.lock().until.get(&hash).is_some_and(|(until, _)| *until > now)
    }

    /// Gives the memory of closed windows back.
    pub(super) fn purge(&self, now: Moment) {
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        if inner.order.is_empty() {
            *inner = Inner::default();
        }
    }

    /// Every key within its window, with the rest of it.
    pub(super) fn snapshot(&self, now: Moment) -> Vec<(KeyHash, Key, Duration)> {
        let inner = self.inner.lock();
        inner
            .until
            .iter()
            .filter(|(_, (until, _))| *until > now)
            .map(|(hash, (until, key))| (*hash, key.clone(), until.since(now)))
            .collect()
    }
}

impl Inner {
    fn forget_expired(&mut self, now: Moment) {
        while let Some((until, hash)) = self.order.front().copied().filter(|(until, _)| *until <= now) {
            self.order.pop_front();
            // An announce made since then has moved the end of the window.
            if self.until.get(&hash).is_some_and(|(last, _)| *last == until)
                && let Some((_, key)) = self.until.remove(&hash)
            {
                self.bytes -= key.as_bytes().len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyForm, KeySecret};

    fn key(text: &str) -> (KeyHash, Key) {
        let key = KeyForm::Text.canonical(text.as_bytes()).unwrap();
        (KeySecret::new([7; KeySecret::LEN]).hash(&key), key)
    }

    #[test]
    fn a_key_is_remembered_for_its_window_and_no_longer() {
        let recent = Recent::new(Duration::from_secs(10), Limits { count: 100, bytes: 1000 });
        let (hash, key) = key("a");
        let start = Moment::from_nanos(1_000_000_000);
        recent.remember(hash, &key, start).unwrap();
        assert!(recent.contains(hash, start.plus(Duration::from_millis(9_999))));
        assert!(!recent.contains(hash, start.plus(Duration::from_secs(10))));
    }

    #[test]
    fn a_second_announce_begins_a_new_window() {
        let recent = Recent::new(Duration::from_secs(10), Limits { count: 100, bytes: 1000 });
        let (hash, first) = key("a");
        let start = Moment::from_nanos(0);
        recent.remember(hash, &first, start).unwrap();
        recent.remember(hash, &first, start.plus(Duration::from_secs(5))).unwrap();
        let (other_hash, other) = key("b");
        recent.remember(other_hash, &other, start.plus(Duration::from_secs(12))).unwrap();
        assert!(recent.contains(hash, start.plus(Duration::from_secs(14))));
        assert_eq!(recent.snapshot(start.plus(Duration::from_secs(16))).len(), 1);
    }

    #[test]
    fn it_is_bounded_and_says_so() {
        let recent = Recent::new(Duration::from_secs(10), Limits { count: 2, bytes: 4 });
        let start = Moment::from_nanos(0);
        for text in ["a", "b"] {
            let (hash, key) = key(text);
            recent.remember(hash, &key, start).unwrap();
        }
        let (hash, last) = key("c");
        assert_eq!(recent.remember(hash, &last, start), Err(Full(2)));
        let later = start.plus(Duration::from_secs(11));
        assert_eq!(recent.remember(hash, &last, later), Ok(()));
        let (hash, long) = key("long");
        assert_eq!(recent.remember(hash, &long, later), Err(Full(1)), "the bytes of keys are bounded too");
    }
}
