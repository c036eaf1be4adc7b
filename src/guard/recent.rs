//! The memory of recent announces, this instance's and the others': which keys are within their commit window.
//!
//! The window begins when an announce arrives and lasts `commit_window + deadline`: a lookup that read the backend just before the row became
//! visible may still want to store its absence one deadline later. While a key is in here no absence of it is stored or served, and every
//! build puts it into its candidate.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::clock::Moment;
use crate::key::{Key, KeyHash};

/// Bounded memory of announced keys.
#[derive(Debug)]
pub(super) struct Recent {
    /// Nanoseconds. Set rarely: the longest window of the fleet counts.
    life: AtomicU64,
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
    until: HashMap<KeyHash, Remembered>,
    /// In order of expiry; a key that was announced again appears twice, its older entry expires without effect.
    order: VecDeque<(Moment, KeyHash)>,
    /// Bytes of the keys in `until`.
    bytes: usize,
    /// More keys were polled than are held: until then every key counts as within its window.
    all_until: Option<Moment>,
}

#[derive(Debug)]
struct Remembered {
    until: Moment,
    /// Of announces that were made here: their marks may have to be set again.
    key: Option<Key>,
}

/// What is told of a key within its window.
#[derive(Debug, Clone)]
pub(super) struct Announced {
    pub(super) hash: KeyHash,
    /// `None`: another instance announced it.
    pub(super) key: Option<Key>,
}

/// As many announces are within their window as are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full(pub(super) usize);

impl Recent {
    pub(super) fn new(life: Duration, limits: Limits) -> Self {
        Self { life: AtomicU64::new(nanos(life)), limits, inner: Mutex::default() }
    }

    /// How long a key is remembered.
    pub(super) fn life(&self) -> Duration {
        // Relaxed, here and where it is set: who reads an entry of a longer window has set it before.
        Duration::from_nanos(self.life.load(Ordering::Relaxed))
    }

    /// From now on keys are remembered for this long. Those that are held stay as long as was said.
    pub(super) fn set_life(&self, life: Duration) {
        self.life.store(nanos(life), Ordering::Relaxed);
    }

    /// Remembers a key from now on.
    pub(super) fn remember(&self, hash: KeyHash, key: &Key, now: Moment) -> Result<(), Full> {
        self.remember_all(&[hash], std::slice::from_ref(key), now)
    }

    /// Remembers all of these keys from now on, or none.
    pub(super) fn remember_all(&self, hashes: &[KeyHash], keys: &[Key], now: Moment) -> Result<(), Full> {
        let bytes: usize = keys.iter().map(|key| key.as_bytes().len()).sum();
        let mut inner = self.make_room(hashes.len(), bytes, now)?;
        for (hash, key) in hashes.iter().zip(keys) {
            inner.remember(*hash, Some(key), now.plus(self.life()));
        }
        Ok(())
    }

    /// Remembers all of these announces of another instance from now on, or none.
    pub(super) fn remember_told(&self, hashes: &[KeyHash], now: Moment) -> Result<(), Full> {
        let mut inner = self.make_room(hashes.len(), 0, now)?;
        for hash in hashes {
            inner.remember(*hash, None, now.plus(self.life()));
        }
        Ok(())
    }

    /// Remembers keys of rows that a poll has found. Announces keep half of the room: in place of more, every key counts as within its window.
    pub(super) fn remember_polled(&self, hashes: &[KeyHash], now: Moment) {
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        if inner.order.len() + hashes.len() > self.limits.count / 2 {
            inner.all_until = Some(now.plus(self.life()));
            return;
        }
        for hash in hashes {
            inner.remember(*hash, None, now.plus(self.life()));
        }
    }

    fn make_room(&self, count: usize, bytes: usize, now: Moment) -> Result<MutexGuard<'_, Inner>, Full> {
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        if inner.order.len() + count > self.limits.count || inner.bytes + bytes > self.limits.bytes {
            return Err(Full(inner.order.len()));
        }
        Ok(inner)
    }

    /// Whether the key is within its window.
    pub(super) fn contains(&self, hash: KeyHash, now: Moment) -> bool {
        let inner = self.inner.lock();
        inner.all_until.is_some_and(|until| until > now) || inner.until.get(&hash).is_some_and(|remembered| remembered.until > now)
    }

    /// Gives the memory of closed windows back.
    pub(super) fn purge(&self, now: Moment) {
        let mut inner = self.inner.lock();
        inner.forget_expired(now);
        if inner.order.is_empty() && inner.all_until.is_none_or(|until| until <= now) {
            *inner = Inner::default();
        }
    }

    /// Every key within its window.
    pub(super) fn snapshot(&self, now: Moment) -> Vec<Announced> {
        let inner = self.inner.lock();
        let open = inner.until.iter().filter(|(_, remembered)| remembered.until > now);
        open.map(|(hash, remembered)| Announced { hash: *hash, key: remembered.key.clone() }).collect()
    }
}

fn nanos(life: Duration) -> u64 {
    u64::try_from(life.as_nanos()).unwrap_or(u64::MAX)
}

impl Inner {
    fn remember(&mut self, hash: KeyHash, key: Option<&Key>, until: Moment) {
        let before = self.until.remove(&hash);
        // A window that was longer then does not close sooner for what is said now.
        let until = before.as_ref().map_or(until, |remembered| remembered.until.max(until));
        let before = before.and_then(|remembered| remembered.key);
        if let (None, Some(key)) = (&before, key) {
            self.bytes += key.as_bytes().len();
        }
        self.until.insert(hash, Remembered { until, key: before.or_else(|| key.cloned()) });
        self.order.push_back((until, hash));
    }

    fn forget_expired(&mut self, now: Moment) {
        while let Some((until, hash)) = self.order.front().copied().filter(|(until, _)| *until <= now) {
            self.order.pop_front();
            // An announce made since then has moved the end of the window.
            if self.until.get(&hash).is_some_and(|remembered| remembered.until == until)
                && let Some(Remembered { key: Some(key), .. }) = self.until.remove(&hash)
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
    fn a_shorter_window_of_later_closes_none_of_before() {
        let recent = Recent::new(Duration::from_secs(30), Limits { count: 100, bytes: 1000 });
        let (hash, key) = key("a");
        let start = Moment::from_nanos(0);
        recent.remember(hash, &key, start).unwrap();
        recent.set_life(Duration::from_secs(1));
        recent.remember(hash, &key, start.plus(Duration::from_secs(2))).unwrap();
        recent.purge(start.plus(Duration::from_secs(4)));
        assert!(recent.contains(hash, start.plus(Duration::from_secs(29))));
        assert!(!recent.contains(hash, start.plus(Duration::from_secs(30))));
    }

    #[test]
    fn more_polled_keys_than_fit_are_all_keys_and_leave_room_for_announces() {
        let recent = Recent::new(Duration::from_secs(10), Limits { count: 4, bytes: 1000 });
        let (start, hashes) = (Moment::from_nanos(0), ["a", "b", "c"].map(|text| key(text).0));
        recent.remember_polled(&hashes[..2], start);
        assert!(recent.contains(hashes[0], start) && !recent.contains(hashes[2], start));
        recent.remember_polled(&hashes[2..], start);
        assert!(recent.contains(hashes[2], start) && recent.contains(key("d").0, start));
        let (hash, announced) = key("e");
        assert_eq!(recent.remember(hash, &announced, start), Ok(()));
        let later = start.plus(Duration::from_secs(10));
        recent.purge(later);
        assert!(!recent.contains(hashes[2], later));
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
