//! Rows that polls have found: which of them the next poll takes for known, and of which no absence is cached.
//!
//! Polls read the same rows again for as long as these may still become visible. A row that one poll has found and the next one finds again, by key and
//! watermark, may have been deleted and inserted anew in between, and an absence read at that moment. So a key that was found lately counts as within its
//! commit window, whether it is known or not.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use crate::clock::Moment;
use crate::key::KeyHash;
use crate::source::PolledKey;

/// Rows that are remembered; further ones are taken for new by each poll. At 33 bytes each, in a table twice as large at the most.
const REMEMBERED: usize = 1 << 19;
/// Known rows whose absences each poll looks for in the shared cache all the same. Polls list the oldest rows first, so each row is among these before it
/// is no longer listed, unless more than so many leave between two polls.
const LOOKED_AFTER: usize = 1000;

/// The rows of recent polls.
#[derive(Debug)]
pub(crate) struct PolledRows {
    rows: HashMap<KeyHash, Sighting>,
    /// The poll under way, by when it began.
    poll: Moment,
    /// The connection of the shared cache when it began.
    epoch: Option<u64>,
    /// The last complete poll, if the marks that it set are where this poll's would be.
    last: Option<Moment>,
    /// Connection of the last complete poll.
    last_epoch: Option<u64>,
    looked_after: usize,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    /// Of its watermark.
    stamp: u64,
    /// When the poll began that found it last.
    poll: Moment,
}

/// What a row is to the poll that has found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// The last complete poll did not find it so.
    New,
    /// It did.
    Known,
    /// It did, and cached absences of it are looked for again.
    LookedAfter,
}

impl Default for PolledRows {
    fn default() -> Self {
        Self { rows: HashMap::new(), poll: Moment::NEVER, epoch: None, last: None, last_epoch: None, looked_after: 0 }
    }
}

impl PolledRows {
    /// A poll begins. Over another connection than the last complete one the marks of that may be lost: all rows are new then.
    pub(crate) fn begin(&mut self, poll: Moment, epoch: Option<u64>) {
        (self.poll, self.epoch, self.looked_after) = (poll, epoch, 0);
        if self.epoch != self.last_epoch {
            self.last = None;
        }
    }

    /// The poll under way has found a row.
    pub(crate) fn see(&mut self, hash: KeyHash, row: &PolledKey) -> Sight {
        let (poll, last) = (self.poll, self.last);
        let sighting = Sighting { stamp: row.stamp, poll };
        let full = self.rows.len() >= REMEMBERED;
        let before = match self.rows.entry(hash) {
            Entry::Occupied(mut entry) => Some(entry.insert(sighting)),
            Entry::Vacant(_) if full => None,
            Entry::Vacant(entry) => {
                entry.insert(sighting);
                None
            }
        };
        // Some queries list a row twice.
        let known = |before: &Sighting| before.stamp == row.stamp && (Some(before.poll) == last || before.poll == poll);
        if !before.as_ref().is_some_and(known) {
            return Sight::New;
        }
        if self.looked_after == LOOKED_AFTER {
            return Sight::Known;
        }
        self.looked_after += 1;
        Sight::LookedAfter
    }

    /// The poll under way is complete. Rows that none has found for `life` are forgotten.
    pub(crate) fn complete(&mut self, now: Moment, life: Duration) {
        (self.last, self.last_epoch) = (Some(self.poll), self.epoch);
        self.rows.retain(|_, sighting| sighting.poll.plus(life) > now);
    }

    /// Whether a poll has found the key within the last `life`.
    pub(crate) fn contains(&self, hash: KeyHash, now: Moment, life: Duration) -> bool {
        self.rows.get(&hash).is_some_and(|sighting| sighting.poll.plus(life) > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyForm;

    const LIFE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn row(stamp: u64) -> PolledKey {
        PolledKey { key: KeyForm::Text.canonical(b"k").unwrap(), stamp }
    }

    fn hash(key: u128) -> KeyHash {
        KeyHash::from_bits(key)
    }

    #[test]
    fn a_row_is_known_once_a_complete_poll_has_found_it_so() {
        let mut seen = PolledRows::default();
        seen.begin(at(1), Some(1));
        assert_eq!(seen.see(hash(1), &row(7)), Sight::New);
        assert_eq!(seen.see(hash(1), &row(7)), Sight::LookedAfter, "listed twice");
        // That poll failed.
        seen.begin(at(2), Some(1));
        assert_eq!(seen.see(hash(1), &row(7)), Sight::New);
        seen.complete(at(3), LIFE);
        seen.begin(at(4), Some(1));
        assert_eq!(seen.see(hash(1), &row(7)), Sight::LookedAfter);
        seen.complete(at(4), LIFE);
        seen.begin(at(5), Some(1));
        assert_eq!(seen.see(hash(1), &row(8)), Sight::New, "written anew");
        seen.complete(at(5), LIFE);
        // One poll does not find it.
        seen.begin(at(6), Some(1));
        seen.complete(at(6), LIFE);
        seen.begin(at(7), Some(1));
        assert_eq!(seen.see(hash(1), &row(8)), Sight::New, "it may have been deleted meanwhile");
    }

    #[test]
    fn all_rows_are_new_over_another_connection() {
        let mut seen = PolledRows::default();
        for (second, epoch, sight) in
            [(1, 1, Sight::New), (2, 1, Sight::LookedAfter), (3, 2, Sight::New), (4, 2, Sight::LookedAfter)]
        {
            seen.begin(at(second), Some(epoch));
            assert_eq!(seen.see(hash(1), &row(7)), sight, "at {second}");
            seen.complete(at(second), LIFE);
        }
    }

    #[test]
    fn a_key_that_was_found_lately_counts_as_within_its_window() {
        let mut seen = PolledRows::default();
        for second in [1, 8] {
            seen.begin(at(second), None);
            seen.see(hash(1), &row(7));
            seen.complete(at(second), LIFE);
        }
        assert!(seen.contains(hash(1), at(17), LIFE) && !seen.contains(hash(2), at(17), LIFE));
        assert!(!seen.contains(hash(1), at(18), LIFE));
        seen.begin(at(18), None);
        seen.complete(at(18), LIFE);
        assert!(seen.rows.is_empty());
    }

    #[test]
    fn no_more_known_rows_are_looked_after_than_are_allowed() {
        let mut seen = PolledRows::default();
        for second in [1, 2] {
            seen.begin(at(second), None);
            let found = (0..2 * LOOKED_AFTER as u128)
                .map(|key| seen.see(hash(key), &row(7)))
                .filter(|sight| *sight == Sight::LookedAfter)
                .count();
            assert_eq!(found, if second == 1 { 0 } else { LOOKED_AFTER });
            seen.complete(at(second), LIFE);
        }
    }
}
