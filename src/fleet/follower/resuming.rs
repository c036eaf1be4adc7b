//! A reader that continues where an earlier process stopped.

use std::time::Duration;

use super::super::entry::{Delta, LogEntry, LogEntryKind};
use super::super::writer::WriterId;
use super::*;
use crate::key::KeyHash;

const WINDOW: Duration = Duration::from_millis(1_000);
const NOW: u64 = 100_000;
/// The snapshot's place: long before the window.
const PLACE: LogPlace = LogPlace { identity: LogIdentity([1; 16]), applied: EntryId::at(50_000), made: 40 };

fn entry(at: u64, writer: u64, previous: u64) -> (EntryId, Option<LogEntry>) {
    let delta = Delta {
        kind: LogEntryKind::Announce,
        secret: 0,
        terms: None,
        hashes: vec![KeyHash::from_bits(u128::from(at))],
    };
    (
        EntryId::at(at),
        Some(LogEntry { id: EntryId::at(at), writer: WriterId(writer), previous: EntryId::at(previous), delta }),
    )
}

/// A page of a log with so many entries ever appended, these at its end.
fn page(made: u64, entries: &[(EntryId, Option<LogEntry>)]) -> LogPage {
    LogPage {
        identity: PLACE.identity,
        born: 10,
        now: NOW,
        last: entries.last().map_or(PLACE.applied, |(id, _)| *id),
        made,
        floor: EntryId::ZERO,
        entries: entries.to_vec(),
        complete: true,
        switch: None,
        peers: Vec::new(),
        roster: None,
        is_registered: true,
        is_evictable: false,
    }
}

/// Evaluates the first page, which only says where to begin, then those behind it.
fn follow(place: LogPlace, pages: Vec<LogPage>) -> (Follower, Vec<Option<Loss>>, usize) {
    let mut follower = Follower::new(WINDOW, WINDOW).resuming(Some(place));
    let first = LogPage { entries: Vec::new(), ..pages[0].clone() };
    let (mut losses, mut applied) = (Vec::new(), 0);
    for page in std::iter::once(first).chain(pages) {
        let step = follower.evaluate(page);
        follower.applied(&step);
        losses.extend(step.loss);
        applied += step.entries.len();
    }
    (follower, losses.into_iter().map(Some).collect(), applied)
}

#[test]
fn everything_that_was_made_since_is_read_however_long_ago() {
    let (follower, losses, applied) =
        follow(PLACE, vec![page(42, &[entry(60_000, 7, 40_000), entry(70_000, 7, 60_000)])]);
    assert_eq!((losses, applied), (vec![], 2));
    let place = LogPlace { applied: EntryId::at(70_000), made: 42, ..PLACE };
    assert_eq!(follower.resumable(), Some(place));
    let (follower, losses, _) = follow(PLACE, vec![page(40, &[])]);
    assert_eq!((follower.resumable(), losses), (Some(PLACE), vec![]));
}

#[test]
fn a_quiet_log_is_gone_on_with_too() {
    let mut first = Follower::new(WINDOW, WINDOW);
    let empty = |made| LogPage { last: EntryId::ZERO, made, ..page(0, &[]) };
    for _ in 0..2 {
        let step = first.evaluate(empty(0));
        first.applied(&step);
    }
    let place = first.resumable().unwrap();
    assert_eq!((place.applied, place.made), (EntryId::ZERO, 0));
    assert_eq!(follow(place, vec![empty(0)]).1, []);
    assert_eq!(follow(place, vec![page(1, &[entry(NOW - 5_000, 7, 0)])]).1, []);
    assert_eq!(follow(place, vec![page(2, &[entry(NOW - 5_000, 7, 0)])]).1, [Some(Loss::Unresumable)]);
}

#[test]
fn announces_whose_window_is_open_are_read_again_and_not_counted_twice() {
    let young = LogPlace { applied: EntryId::at(NOW - 100), ..PLACE };
    let again = [entry(NOW - 500, 7, 0), entry(NOW - 100, 7, NOW - 500), entry(NOW - 50, 7, NOW - 100)];
    let mut follower = Follower::new(WINDOW, WINDOW).resuming(Some(young));
    assert_eq!(follower.evaluate(LogPage { last: young.applied, ..page(41, &[]) }).loss, None);
    assert_eq!(follower.after(), EntryId::at(NOW - 1_000));
    assert_eq!(follower.resumable(), None, "what was made since is not read yet");
    assert_eq!(follow(young, vec![page(41, &again)]).1, []);
    // The same with a newer entry that is gone.
    assert_eq!(follow(young, vec![page(42, &again)]).1, [Some(Loss::Trimmed)]);
    // And with one of before it that was trimmed for size within the window.
    let floor = LogPage { floor: EntryId::at(NOW - 300), ..page(41, &again[1..]) };
    assert!(follow(young, vec![floor]).1.contains(&Some(Loss::Trimmed)));
}

#[test]
fn a_log_that_lost_entries_does_not_complete_a_snapshot() {
    for (what, page) in [
        ("trimmed by age", page(45, &[entry(70_000, 7, 60_000), entry(NOW - 10, 7, 70_000)])),
        ("all trimmed", page(45, &[])),
        ("another log", LogPage { identity: LogIdentity([2; 16]), ..page(42, &[entry(60_000, 7, 0)]) }),
    ] {
        let (_, losses, _) = follow(PLACE, vec![page]);
        assert_eq!(losses, [Some(Loss::Unresumable)], "{what}");
        assert_eq!(Loss::Unresumable.mended_by_scan_in(WINDOW), Duration::ZERO);
    }
}

#[test]
fn a_log_that_was_set_back_may_have_lost_announces_of_the_window() {
    for page in [LogPage { last: EntryId::at(40_000), ..page(40, &[]) }, page(39, &[])] {
        assert_eq!(follow(PLACE, vec![page]).1, [Some(Loss::Shrunk)]);
    }
}

#[test]
fn what_is_missing_within_the_window_is_worse() {
    let hole = page(45, &[entry(70_000, 7, 60_000), entry(NOW - 10, 8, NOW - 20)]);
    assert_eq!(follow(PLACE, vec![hole]).1, [Some(Loss::Hole)]);
    let young = LogPage { identity: LogIdentity([2; 16]), born: NOW - 300, ..page(42, &[]) };
    assert_eq!(follow(PLACE, vec![young]).1, [Some(Loss::Young { left: Duration::from_millis(700) })]);
    let floor = LogPage { floor: EntryId::at(NOW - 300), ..page(45, &[entry(NOW - 10, 7, 0)]) };
    assert_eq!(follow(PLACE, vec![floor]).1, [Some(Loss::Trimmed)]);
}

#[test]
fn a_log_that_was_deleted_before_anything_of_it_was_counted_is_a_loss() {
    let never = LogPlace { applied: EntryId::ZERO, made: 0, ..PLACE };
    let deleted = |made, floor, entries: &[_]| LogPage { floor, ..page(made, entries) };
    let gone = deleted(0, EntryId::at(u64::MAX), &[]);
    assert_eq!(follow(never, vec![gone.clone(), gone.clone()]).1, [Some(Loss::Trimmed)]);
    let again = deleted(1, EntryId::at(NOW - 10), &[entry(NOW - 10, 7, 0)]);
    assert_eq!(follow(never, vec![again]).1, [Some(Loss::Trimmed)]);
    let long_ago = deleted(1, EntryId::at(60_000), &[entry(60_000, 7, 0)]);
    assert_eq!(follow(never, vec![long_ago]).1, [Some(Loss::Unresumable)]);
    // Also between two pages of a running reader, and not once more when it is written again.
    let mut follower = Follower::new(WINDOW, WINDOW);
    let empty = LogPage { last: EntryId::ZERO, ..page(0, &[]) };
    let mut take = |page| {
        let step = follower.evaluate(page);
        follower.applied(&step);
        step.loss
    };
    assert_eq!([empty.clone(), empty].map(&mut take), [None, None]);
    let gone = LogPage { last: EntryId::ZERO, ..gone };
    assert_eq!([gone.clone(), gone].map(&mut take), [Some(Loss::Trimmed), None]);
    assert_eq!(take(deleted(1, EntryId::at(NOW - 10), &[entry(NOW - 10, 7, 0)])), None);
}

#[test]
fn what_the_server_may_evict_is_not_believed_where_no_count_shows_it() {
    let evictable = |page| LogPage { is_evictable: true, ..page };
    let mut starting = Follower::new(WINDOW, WINDOW);
    let loss = starting.evaluate(evictable(page(40, &[]))).loss.unwrap();
    assert_eq!((loss, loss.mended_by_scan_in(WINDOW)), (Loss::Evictable, WINDOW));
    let young = LogPlace { applied: EntryId::at(NOW - 100), ..PLACE };
    let same = LogPage { last: young.applied, ..page(40, &[]) };
    assert_eq!(follow(young, vec![evictable(same)]).1, [Some(Loss::Evictable)]);
    assert_eq!(follow(PLACE, vec![evictable(page(40, &[]))]).1, []);
}
