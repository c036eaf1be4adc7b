//! Evaluates pages of a log: whether anything was lost, and where to continue.
//!
//! Knows neither a clock nor a connection: the time is the server's, from each page.

use std::time::Duration;

use self::place::LogPosition;
use self::windows::Windows;
use super::entry::EntryId;
use super::log::LogPage;
use crate::redis::LogIdentity;

mod loss;
mod place;
mod windows;

pub use self::loss::{Loss, PageOutcome};
pub use self::place::LogPlace;

/// A reader's place in the log, and the last entry of each writer.
#[derive(Debug)]
pub struct Follower {
    windows: Windows,
    /// The log may have trimmed entries that are older than this.
    retention: Duration,
    place: Option<LogPosition>,
    /// Up to where a snapshot has the log, until the first page is evaluated.
    resume: Option<LogPlace>,
}

impl Follower {
    /// Has read nothing yet. `memory` is how long announces are remembered, `window` the commit window.
    #[must_use]
    pub const fn new(memory: Duration, window: Duration) -> Self {
        Self { windows: Windows { memory, window }, retention: Duration::MAX, place: None, resume: None }
    }

    /// From now on announces of age `memory` are read again, and losses last for `window`.
    pub const fn set_windows(&mut self, memory: Duration, window: Duration) {
        self.windows = Windows { memory, window };
    }

    /// For a log that trims entries older than this.
    #[must_use]
    pub fn in_log_of(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    /// Continues a reader that had applied everything up to `place`, in an earlier process: no entry since then may be
    /// missing.
    #[must_use]
    pub fn resuming(self, place: Option<LogPlace>) -> Self {
        Self { resume: place, ..self }
    }

    /// The entry to read behind next. Before the first page: the end of every log, because that page only says where to
    /// begin.
    #[must_use]
    pub fn after(&self) -> EntryId {
        self.place.as_ref().map_or(EntryId::at(u64::MAX), |place| place.cursor)
    }

    /// The log that is followed, and the place up to which it was applied.
    #[must_use]
    pub fn place(&self) -> Option<(LogIdentity, EntryId)> {
        self.place.as_ref().map(|place| (place.identity, place.cursor))
    }

    /// Where a later process may continue; `None` while that is unknown.
    #[must_use]
    pub fn resumable(&self) -> Option<LogPlace> {
        self.place.as_ref()?.resumable()
    }

    /// Evaluates a page that was read behind [`Follower::after`].
    pub fn evaluate(&mut self, page: LogPage) -> PageOutcome {
        let loss = match &mut self.place {
            None => match self.resume.take() {
                Some(from) => return self.resume_at(from, &page),
                None => None,
            },
            Some(place) if place.identity != page.identity => Some(Loss::Replaced),
            Some(place) if page.last < place.last || place.made.is_some_and(|made| page.made < made) => {
                Some(Loss::Shrunk)
            }
            Some(place) => return place.go_on(page, self.retention, self.windows),
        };
        match (loss, self.begin(&page)) {
            // Of another log too: what is gone of it, nobody announces again.
            (Some(Loss::Replaced), Some(Loss::Trimmed)) => self.begun(Some(Loss::Trimmed)),
            (loss, begun) => self.begun(loss.or(begun)),
        }
    }

    /// A page that only says where to begin.
    fn begun(&self, loss: Option<Loss>) -> PageOutcome {
        let made = self.place.as_ref().and_then(|place| place.made);
        PageOutcome { loss, entries: Vec::new(), complete: false, upto: self.after(), made }
    }

    /// Continues from an earlier process's place. Its filter lacks everything since then: every later entry must
    /// arrive, however old it is. The memory of recent announces is empty, so those with an open window are read again
    /// too.
    fn resume_at(&mut self, from: LogPlace, page: &LogPage) -> PageOutcome {
        if page.identity != from.identity {
            let begun = self.begin(page);
            return self.begun(Some(begun.unwrap_or(Loss::Unresumable)));
        }
        if page.last < from.applied || page.made < from.made {
            // The same log: what is gone of it may be within the window.
            self.begin(page);
            return self.begun(Some(Loss::Shrunk));
        }
        let window = self.windows.start(page.now);
        self.place = Some(LogPosition::resumed(from, page, window));
        // The count shows what was trimmed behind its place, but where it counted none. What was trimmed before it
        // matters only within the window.
        let is_uncounted = window < from.applied || from.made == 0;
        let evictable = page.is_evictable.then_some(Loss::Evictable);
        let loss = match trimmed_since(window, page).or(evictable) {
            Some(loss) if is_uncounted => Some(loss),
            _ if from.made == 0 && page.floor > from.applied => Some(Loss::Unresumable),
            _ => None,
        };
        self.begun(loss)
    }

    /// The entries of a page have taken effect.
    pub fn applied(&mut self, step: &PageOutcome) {
        if let Some(place) = &mut self.place {
            place.cursor = step.upto;
            place.made = step.made;
        }
    }

    /// Starts so far back that every announce with an open window is read again.
    fn begin(&mut self, page: &LogPage) -> Option<Loss> {
        let start = self.windows.start(page.now);
        self.place = Some(LogPosition::new(page, start));
        trimmed_since(start, page).or(self.windows.unproven(page))
    }
}

/// Entries since `start` were trimmed. Those that the log trims by age are older than any window.
fn trimmed_since(start: EntryId, page: &LogPage) -> Option<Loss> {
    (page.floor > start).then_some(Loss::Trimmed)
}

#[cfg(test)]
mod longer_windows;
#[cfg(test)]
mod resuming;

#[cfg(test)]
mod tests {
    use super::super::entry::{Delta, LogEntry, LogEntryKind};
    use super::super::writer::WriterId;
    use super::*;
    use crate::key::KeyHash;

    const WINDOW: Duration = Duration::from_millis(1_000);
    const NOW: u64 = 100_000;

    fn id(millis: u64) -> EntryId {
        EntryId::at(millis)
    }

    fn entry(at: u64, writer: u64, previous: u64) -> LogEntry {
        let delta = Delta {
            kind: LogEntryKind::Announce,
            secret: 0,
            terms: None,
            hashes: vec![KeyHash::from_bits(u128::from(at))],
        };
        LogEntry { id: id(at), writer: WriterId(writer), previous: id(previous), delta }
    }

    /// A log whose pages are read one after another, each complete.
    struct Log {
        follower: Follower,
        made: u64,
        last: EntryId,
    }

    impl Log {
        /// The next page: these entries are new, and `gone` more that can't be read any more.
        fn page(&mut self, entries: &[LogEntry], gone: u64) -> LogPage {
            self.made += entries.len() as u64 + gone;
            self.last = entries.last().map_or(self.last, |e| e.id);
            let entries = entries.iter().map(|e| (e.id, Some(e.clone()))).collect();
            LogPage {
                identity: LogIdentity([1; 16]),
                born: 10,
                now: NOW,
                last: self.last,
                made: self.made,
                floor: id(0),
                entries,
                complete: true,
                switch: None,
                peers: Vec::new(),
                roster: None,
                is_registered: true,
                is_evictable: false,
            }
        }

        fn take(&mut self, page: LogPage) -> PageOutcome {
            let step = self.follower.evaluate(page);
            self.follower.applied(&step);
            step
        }

        fn read(&mut self, entries: &[LogEntry]) -> PageOutcome {
            let page = self.page(entries, 0);
            self.take(page)
        }
    }

    /// Follows a log with 40 old entries.
    fn begun() -> Log {
        let mut log = Log { follower: Follower::new(WINDOW, WINDOW), made: 40, last: id(50) };
        assert_eq!(log.read(&[]).loss, None);
        assert_eq!(log.follower.after(), id(NOW - 1_000), "announces whose window is open are read again");
        log
    }

    #[test]
    fn whole_chains_are_followed_and_the_cursor_moves_only_when_applied() {
        let mut log = begun();
        let page = log.page(&[entry(NOW - 10, 7, 5), entry(NOW - 9, 8, 0), entry(NOW - 8, 7, NOW - 10)], 0);
        let first = log.follower.evaluate(page);
        assert_eq!((first.loss, first.entries.len(), first.complete), (None, 3, true));
        assert_eq!(log.follower.after(), id(NOW - 1_000));
        log.follower.applied(&first);
        assert_eq!(log.follower.place(), Some((LogIdentity([1; 16]), id(NOW - 8))));
        assert_eq!(log.read(&[entry(NOW, 8, NOW - 9)]).loss, None);
        assert_eq!(log.read(&[]).loss, None);
    }

    #[test]
    fn an_entry_of_unknown_fate_breaks_no_chain() {
        let mut log = begun();
        // The second append timed out, but arrived.
        let step = log.read(&[entry(NOW - 9, 7, 0), entry(NOW - 8, 7, NOW - 9), entry(NOW - 7, 7, NOW - 9)]);
        assert_eq!(step.loss, None);
    }

    #[test]
    fn a_missing_entry_is_noticed_by_the_next_one_of_its_writer() {
        let mut log = begun();
        log.read(&[entry(NOW - 9, 7, 0)]);
        assert_eq!(log.read(&[entry(NOW - 5, 7, NOW - 7)]).loss, Some(Loss::Hole));
        assert_eq!(log.read(&[entry(NOW - 4, 7, NOW - 5)]).loss, None, "told once");
        assert_eq!(log.read(&[entry(NOW - 3, 9, NOW - 6)]).loss, Some(Loss::Hole), "also of a writer never seen");
    }

    #[test]
    fn an_entry_that_was_made_and_can_not_be_read_is_a_loss() {
        let mut log = begun();
        log.read(&[entry(NOW - 9, 7, 0)]);
        let page = log.page(&[], 1);
        assert_eq!(log.take(page).loss, Some(Loss::Trimmed));
        assert_eq!(log.read(&[]).loss, None, "told once");
        // Also as one among many that take several reads.
        let part = LogPage { complete: false, ..log.page(&[entry(NOW - 8, 8, 0)], 0) };
        assert_eq!(log.take(part).loss, None);
        let rest = log.page(&[entry(NOW - 7, 8, NOW - 8)], 1);
        assert_eq!(log.take(rest).loss, Some(Loss::Trimmed));
    }

    #[test]
    fn a_log_that_was_deleted_and_written_again_is_a_loss() {
        let mut log = begun();
        log.read(&[entry(NOW - 30, 7, 0)]);
        // As many entries as before, or more: only their count tells.
        log.made = 40;
        assert_eq!(log.read(&[entry(NOW - 20, 7, 0), entry(NOW - 10, 7, NOW - 20)]).loss, Some(Loss::Trimmed));
    }

    #[test]
    fn what_was_trimmed_for_want_of_room_before_the_start_is_a_loss() {
        let mut log = Log { follower: Follower::new(WINDOW, WINDOW), made: 40, last: id(NOW - 5) };
        let page = LogPage { floor: id(NOW - 500), ..log.page(&[], 0) };
        assert_eq!(log.take(page).loss, Some(Loss::Trimmed));
        let mut log = Log { follower: Follower::new(WINDOW, WINDOW), made: 40, last: id(NOW - 5) };
        let page = LogPage { floor: id(NOW - 2_000), ..log.page(&[], 0) };
        assert_eq!(log.take(page).loss, None);
    }

    #[test]
    fn what_is_trimmed_between_the_first_page_and_the_second_is_a_loss() {
        let second = |now: u64, floor: u64| {
            let mut log = begun();
            log.follower = log.follower.in_log_of(WINDOW * 2);
            // Its writer is gone: no chain shows what it appended, and that can't be read any more.
            let page = LogPage { now, floor: id(floor), ..log.page(&[], 1) };
            let later = LogPage { now: now + 10_000, ..page.clone() };
            [log.take(page).loss, log.take(later).loss]
        };
        assert_eq!(second(NOW, NOW - 1_000), [None, None], "what was trimmed is older than every open window");
        assert_eq!(second(NOW, NOW - 5), [Some(Loss::Trimmed), None], "for want of room");
        assert_eq!(second(NOW + 1_000, 0), [None, None]);
        assert_eq!(second(NOW + 1_001, 0), [Some(Loss::Trimmed), None], "for its age");
        // Also if one read does not bring everything.
        let mut log = begun();
        let part = LogPage { complete: false, ..log.page(&[entry(NOW - 900, 7, 0)], 0) };
        assert_eq!(log.take(part).loss, None);
        let rest = LogPage { floor: id(NOW - 300), ..log.page(&[entry(NOW - 300, 8, 0)], 4) };
        assert_eq!(log.take(rest).loss, Some(Loss::Trimmed));
    }

    #[test]
    fn another_log_and_a_shorter_one_begin_anew() {
        let mut log = begun();
        log.read(&[entry(NOW - 9, 7, 0)]);
        let other = LogPage { identity: LogIdentity([2; 16]), ..log.page(&[entry(NOW - 8, 7, 0)], 0) };
        let step = log.take(other);
        assert_eq!((step.loss, step.entries.len(), step.complete), (Some(Loss::Replaced), 0, false));
        assert_eq!(log.follower.after(), id(NOW - 1_000));
        for shorter in
            [|page: LogPage| LogPage { last: id(NOW - 30), ..page }, |page: LogPage| LogPage { made: 1, ..page }]
        {
            let mut log = begun();
            log.read(&[entry(NOW - 9, 7, 0)]);
            let page = shorter(log.page(&[], 0));
            assert_eq!(log.take(page).loss, Some(Loss::Shrunk));
        }
    }

    #[test]
    fn a_young_log_is_a_loss_until_a_window_after_its_birth() {
        let mut log = Log { follower: Follower::new(WINDOW, WINDOW), made: 0, last: id(0) };
        let page = LogPage { born: NOW - 300, ..log.page(&[], 0) };
        let loss = log.take(page).loss.unwrap();
        assert_eq!(loss, Loss::Young { left: Duration::from_millis(700) });
        assert_eq!(loss.mended_by_scan_in(WINDOW), Duration::from_millis(700));
        assert_eq!(log.read(&[]).loss, None);
    }

    #[test]
    fn gaps_and_entries_that_can_not_be_read_are_losses_and_the_others_apply() {
        let mut log = begun();
        let gap = LogEntry {
            delta: Delta { kind: LogEntryKind::Gap, secret: 0, terms: None, hashes: Vec::new() },
            ..entry(NOW - 9, 7, 0)
        };
        let step = log.read(&[gap, entry(NOW - 8, 7, NOW - 9)]);
        assert_eq!((step.loss, step.entries.len()), (Some(Loss::Gap), 2));
        let mut unreadable = log.page(&[entry(NOW - 6, 7, NOW - 8)], 1);
        unreadable.entries.insert(0, (id(NOW - 7), None));
        let step = log.take(unreadable);
        assert_eq!((step.loss, step.entries.len()), (Some(Loss::Unreadable), 1));
    }
}
