//! Where a poll must start so that it misses no row, however late its transaction commits.
//!
//! A row becomes visible after its watermark was assigned, so a row with a lower watermark may appear after a higher
//! one was seen: at most `overlap` later, or when the open transactions end. So a poll starts from the watermark that
//! had been seen, on our own clock, that long before **the last complete poll began**. Not before this poll begins: a
//! row that became visible between the two was invisible to the last poll, and this one would start above it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
use crate::keyspace::PollPlace;
use crate::source::{PollPlan, Position, Watermark};

/// Watermarks that are held. Beyond that every second one is dropped, and polls start from a lower one.
const LONGEST: usize = 4096;
/// By how much the age of the oldest transaction may be too low in one answer and right in the next.
const SLACK: Duration = Duration::from_secs(5);

/// What is known about one source, on our own clock.
#[derive(Debug)]
pub(super) struct Window {
    overlap: Duration,
    /// When each watermark had been seen. Never empty; polls never start below the first.
    seen: VecDeque<(Moment, Watermark)>,
    /// When the last complete poll began.
    began: Moment,
    /// How long the oldest transaction had been open then.
    open_for: Duration,
    /// A scan that began later, and polls since, miss no row.
    covers: Option<Moment>,
    /// Continues an earlier process's polls, and no poll has completed since.
    resumed: bool,
}

impl Window {
    /// The source was at `first` at some moment from `began` to `ended`.
    pub(super) fn new(overlap: Duration, first: Watermark, open_for: Duration, began: Moment, ended: Moment) -> Self {
        // A timestamp was lowered by overlap and open transactions already.
        let covers = matches!(first, Watermark::Timestamp(_)).then_some(ended);
        Self { overlap, seen: VecDeque::from([(ended, first)]), began, open_for, covers, resumed: false }
    }

    /// Continues the polls of an earlier process. Its filter, whose scan began at `covers`, contained everything that
    /// was visible when its last complete poll began. The next poll is the one that was due then: its start depends on
    /// that moment and not on its own.
    pub(super) fn resumed(overlap: Duration, place: PollPlace, covers: Moment) -> Self {
        let PollPlace { from, began, open_for } = place;
        Self { overlap, seen: VecDeque::from([(began, from)]), began, open_for, covers: Some(covers), resumed: true }
    }

    /// Where a later process must continue.
    pub(super) fn place(&self) -> PollPlace {
        PollPlace { from: self.plan(self.began).from, began: self.began, open_for: self.open_for }
    }

    /// What a poll that begins now must read.
    pub(super) fn plan(&self, now: Moment) -> PollPlan {
        let behind = self.overlap + self.open_for;
        let found = self.seen.iter().rev().find(|(at, _)| at.plus(behind) <= self.began);
        let from =
            found.or(self.seen.front()).map_or(Watermark::Integer(i128::MIN), |(_, watermark)| watermark.clone());
        PollPlan { from, reach: now.since(self.began) + behind }
    }

    /// A poll that began and ended then has read all of its plan.
    pub(super) fn completed(&mut self, began: Moment, ended: Moment, position: Position) {
        (self.began, self.open_for, self.resumed) = (began, position.open_for, false);
        if let Some(watermark) = position.watermark
            && self.seen.back().is_none_or(|(_, last)| *last != watermark)
        {
            self.seen.push_back((ended, watermark));
        }
        let behind = self.overlap + self.open_for;
        // When this poll began, no uncommitted row had a watermark below the first any more.
        if self.covers.is_none() && self.seen.front().is_some_and(|(at, _)| at.plus(behind) <= began) {
            self.covers = Some(ended);
        }
        while self.seen.get(1).is_some_and(|(at, _)| at.plus(behind + SLACK) <= began) {
            self.seen.pop_front();
        }
        if self.seen.len() > LONGEST {
            let mut odd = true;
            self.seen.retain(|_| {
                odd = !odd;
                !odd
            });
        }
    }

    /// Whether its first poll still has to read what arrived while no process ran.
    pub(super) const fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// A scan that began after this moment is completed by the polls; `None` while that is unknown.
    pub(super) const fn covers(&self) -> Option<Moment> {
        self.covers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos((1_000 + seconds) * 1_000_000_000)
    }

    fn position(watermark: i128, open_for: u64) -> Position {
        Position {
            watermark: Some(Watermark::Integer(watermark)),
            open_for: Duration::from_secs(open_for),
            hidden: None,
        }
    }

    fn window(overlap: u64) -> Window {
        Window::new(Duration::from_secs(overlap), Watermark::Integer(0), Duration::ZERO, at(0), at(0))
    }

    fn from(window: &Window, now: u64) -> i128 {
        match window.plan(at(now)).from {
            Watermark::Integer(number) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_another_process_left_is_read_once_a_poll_has_completed() {
        let place = PollPlace { from: Watermark::Integer(3), began: at(0), open_for: Duration::ZERO };
        let mut resumed = Window::resumed(Duration::ZERO, place, at(0));
        assert!(resumed.is_resumed() && !window(0).is_resumed());
        resumed.completed(at(9), at(10), position(5, 0));
        assert!(!resumed.is_resumed());
    }

    #[test]
    fn a_poll_starts_overlap_before_the_last_complete_one_began() {
        let mut window = window(30);
        for second in 1..=60 {
            window.completed(at(second), at(second), position(i128::from(second) * 10, 0));
        }
        assert_eq!(from(&window, 61), 300);
        // Failed polls since then do not move it: no poll has read what became visible since.
        assert_eq!(from(&window, 600), 300);
    }

    #[test]
    fn a_row_that_becomes_visible_between_two_polls_is_within_the_next() {
        let mut window = window(30);
        window.completed(at(1), at(1), position(100, 0));
        window.completed(at(30), at(30), position(200, 0));
        // A row with watermark 99, visible after 100 was seen by less than the overlap, and after the poll at 30.
        assert!(from(&window, 31) <= 99);
        window.completed(at(31), at(31), position(200, 0));
        assert_eq!(from(&window, 32), 100);
    }

    #[test]
    fn open_transactions_hold_the_window_open() {
        let mut window = window(5);
        for second in 1..=600 {
            window.completed(at(second), at(second), position(i128::from(second), second.saturating_sub(100)));
        }
        // Open since second 100: its watermark can't be lower than the highest seen 5 seconds before that.
        assert_eq!(from(&window, 601), 95);
        // It ended between two polls: the first one after it still reaches back, the next one does not.
        window.completed(at(601), at(601), position(601, 0));
        assert_eq!(from(&window, 602), 596);
    }

    #[test]
    fn a_scan_is_covered_once_nothing_below_the_first_watermark_can_turn_up() {
        let mut numbers = window(30);
        numbers.completed(at(29), at(29), position(1, 0));
        assert_eq!(numbers.covers(), None);
        numbers.completed(at(31), at(31), position(1, 20));
        assert_eq!(numbers.covers(), None, "a transaction is open that began before");
        numbers.completed(at(32), at(33), position(1, 1));
        assert_eq!(numbers.covers(), Some(at(33)));
        let timestamps = Window::new(Duration::from_secs(30), Watermark::Timestamp(0), Duration::ZERO, at(0), at(1));
        assert_eq!(timestamps.covers(), Some(at(1)), "it was lowered");
    }

    #[test]
    fn another_process_polls_from_where_this_one_would_have() {
        let mut window = window(30);
        for second in 1..=60 {
            window.completed(at(second), at(second), position(i128::from(second) * 10, 7));
        }
        let mut resumed = Window::resumed(Duration::from_secs(30), window.place(), at(3));
        // However long no poll ran: rows that became visible in between had no lower watermark.
        for now in [61, 100_000] {
            assert_eq!(
                (from(&resumed, now), resumed.plan(at(now)).reach),
                (from(&window, now), window.plan(at(now)).reach)
            );
        }
        assert_eq!(resumed.covers(), Some(at(3)), "the scan of the snapshot is covered, as it was");
        for window in [&mut window, &mut resumed] {
            window.completed(at(1_000), at(1_001), position(5_000, 0));
            window.completed(at(1_032), at(1_032), position(5_000, 0));
            assert_eq!(from(window, 1_033), 5_000);
        }
    }

    #[test]
    fn what_is_held_is_bounded_and_errs_to_the_lower_side() {
        let mut window = window(5);
        for second in 1..=20_000 {
            window.completed(at(second), at(second), position(i128::from(second), second));
        }
        assert!(window.seen.len() <= LONGEST + 1, "{}", window.seen.len());
        assert!(from(&window, 20_001) == 0);
    }
}
