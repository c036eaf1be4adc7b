//! Keys deleted since the last scan began: they are in the filter by right, and many of them call for a new one.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::key::KeyHash;

/// Hashes that are held; beyond it deletes are only counted.
const LIMIT: usize = 100_000;

/// Deletes since the last scan began.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    hashes: Mutex<HashSet<KeyHash>>,
    count: AtomicU64,
}

impl Deleted {
    pub(super) fn insert(&self, hash: KeyHash) {
        let mut hashes = self.hashes.lock();
        if hashes.contains(&hash) {
            return;
        }
        if hashes.len() < LIMIT {
            hashes.insert(hash);
        }
        // Relaxed: a count that only decides when to build.
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn contains(&self, hash: KeyHash) -> bool {
        self.hashes.lock().contains(&hash)
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// A scan begins: what was deleted before it is not in its filter.
    pub(super) fn take(&self) -> HashSet<KeyHash> {
        self.count.store(0, Ordering::Relaxed);
        std::mem::take(&mut self.hashes.lock())
    }

    /// The scan came to nothing: its deletes still count.
    pub(super) fn put_back(&self, taken: HashSet<KeyHash>) {
        for hash in taken {
            self.insert(hash);
        }
    }
}
