//! The marks of one stripe of keys. Only time removes them.
//!
//! A mark is identified by its key's hash, not by the key. If two keys share a hash, a mark of one covers the other:
//! this costs a call of the backend and is never wrong. To construct such keys a client needs this process's random
//! seed.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use crate::cache::Mark;
use crate::clock::Moment;

/// Smaller tables are not shrunk.
const LEAST_PLACES: usize = 64;

/// A stored mark.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marked {
    pub(super) mark: Mark,
    pub(super) token: u64,
}

/// A mark in 16 bytes.
#[derive(Debug, Clone, Copy)]
struct PackedMark {
    expires: Moment,
    /// Its lowest bit says which mark it is.
    token: u64,
}

/// Marks by hash, and by expiry so that purging looks only at what has expired.
///
/// Both hold the same marks: each mark of `by_hash` has the one row `(expires, hash)` in `by_expiry`.
#[derive(Debug, Default)]
pub(super) struct Marks {
    by_hash: HashMap<u64, PackedMark, BuildHasherDefault<MarkHasher>>,
    by_expiry: BTreeSet<(Moment, u64)>,
}

impl Marks {
    /// The mark of a key, if it has not expired.
    pub(super) fn live(&self, hash: u64, now: Moment) -> Option<Marked> {
        self.by_hash.get(&hash).filter(|packed| packed.expires > now).map(|packed| packed.marked())
    }

    /// Whether there is a mark of a key, expired or not.
    pub(super) fn contains(&self, hash: u64) -> bool {
        self.by_hash.contains_key(&hash)
    }

    /// Stores a mark in place of an earlier one.
    pub(super) fn set(&mut self, hash: u64, marked: Marked, expires: Moment) {
        if let Some(earlier) = self.by_hash.insert(hash, PackedMark::new(marked, expires)) {
            self.by_expiry.remove(&(earlier.expires, hash));
        }
        self.by_expiry.insert((expires, hash));
    }

    /// Removes up to `limit` expired marks, and shrinks the table after many. Returns how many it removed.
    pub(super) fn purge(&mut self, now: Moment, limit: usize) -> usize {
        let mut purged = 0;
        while purged < limit
            && let Some(&(expires, hash)) = self.by_expiry.first()
            && expires <= now
        {
            self.by_expiry.pop_first();
            self.by_hash.remove(&hash);
            purged += 1;
        }
        // Room for a quarter more: the next marks must not make it grow at once.
        if self.by_hash.capacity() / 4 > self.by_hash.len().max(LEAST_PLACES) {
            self.by_hash.shrink_to(self.by_hash.len() * 2);
        }
        purged
    }
}

impl PackedMark {
    fn new(marked: Marked, expires: Moment) -> Self {
        Self { expires, token: marked.token << 1 | u64::from(marked.mark == Mark::Dropped) }
    }

    fn marked(self) -> Marked {
        Marked { mark: if self.token & 1 == 1 { Mark::Dropped } else { Mark::Announced }, token: self.token >> 1 }
    }
}

/// Hashes of keys are used as they are.
#[derive(Debug, Default)]
struct MarkHasher(u64);

impl Hasher for MarkHasher {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(1).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn marks_set_again_and_again_leave_one_row_each() {
        let mut marks = Marks::default();
        for token in 0..100 {
            let mark = if token % 2 == 0 { Mark::Announced } else { Mark::Dropped };
            marks.set(1, Marked { mark, token }, at(token));
            assert_eq!(
                marks.live(1, at(0)).filter(|_| token > 0).map(|m| (m.mark, m.token)),
                (token > 0).then_some((mark, token))
            );
        }
        assert_eq!((marks.by_hash.len(), marks.by_expiry.len()), (1, 1));
        assert_eq!(marks.purge(at(98), usize::MAX), 0);
        assert_eq!(marks.purge(at(99), usize::MAX), 1);
        assert_eq!((marks.by_hash.len(), marks.by_expiry.len()), (0, 0));
    }

    #[test]
    fn expired_marks_give_their_places_back() {
        let mut marks = Marks::default();
        for n in 0..100_000 {
            marks.set(n << 40 | n, Marked { mark: Mark::Announced, token: n }, at(1));
        }
        let full = marks.by_hash.capacity();
        while marks.purge(at(1), 8) > 0 {}
        assert!(marks.by_hash.capacity() < full / 100, "{} of {full} places", marks.by_hash.capacity());
    }
}
