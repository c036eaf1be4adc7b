//! How long a keyspace rejects nobody after its filter was found wrong, beside the scan that mends it: what went wrong once goes wrong again, until
//! somebody mends its cause.

use std::time::Duration;

use crate::clock::Moment;

/// The longest hold, and how long without a further row the next one counts as the first.
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

    /// How long a hold is from now on that does not follow closely on another; one that has begun stays as it is.
    pub(crate) fn set_first(&mut self, first: Duration) {
        self.first = first;
    }

    /// A row was found that the filter had called absent. Rows that are found while the keyspace rejects nobody anyway are of the same fault.
    pub(crate) fn begin(&mut self, now: Moment) {
        let again = self.last.filter(|(end, _)| now.since(*end) < LONGEST);
        let length = again.map_or(self.first, |(_, length)| (length * 2).min(LONGEST.max(self.first)));
        self.last = Some((now.plus(length), length));
        self.held = !length.is_zero();
    }

    /// For how long the keyspace is held; `None`: it isn't.
    pub(crate) fn length(&self) -> Option<Duration> {
        self.last.filter(|_| self.held).map(|(_, length)| length)
    }

    /// Whether it is held and need not be any more.
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
    fn a_hold_doubles_each_time_up_to_an_hour_and_begins_anew_after_an_hour_of_peace() {
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
