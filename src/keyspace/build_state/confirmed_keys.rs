//! Keys that must be in the next filter: those the backend answered lately and nobody deleted.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::{Key, KeyHash};

/// The latest keys that the backend answered with a row, up to a bound.
#[derive(Debug)]
pub(crate) struct ConfirmedKeys {
    limit: usize,
    inner: Mutex<Confirmed>,
}

#[derive(Debug, Default)]
struct Confirmed {
    keys: HashMap<KeyHash, (Moment, Key)>,
    order: VecDeque<(Moment, KeyHash)>,
}

impl ConfirmedKeys {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, inner: Mutex::default() }
    }

    /// The backend has the row.
    pub(crate) fn found(&self, hash: KeyHash, key: &Key, now: Moment) {
        let mut inner = self.inner.lock();
        if inner.keys.contains_key(&hash) {
            // The first sighting stays: an older one makes the check apply to earlier scans.
            return;
        }
        inner.keys.insert(hash, (now, key.clone()));
        inner.order.push_back((now, hash));
        // Keys that were deleted leave their place in `order` behind, so that is what bounds both.
        while inner.order.len() > self.limit {
            let Some((at, oldest)) = inner.order.pop_front() else { break };
            if inner.keys.get(&oldest).is_some_and(|(since, _)| *since == at) {
                inner.keys.remove(&oldest);
            }
        }
    }

    /// The row is gone: no filter has to hold the key.
    pub(crate) fn gone(&self, hash: KeyHash) {
        self.inner.lock().keys.remove(&hash);
    }

    /// The keys are hashed otherwise from now on.
    pub(crate) fn rehash(&self, hash: impl Fn(&Key) -> KeyHash) {
        let mut inner = self.inner.lock();
        let Confirmed { mut keys, order } = std::mem::take(&mut *inner);
        for (at, former) in order {
            if keys.get(&former).is_some_and(|(since, _)| *since == at)
                && let Some((_, key)) = keys.remove(&former)
            {
                let hash = hash(&key);
                inner.order.push_back((at, hash));
                inner.keys.insert(hash, (at, key));
            }
        }
    }

    /// Returns true if the row was there and has not been deleted since.
    pub(crate) fn contains(&self, hash: KeyHash) -> bool {
        self.inner.lock().keys.contains_key(&hash)
    }

    /// The latest keys, up to a bound.
    pub(crate) fn latest(&self, count: usize) -> Vec<Key> {
        let inner = self.inner.lock();
        inner
            .order
            .iter()
            .rev()
            .filter_map(|(_, hash)| inner.keys.get(hash))
            .take(count)
            .map(|(_, key)| key.clone())
            .collect()
    }

    /// Keys that were seen before `moment`.
    pub(crate) fn before(&self, moment: Moment) -> Vec<Key> {
        let inner = self.inner.lock();
        inner.keys.iter().filter(|(_, (at, _))| *at < moment).map(|(_, (_, key))| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyForm, KeySecret};

    fn key(n: usize) -> (KeyHash, Key) {
        let key = KeyForm::Integer.canonical(n.to_string().as_bytes()).unwrap();
        (KeySecret::new([7; KeySecret::LEN]).hash(&key), key)
    }

    #[test]
    fn it_keeps_the_latest_and_forgets_the_deleted() {
        let proven = ConfirmedKeys::new(3);
        for n in 0..5 {
            let (hash, key) = key(n);
            proven.found(hash, &key, Moment::from_nanos(n as u64));
        }
        let (deleted, _) = key(4);
        proven.gone(deleted);
        let mut left: Vec<String> =
            proven.before(Moment::FOREVER).iter().map(|k| k.as_str().unwrap().to_owned()).collect();
        left.sort();
        assert_eq!(left, ["2", "3"]);
        assert_eq!(proven.before(Moment::from_nanos(3)).len(), 1);
    }
}
