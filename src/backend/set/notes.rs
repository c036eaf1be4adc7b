//! Keys announced and deleted since a scan began.

use std::collections::HashMap;

use crate::clock::Moment;
use crate::key::KeyHash;

/// Maximum of notes: a table of 2¹⁹ places, beyond which it would double.
const LIMIT: usize = (1 << 19) / 8 * 7;
/// Maximum of deletes: a lost delete shows a removed row, a lost announce hides an existing one.
const REMOVED_LIMIT: usize = LIMIT / 2;

/// Announces and deletes that a scan may not have seen.
#[derive(Debug, Default)]
pub(super) struct Notes {
    notes: HashMap<KeyHash, Note>,
    removed: usize,
    /// Announces were lost; the window of the last of them closes then.
    lost_until: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// The key is a member; its commit window closes then.
    Announced(Moment),
    /// The row was deleted.
    Removed,
}

impl Notes {
    /// Bytes of a full table: key, note and one byte of the table's own for each place.
    pub(super) const BYTES: u64 = (1 << 19) * (size_of::<(KeyHash, Note)>() as u64 + 1);

    pub(super) fn get(&self, hash: KeyHash) -> Option<Note> {
        self.notes.get(&hash).copied()
    }

    /// An announce whose window closes at `until`. It replaces any earlier note of the key.
    pub(super) fn announce(&mut self, hash: KeyHash, until: Moment) {
        let full = self.notes.len() >= LIMIT;
        match self.notes.get_mut(&hash) {
            // Not by `insert`, which doubles a full table before it finds that the key is there.
            Some(note) => {
                self.removed -= usize::from(*note == Note::Removed);
                *note = Note::Announced(until);
            }
            None if full => self.lost_until = self.lost_until.max(Some(until)),
            None => {
                self.notes.insert(hash, Note::Announced(until));
            }
        }
    }

    /// A delete. Within the key's window it has no effect: it may belong to the previous row, and arrive between the
    /// announce of the next one and its commit. The key then stays a member until the next scan.
    pub(super) fn remove(&mut self, hash: KeyHash, now: Moment) {
        let full = self.notes.len() >= LIMIT;
        match self.notes.get_mut(&hash) {
            _ if self.removed >= REMOVED_LIMIT => return,
            Some(Note::Announced(until)) if *until > now => return,
            Some(Note::Removed) => return,
            Some(note) => *note = Note::Removed,
            None if full => return,
            None => {
                self.notes.insert(hash, Note::Removed);
            }
        }
        self.removed += 1;
    }

    /// The notes that a scan which begins at `began` may miss: announces with an open window. It sees every row
    /// announced before, and knows deletes better.
    pub(super) fn unseen_by_scan(&self, began: Moment) -> Self {
        let open = |note: &Note| matches!(note, Note::Announced(until) if *until > began);
        Self {
            notes: self.notes.iter().filter(|(_, note)| open(note)).map(|(hash, note)| (*hash, *note)).collect(),
            removed: 0,
            lost_until: self.lost_until.filter(|until| *until > began),
        }
    }

    /// When a scan must begin to see everything that is not held here; `None` if nothing is lost.
    pub(super) const fn lost_until(&self) -> Option<Moment> {
        self.lost_until
    }

    /// A new scan is better than a full table.
    pub(super) fn is_crowded(&self) -> bool {
        self.notes.len() >= LIMIT / 4 * 3
    }

    pub(super) fn announced(&self) -> usize {
        self.notes.len() - self.removed
    }

    pub(super) const fn removed(&self) -> usize {
        self.removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyForm, KeySecret};

    fn hash(n: usize) -> KeyHash {
        KeySecret::new([7; KeySecret::LEN]).hash(&KeyForm::Integer.canonical(n.to_string().as_bytes()).unwrap())
    }

    fn at(second: u64) -> Moment {
        Moment::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn the_later_of_announce_and_delete_counts() {
        let mut notes = Notes::default();
        notes.remove(hash(1), at(1));
        assert_eq!(notes.get(hash(1)), Some(Note::Removed));
        notes.announce(hash(1), at(40));
        assert_eq!((notes.get(hash(1)), notes.removed()), (Some(Note::Announced(at(40))), 0));
        notes.remove(hash(1), at(40));
        assert_eq!((notes.get(hash(1)), notes.removed()), (Some(Note::Removed), 1));
    }

    #[test]
    fn a_delete_within_the_window_hides_nothing() {
        let mut notes = Notes::default();
        notes.announce(hash(1), at(40));
        notes.remove(hash(1), at(39));
        assert_eq!(notes.get(hash(1)), Some(Note::Announced(at(40))), "the row may be committed after this delete");
    }

    #[test]
    fn a_scan_takes_over_the_open_windows_and_nothing_else() {
        let mut notes = Notes::default();
        notes.announce(hash(1), at(40));
        notes.announce(hash(2), at(41));
        notes.remove(hash(3), at(1));
        let next = notes.unseen_by_scan(at(40));
        assert_eq!(
            (next.get(hash(1)), next.get(hash(2)), next.get(hash(3))),
            (None, Some(Note::Announced(at(41))), None)
        );
        assert_eq!((next.announced(), next.removed()), (1, 0));
    }

    #[test]
    fn it_is_bounded_and_knows_of_what_it_lost_until_a_scan_sees_it() {
        let mut notes = Notes::default();
        for n in 0..LIMIT + 10 {
            notes.remove(hash(n), at(1));
        }
        assert_eq!(notes.removed(), REMOVED_LIMIT, "deletes leave room for announces");
        for n in REMOVED_LIMIT..LIMIT {
            notes.announce(hash(n), at(40));
        }
        assert!(notes.is_crowded());
        assert_eq!(notes.lost_until(), None);
        let places = notes.notes.capacity();
        notes.announce(hash(LIMIT), at(41));
        notes.announce(hash(LIMIT - 1), at(42));
        assert_eq!((notes.lost_until(), notes.notes.capacity()), (Some(at(41)), places));
        assert!(places as u64 * (size_of::<(KeyHash, Note)>() as u64 + 1) <= Notes::BYTES);
        assert_eq!(notes.unseen_by_scan(at(40)).lost_until(), Some(at(41)), "its row may come after this scan");
        assert_eq!(notes.unseen_by_scan(at(41)).lost_until(), None);
    }
}
