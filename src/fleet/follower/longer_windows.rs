//! A reader that learns of a longer window than the one that it began with.

use std::time::Duration;

use super::super::entry::{Delta, LogEntry, LogEntryKind};
use super::super::writer::WriterId;
use super::*;

const SHORT: Duration = Duration::from_millis(1_000);
const LONG: Duration = Duration::from_millis(20_000);
const NOW: u64 = 100_000;
const GAP: EntryId = EntryId::at(NOW - 30_000);

fn entry(at: u64, previous: u64) -> (EntryId, Option<LogEntry>) {
    let delta = Delta { kind: LogEntryKind::Announce, secret: 0, terms: None, hashes: Vec::new() };
    let (id, previous) = (EntryId::at(at), EntryId::at(previous));
    (id, Some(LogEntry { id, writer: WriterId(7), previous, delta }))
}

/// A log with three entries, of which a reader of the short window reads one.
struct Log {
    follower: Follower,
    entries: Vec<(EntryId, Option<LogEntry>)>,
    made: u64,
    floor: EntryId,
    born: u64,
    is_evictable: bool,
}

impl Log {
    fn begun() -> Self {
        let entries = vec![entry(NOW - 30_000, 0), entry(NOW - 10_000, NOW - 30_000), entry(NOW - 10, NOW - 10_000)];
        let follower = Follower::new(SHORT, SHORT);
        let mut log = Self { follower, entries, made: 3, floor: EntryId::ZERO, born: 10, is_evictable: false };
        assert_eq!(log.read(), (None, vec![], false));
        assert_eq!(log.read(), (None, vec![NOW - 10], true));
        log
    }

    fn evaluate(&mut self) -> PageOutcome {
        let after = self.follower.after();
        self.follower.evaluate(LogPage {
            identity: LogIdentity([1; 16]),
            born: self.born,
            now: NOW,
            last: self.entries.last().unwrap().0,
            made: self.made,
            floor: self.floor,
            entries: self.entries.iter().filter(|(id, _)| *id > after).cloned().collect(),
            complete: true,
            switch: None,
            peers: Vec::new(),
            roster: None,
            is_registered: true,
            is_evictable: self.is_evictable,
        })
    }

    /// The loss, the places of what is applied, and whether all of the log is.
    fn read(&mut self) -> (Option<Loss>, Vec<u64>, bool) {
        let step = self.evaluate();
        self.follower.applied(&step);
        (step.loss, step.entries.iter().map(|entry| entry.id.millis).collect(), step.complete)
    }

    fn learn(&mut self, window: Duration) {
        self.follower.set_windows(window, window);
    }
}

#[test]
fn announces_within_a_longer_window_are_read_before_all_is_read() {
    let mut log = Log::begun();
    log.learn(LONG);
    assert_eq!(log.read(), (None, vec![], false));
    assert_eq!(log.follower.resumable(), None, "a snapshot of now lacks them");
    assert_eq!(log.read(), (None, vec![NOW - 10_000, NOW - 10], true));
    assert_eq!(log.follower.resumable().map(|place| place.made), Some(3));
    assert_eq!(log.read(), (None, vec![], true), "once");
    log.learn(SHORT);
    log.learn(LONG);
    assert_eq!(log.read(), (None, vec![], true), "they have been read");
}

#[test]
fn entries_that_are_gone_while_older_ones_are_read_are_a_loss() {
    let mut log = Log::begun();
    log.learn(LONG);
    log.made += 1;
    // One that was made and deleted since the last page.
    assert_eq!(log.read().0, Some(Loss::Trimmed));
    assert_eq!(log.read().0, None, "told once");
    let mut log = Log::begun();
    log.learn(LONG);
    log.read();
    log.made += 1;
    assert_eq!(log.read().0, Some(Loss::Trimmed));
    let mut log = Log::begun();
    log.learn(LONG);
    log.read();
    log.entries.remove(1);
    assert_eq!(log.read().0, Some(Loss::Hole));
}

#[test]
fn a_log_that_was_trimmed_within_the_longer_window_is_a_loss() {
    for (floor, loss) in [(GAP, None), (EntryId::at(NOW - 15_000), Some(Loss::Trimmed))] {
        let mut log = Log::begun();
        log.floor = floor;
        log.learn(LONG);
        assert_eq!((log.read().0, log.read().0), (loss, None));
    }
}

#[test]
fn a_log_that_can_not_show_the_longer_window_is_a_loss() {
    let left = LONG - Duration::from_secs(5);
    for (born, is_evictable, loss) in
        [(NOW - 5_000, false, Loss::Young { left }), (10, true, Loss::Evictable), (NOW - 5_000, true, Loss::Evictable)]
    {
        let mut log = Log::begun();
        (log.born, log.is_evictable) = (born, is_evictable);
        log.learn(LONG);
        assert_eq!((log.read().0, log.read().0, log.read().0), (Some(loss), None, None));
    }
}
