//! Where a reader stands in one log, and how it judges what comes next.

use std::collections::HashMap;
use std::time::Duration;

use super::super::entry::{Entry, EntryId, Kind, WriterId};
use super::super::log::Page;
use super::{Loss, Step, millis};
use crate::redis::LogIdentity;

/// Writers whose chains are watched; beyond that they are watched from the present place on.
const WRITERS: usize = 1 << 16;

/// A place in a log up to which everything has been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPlace {
    /// Which log.
    pub identity: LogIdentity,
    /// The last entry there was; all up to it have been applied.
    pub applied: EntryId,
    /// How many entries had ever been made then.
    pub made: u64,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) identity: LogIdentity,
    pub(super) cursor: EntryId,
    /// The last entry that the log has told of.
    pub(super) last: EntryId,
    /// How many entries had ever been made at the cursor, or at `counted` where that is later; `None` where that is not known yet.
    pub(super) made: Option<u64>,
    /// Entries up to this one are in `made`, also those that are read again.
    counted: EntryId,
    /// Counting tells of everything that is missing behind the cursor.
    counting: bool,
    /// The floor when the reading began, which was judged then.
    floor: EntryId,
    /// From here on chains must be whole.
    start: EntryId,
    last_of: HashMap<WriterId, EntryId>,
    /// While what was made since a snapshot is read, as far as that is older than its window, which began here.
    catching_up: Option<EntryId>,
}

impl Place {
    pub(super) fn new(page: &Page, start: EntryId) -> Self {
        Self {
            identity: page.identity,
            cursor: start,
            last: page.last,
            made: None,
            counted: EntryId::ZERO,
            counting: false,
            floor: page.floor,
            start,
            last_of: HashMap::new(),
            catching_up: None,
        }
    }

    /// At the place that a snapshot tells, or at the beginning of the `window` where that is earlier.
    pub(super) fn resumed(from: LogPlace, page: &Page, window: EntryId) -> Self {
        let start = window.min(from.applied);
        Self {
            made: Some(from.made),
            counted: from.applied,
            counting: start == from.applied,
            catching_up: (from.applied < window).then_some(window),
            ..Self::new(page, start)
        }
    }

    pub(super) fn resumable(&self) -> Option<LogPlace> {
        // To the end only: the cursor of a log that is quiet may be a time at which there is no entry.
        let read = self.cursor >= self.counted.max(self.last) && self.catching_up.is_none();
        Some(LogPlace { identity: self.identity, applied: self.last, made: self.made.filter(|_| read)? })
    }

    /// Whether entries behind the cursor may have been trimmed that no count tells of, for want of room or for their age: none does before the first page
    /// that was read to its end, nor of what is read again from before a snapshot's place.
    fn lost_uncounted(&self, page: &Page, retention: Duration) -> bool {
        let oldest = EntryId::at(page.now.saturating_sub(millis(retention)));
        !self.counting && (page.floor > self.cursor.max(self.floor) || oldest > self.cursor)
    }

    pub(super) fn go_on(&mut self, page: Page, retention: Duration) -> Step {
        self.last = page.last;
        let fresh = page.entries.iter().filter(|(id, _)| *id > self.counted).count() as u64;
        let counted = self.made.map(|made| made + fresh);
        // Everything that was made since must have come; counted only where nothing is left unread.
        let short = page.complete && counted.is_some_and(|counted| counted < page.made);
        let mut loss = short.then(|| self.missing(page.floor, Loss::Trimmed));
        loss = worse(loss, self.lost_uncounted(&page, retention).then_some(Loss::Trimmed));
        let mut upto = self.cursor;
        let mut entries = Vec::with_capacity(page.entries.len());
        for (id, entry) in page.entries {
            upto = upto.max(id);
            match entry {
                Some(entry) => {
                    loss = worse(loss, self.watch(&entry));
                    entries.push(entry);
                }
                None => loss = worse(loss, Some(Loss::Unreadable)),
            }
        }
        if page.complete {
            self.catching_up = None;
            self.counting = true;
        }
        let made = if page.complete { Some(page.made) } else { counted };
        Step { loss, entries, complete: page.complete, upto, made }
    }

    /// Looks at an entry's chain and notes its writer.
    fn watch(&mut self, entry: &Entry) -> Option<Loss> {
        if self.last_of.len() >= WRITERS && !self.last_of.contains_key(&entry.writer) {
            self.last_of.clear();
            self.start = entry.id;
        }
        let seen = self.last_of.insert(entry.writer, entry.id).unwrap_or_default().max(self.start);
        match entry.delta.kind {
            Kind::Gap => Some(Loss::Gap),
            Kind::Announce | Kind::Drop => (entry.previous > seen).then(|| self.missing(entry.previous, Loss::Hole)),
        }
    }

    /// What it means that entries up to `upto` are missing: of those that are older than the window only that the snapshot can't be completed.
    fn missing(&self, upto: EntryId, loss: Loss) -> Loss {
        if self.catching_up.is_some_and(|window| upto < window) { Loss::Unresumable } else { loss }
    }
}

/// Of two losses the one that takes longer to mend.
fn worse(one: Option<Loss>, other: Option<Loss>) -> Option<Loss> {
    match one {
        None | Some(Loss::Unresumable) => other.or(one),
        Some(_) => one,
    }
}
