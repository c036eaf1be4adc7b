//! The marks of one stripe of keys, which nothing but time removes.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::cache::Mark;
use crate::key::Key;

/// A mark that was set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marked {
    pub(super) mark: Mark,
    pub(super) token: u64,
    expires: Instant,
}

/// Marks by key, and by expiry so that purging looks only at what has expired.
///
/// Both maps hold the same marks: each mark of `by_key` has the one row `(expires, token)` in `by_expiry`.
#[derive(Debug, Default)]
pub(super) struct Marks {
    by_key: HashMap<Key, Marked>,
    by_expiry: BTreeMap<(Instant, u64), Key>,
}

impl Marks {
    /// The mark of `key`, if it still lives.
    pub(super) fn live(&self, key: &Key, now: Instant) -> Option<Marked> {
        self.by_key.get(key).copied().filter(|marked| marked.expires > now)
    }

    /// Whether there is a mark of `key`, expired or not.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// Sets a mark in place of an earlier one.
    pub(super) fn set(&mut self, key: Key, mark: Mark, token: u64, expires: Instant) {
        self.by_expiry.insert((expires, token), key.clone());
        if let Some(earlier) = self.by_key.insert(key, Marked { mark, token, expires }) {
            self.by_expiry.remove(&(earlier.expires, earlier.token));
        }
    }

    /// Removes up to `limit` expired marks and says how many it were.
    pub(super) fn purge(&mut self, now: Instant, limit: usize) -> usize {
        let mut purged = 0;
        while purged < limit
            && let Some(first) = self.by_expiry.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            self.by_key.remove(&key);
            purged += 1;
        }
        purged
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;

    #[test]
    fn marks_set_again_and_again_leave_one_row_each() {
        let mut marks = Marks::default();
        let start = Instant::now();
        let key = Key::from_canonical(Bytes::from_static(b"1"));
        for token in 0..100 {
            marks.set(key.clone(), Mark::Announced, token, start + Duration::from_secs(token));
        }
        assert_eq!((marks.by_key.len(), marks.by_expiry.len()), (1, 1));
        assert_eq!(marks.live(&key, start).map(|m| m.token), Some(99));
        assert_eq!(marks.purge(start + Duration::from_secs(98), usize::MAX), 0);
        assert_eq!(marks.purge(start + Duration::from_secs(99), usize::MAX), 1);
        assert_eq!((marks.by_key.len(), marks.by_expiry.len()), (0, 0));
    }
}
