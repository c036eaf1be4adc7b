//! A reader's position in one log, and how it evaluates the next entries.

use std::collections::HashMap;
use std::time::Duration;

use super::super::entry::{EntryId, LogEntry, LogEntryKind};
use super::super::log::LogPage;
use super::super::writer::WriterId;
use super::loss::{Loss, PageOutcome, millis};
use super::windows::Windows;
use crate::redis::LogIdentity;

/// Writers whose chains are checked. Further ones are checked from the present position on.
const WRITERS: usize = 1 << 16;

/// A place in a log up to which everything has been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPlace {
    /// Which log.
    pub identity: LogIdentity,
    /// The last applied entry; all before it have been applied too.
    pub applied: EntryId,
    /// How many entries had ever been appended then.
    pub made: u64,
}

#[derive(Debug)]
pub(super) struct LogPosition {
    pub(super) identity: LogIdentity,
    pub(super) cursor: EntryId,
    /// The last entry that the log has reported.
    pub(super) last: EntryId,
    /// How many entries had ever been appended at the cursor, or at `counted` if that is later; `None` while that is
    /// unknown.
    pub(super) made: Option<u64>,
    /// `made` includes entries up to this one, also those that are read again.
    counted: EntryId,
    /// The count shows everything that is missing behind the cursor.
    counting: bool,
    /// The floor of the last page, which was evaluated then.
    floor: EntryId,
    /// Everything since then was read, or is being read.
    reach: EntryId,
    /// Chains must be complete from here on.
    start: EntryId,
    /// Set where it continues after a snapshot, whose process had judged the log before.
    is_resumed: bool,
    last_of: HashMap<WriterId, EntryId>,
    /// Set while entries since a snapshot are read that are older than its window, which began here.
    catching_up: Option<EntryId>,
}

impl LogPosition {
    pub(super) fn new(page: &LogPage, start: EntryId) -> Self {
        Self {
            identity: page.identity,
            cursor: start,
            last: page.last,
            made: None,
            counted: EntryId::ZERO,
            counting: false,
            floor: page.floor,
            reach: start,
            start,
            is_resumed: false,
            last_of: HashMap::new(),
            catching_up: None,
        }
    }

    /// At the snapshot's place, or at the beginning of the `window` if that is earlier.
    pub(super) fn resumed(from: LogPlace, page: &LogPage, window: EntryId) -> Self {
        let start = window.min(from.applied);
        Self {
            made: Some(from.made),
            counted: from.applied,
            counting: start == from.applied,
            catching_up: (from.applied < window).then_some(window),
            is_resumed: true,
            ..Self::new(page, start)
        }
    }

    pub(super) fn resumable(&self) -> Option<LogPlace> {
        // Only to the end: the cursor of a quiet log may be a time without an entry.
        let read = self.cursor >= self.counted.max(self.last) && self.catching_up.is_none();
        Some(LogPlace { identity: self.identity, applied: self.last, made: self.made.filter(|_| read)? })
    }

    /// Whether entries behind the cursor may have been trimmed without a count that shows it. No count exists before
    /// the first page that was read to its end, nor for entries from before a snapshot's place; and a log that never
    /// had an entry counts as one that was deleted.
    fn lost_uncounted(&self, page: &LogPage, retention: Duration) -> bool {
        let oldest = EntryId::at(page.now.saturating_sub(millis(retention)));
        let is_above = page.floor > self.cursor.max(self.floor);
        let never_counted = self.made == Some(0);
        (!self.counting && (is_above || oldest > self.cursor)) || (never_counted && is_above)
    }

    /// Evaluates the next page.
    pub(super) fn go_on(&mut self, page: LogPage, retention: Duration, windows: Windows) -> PageOutcome {
        self.last = page.last;
        let from = windows.start(page.now);
        let unproven = if self.is_resumed { None } else { windows.unproven(&page) };
        let fresh = page.entries.iter().filter(|(id, _)| *id > self.counted).count() as u64;
        let counted = self.made.map(|made| made + fresh);
        // All entries since then must have arrived, and no others: a log that was deleted and written again has fewer.
        // Counted only when nothing is left unread.
        let short = page.complete && counted.is_some_and(|counted| counted != page.made);
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
        self.floor = page.floor;
        let made = if page.complete { Some(page.made) } else { counted };
        let outcome = PageOutcome { loss, entries, complete: page.complete, upto, made };
        if !page.complete {
            return outcome;
        }
        self.catching_up = None;
        self.counting = true;
        if from < self.reach { self.reach_back(from, outcome, unproven) } else { outcome }
    }

    /// A longer window has become known since reading began: what was announced before that may be within it. Reads
    /// these entries, and once more those behind them, before anything counts as read. `unproven`: what the log can't
    /// show of the longer window.
    fn reach_back(&mut self, from: EntryId, read: PageOutcome, unproven: Option<Loss>) -> PageOutcome {
        self.counted = self.counted.max(read.upto);
        self.counting = false;
        (self.reach, self.start) = (from, from);
        self.last_of.clear();
        let lost = (self.floor > from).then_some(Loss::Trimmed).or(unproven);
        let loss = worse(read.loss, lost);
        PageOutcome { loss, complete: false, upto: from, ..read }
    }

    /// Checks an entry's chain and records its writer.
    fn watch(&mut self, entry: &LogEntry) -> Option<Loss> {
        if self.last_of.len() >= WRITERS && !self.last_of.contains_key(&entry.writer) {
            self.last_of.clear();
            self.start = entry.id;
        }
        let seen = self.last_of.insert(entry.writer, entry.id).unwrap_or_default().max(self.start);
        match entry.delta.kind {
            LogEntryKind::Gap => Some(Loss::Gap),
            LogEntryKind::Announce | LogEntryKind::Drop => {
                (entry.previous > seen).then(|| self.missing(entry.previous, Loss::Hole))
            }
        }
    }

    /// The loss if entries up to `upto` are missing: for entries older than the window, only that the snapshot can't be
    /// completed.
    fn missing(&self, upto: EntryId, loss: Loss) -> Loss {
        if self.catching_up.is_some_and(|window| upto < window) { Loss::Unresumable } else { loss }
    }
}

/// Of two losses, the one that takes longer to repair.
fn worse(one: Option<Loss>, other: Option<Loss>) -> Option<Loss> {
    let rank = |loss: Option<Loss>| match loss {
        None => 0,
        Some(Loss::Unresumable) => 1,
        Some(Loss::Young { .. }) => 2,
        Some(_) => 3,
    };
    if rank(one) >= rank(other) { one } else { other }
}
