//! Keys deleted since the active filter's scan: they are in it legitimately, and many of them call for a new one.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::key::KeyHash;

/// Hashes that are held; beyond it deletes are only counted.
const LIMIT: usize = 100_000;

/// Deletes after the active filter's scan.
#[derive(Debug, Default)]
pub(crate) struct PendingDeletes(Mutex<Deletes>);

#[derive(Debug, Default)]
struct Deletes {
    /// PendingDeletes since the last scan began.
    since: Batch,
    /// Deletes before the running scan began: not in its candidate, but still in the active filter.
    before: Batch,
}

#[derive(Debug, Default)]
struct Batch {
    hashes: HashSet<KeyHash>,
    count: u64,
}

impl PendingDeletes {
    pub(crate) fn insert(&self, hash: KeyHash) {
        let mut inner = self.0.lock();
        if inner.since.hashes.contains(&hash) {
            return;
        }
        inner.since.count += 1;
        if inner.since.hashes.len() < LIMIT {
            inner.since.hashes.insert(hash);
        }
    }

    pub(crate) fn contains(&self, hash: KeyHash) -> bool {
        let inner = self.0.lock();
        inner.since.hashes.contains(&hash) || inner.before.hashes.contains(&hash)
    }

    /// Deletes that neither the active filter's scan nor a running one has seen.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().since.count
    }

    /// A scan begins: what has been deleted is not in its candidate.
    pub(crate) fn scan_began(&self) {
        let mut inner = self.0.lock();
        inner.before = std::mem::take(&mut inner.since);
    }

    /// The scan's candidate is active.
    pub(crate) fn swapped(&self) {
        self.0.lock().before = Batch::default();
    }

    /// The scan came to nothing: what was deleted before it counts again.
    pub(crate) fn scan_failed(&self) {
        let mut inner = self.0.lock();
        let before = std::mem::take(&mut inner.before);
        inner.since.count += before.count;
        let room = LIMIT.saturating_sub(inner.since.hashes.len());
        inner.since.hashes.extend(before.hashes.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyForm, KeySecret};

    #[test]
    fn a_deleted_key_is_known_until_a_filter_without_it_is_in_force() {
        let secret = KeySecret::new([7; KeySecret::LEN]);
        let hash = |text: &str| secret.hash(&KeyForm::Text.canonical(text.as_bytes()).unwrap());
        let deleted = PendingDeletes::default();
        deleted.insert(hash("a"));
        deleted.insert(hash("a"));
        assert_eq!(deleted.count(), 1);
        deleted.scan_began();
        assert!(deleted.contains(hash("a")), "the active filter still holds it");
        assert_eq!(deleted.count(), 0);
        deleted.insert(hash("b"));
        deleted.scan_failed();
        assert_eq!(deleted.count(), 2);
        deleted.scan_began();
        deleted.insert(hash("c"));
        deleted.swapped();
        assert!(!deleted.contains(hash("a")) && deleted.contains(hash("c")));
    }
}
