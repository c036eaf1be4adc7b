//! Rows found by polls: which of them the next poll treats as known, and for which no absence is cached.
//!
//! Polls read the same rows again while older rows may still become visible. A row that two polls find alike, by key
//! and watermark, may have been deleted and inserted again in between, and a lookup may have read its absence at that
//! moment. So a key that was found lately counts as within its commit window, whether it is known or new.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use crate::clock::Moment;
use crate::key::KeyHash;
use crate::source::PolledKey;

/// Rows that are remembered; every poll treats further ones as new. 33 bytes each, in a table of at most twice that
/// size.
const REMEMBERED: usize = 1 << 19;
/// Known rows for which each poll still removes absences from the shared cache. Polls list the oldest rows first, so
/// each row is among these before it is no longer listed, unless more than this many rows leave between two polls.
const RECHECKED: usize = 1000;

/// The rows of recent polls.
#[derive(Debug)]
pub(crate) struct SeenRows {
    rows: HashMap<KeyHash, Sighting>,
    /// When the poll in progress began.
    poll: Moment,
    /// Connection of the shared cache at that moment.
    epoch: Option<u64>,
    /// When the last complete poll began, if its marks are in the same shared cache.
    last: Option<Moment>,
    /// Connection of the last complete poll.
    last_epoch: Option<u64>,
    rechecked: usize,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    /// Fingerprint of its watermark.
    stamp: u64,
    /// When the last poll that found it began.
    poll: Moment,
}

/// How a poll treats a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowStatus {
    /// New or changed since the last complete poll.
    New,
    /// Found unchanged by the last complete poll.
    Known,
    /// Known, and the poll removes cached absences of it once more.
    Rechecked,
}

impl Default for SeenRows {
    fn default() -> Self {
        Self { rows: HashMap::new(), poll: Moment::NEVER, epoch: None, last: None, last_epoch: None, rechecked: 0 }
    }
}

impl SeenRows {
    /// A poll begins. If the connection of the shared cache has changed, earlier marks may be lost: all rows count as
    /// new.
    pub(crate) fn begin(&mut self, poll: Moment, epoch: Option<u64>) {
        (self.poll, self.epoch, self.rechecked) = (poll, epoch, 0);
        if self.epoch != self.last_epoch {
            self.last = None;
        }
    }

    /// Records a row of the poll in progress.
    pub(crate) fn record(&mut self, hash: KeyHash, row: &PolledKey) -> RowStatus {
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
        // A query may list a row twice.
        let known = |before: &Sighting| before.stamp == row.stamp && (Some(before.poll) == last || before.poll == poll);
        if !before.as_ref().is_some_and(known) {
            return RowStatus::New;
        }
        if self.rechecked == RECHECKED {
            return RowStatus::Known;
        }
        self.rechecked += 1;
        RowStatus::Rechecked
    }

    /// The poll in progress is complete. Forgets rows that no poll has found for `life`.
    pub(crate) fn complete(&mut self, now: Moment, life: Duration) {
        (self.last, self.last_epoch) = (Some(self.poll), self.epoch);
        self.rows.retain(|_, sighting| sighting.poll.plus(life) > now);
    }

    /// Returns true if a poll has found the key within the last `life`.
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
        let mut seen = SeenRows::default();
        seen.begin(at(1), Some(1));
        assert_eq!(seen.record(hash(1), &row(7)), RowStatus::New);
        assert_eq!(seen.record(hash(1), &row(7)), RowStatus::Rechecked, "listed twice");
        // That poll failed.
        seen.begin(at(2), Some(1));
        assert_eq!(seen.record(hash(1), &row(7)), RowStatus::New);
        seen.complete(at(3), LIFE);
        seen.begin(at(4), Some(1));
        assert_eq!(seen.record(hash(1), &row(7)), RowStatus::Rechecked);
        seen.complete(at(4), LIFE);
        seen.begin(at(5), Some(1));
        assert_eq!(seen.record(hash(1), &row(8)), RowStatus::New, "written anew");
        seen.complete(at(5), LIFE);
        // One poll does not find it.
        seen.begin(at(6), Some(1));
        seen.complete(at(6), LIFE);
        seen.begin(at(7), Some(1));
        assert_eq!(seen.record(hash(1), &row(8)), RowStatus::New, "it may have been deleted meanwhile");
    }

    #[test]
    fn all_rows_are_new_over_another_connection() {
        let mut seen = SeenRows::default();
        for (second, epoch, status) in
            [(1, 1, RowStatus::New), (2, 1, RowStatus::Rechecked), (3, 2, RowStatus::New), (4, 2, RowStatus::Rechecked)]
        {
            seen.begin(at(second), Some(epoch));
            assert_eq!(seen.record(hash(1), &row(7)), status, "at {second}");
            seen.complete(at(second), LIFE);
        }
    }

    #[test]
    fn a_key_that_was_found_lately_counts_as_within_its_window() {
        let mut seen = SeenRows::default();
        for second in [1, 8] {
            seen.begin(at(second), None);
            seen.record(hash(1), &row(7));
            seen.complete(at(second), LIFE);
        }
        assert!(seen.contains(hash(1), at(17), LIFE) && !seen.contains(hash(2), at(17), LIFE));
        assert!(!seen.contains(hash(1), at(18), LIFE));
        seen.begin(at(18), None);
        seen.complete(at(18), LIFE);
        assert!(seen.rows.is_empty());
    }

    #[test]
    fn a_poll_rechecks_a_bounded_number_of_known_rows() {
        let mut seen = SeenRows::default();
        for second in [1, 2] {
            seen.begin(at(second), None);
            let found = (0..2 * RECHECKED as u128)
                .map(|key| seen.record(hash(key), &row(7)))
                .filter(|status| *status == RowStatus::Rechecked)
                .count();
            assert_eq!(found, if second == 1 { 0 } else { RECHECKED });
            seen.complete(at(second), LIFE);
        }
    }
}
