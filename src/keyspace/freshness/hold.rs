//! How long the filter answers no lookup with 404 after it was found wrong, in addition to the scan that fixes it. The
//! fault returns until somebody fixes its cause.

use std::time::Duration;

use crate::clock::Moment;

/// The longest hold, and the time without a further row after which the next hold is a first one again.
const LONGEST: Duration = Duration::from_secs(3600);

/// The present hold and the one before.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    first: Duration,
    /// When the last one ends or ended, and how long it was.
    last: Option<(Moment, Duration)>,
    held: bool,
}

impl Hold {
    pub(crate) fn new(first: Duration) -> Self {
        Self { first, ..Self::default() }
    }

    /// Sets the length of a first hold. A hold that has begun keeps its length.
    pub(crate) fn set_first(&mut self, first: Duration) {
        self.first = first;
    }

    /// A row was found that the filter had called absent. Further rows during a hold belong to the same fault.
    pub(crate) fn begin(&mut self, now: Moment) {
        let again = self.last.filter(|(end, _)| now.since(*end) < LONGEST);
        let length = again.map_or(self.first, |(_, length)| (length * 2).min(LONGEST.max(self.first)));
        self.last = Some((now.plus(length), length));
        self.held = !length.is_zero();
    }

    /// Length of the active hold; `None`: there is none.
    pub(crate) fn length(&self) -> Option<Duration> {
        self.last.filter(|_| self.held).map(|(_, length)| length)
    }

    /// Returns true if the hold is active and its time is over.
    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.held && self.last.is_none_or(|(end, _)| end <= now)
    }

    pub(crate) fn lift(&mut self) {
        self.held = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_double_up_to_an_hour_and_start_again_after_a_quiet_hour() {
        let minute = Duration::from_secs(60);
        let mut hold = Hold::new(minute);
        let mut now = Moment::from_nanos(1);
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            hold.begin(now);
            assert_eq!(hold.length(), Some(minute * minutes));
            assert!(!hold.is_over(now.plus(minute * minutes - Duration::from_secs(1))));
            now = now.plus(minute * minutes);
            assert!(hold.is_over(now));
            hold.lift();
            assert_eq!((hold.length(), hold.is_over(now)), (None, false));
        }
        hold.begin(now.plus(LONGEST));
        assert_eq!(hold.length(), Some(minute));
    }

    #[test]
    fn no_first_hold_is_none_at_all() {
        let mut hold = Hold::new(Duration::ZERO);
        for _ in 0..2 {
            hold.begin(Moment::from_nanos(1));
            assert_eq!(hold.length(), None);
        }
    }
}
