//! Absence storms: when over half of the keys that pass the filter are absent at the backend, the backend is empty, lagging or broken, and
//! not the keys absent.
//!
//! A filter lets one stranger in hundreds pass, so most of what reaches the backend exists. A restored, half-loaded or misrouted backend turns
//! that around. While it lasts no absence is cached, and those that were cached at its beginning are taken back.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::{Key, KeyHash};

/// Answers that are judged together.
const WINDOW: usize = 100;
/// They count only if they came within this time.
const WITHIN: Duration = Duration::from_secs(10);

/// The latest answers of the backend to keys that passed the filter.
#[derive(Debug, Default)]
pub(super) struct Storm(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Latest last; the key where it was absent.
    answers: VecDeque<(Moment, Option<(KeyHash, Key)>)>,
    absent: usize,
    raging: bool,
}

impl Storm {
    /// The backend has the row.
    pub(super) fn found(&self, now: Moment) {
        self.0.lock().note(now, None);
    }

    /// The backend has no such row. Where this is what begins a storm: the keys whose absences may have been cached meanwhile.
    pub(super) fn absent(&self, hash: KeyHash, key: &Key, now: Moment) -> Option<Vec<(KeyHash, Key)>> {
        let mut inner = self.0.lock();
        let before = inner.raging;
        inner.note(now, Some((hash, key.clone())));
        (inner.raging && !before).then(|| inner.answers.iter().filter_map(|(_, absent)| absent.clone()).collect())
    }

    /// Whether absences are not to be believed at present.
    pub(super) fn is_raging(&self, now: Moment) -> bool {
        let mut inner = self.0.lock();
        inner.judge(now);
        inner.raging
    }
}

impl Inner {
    fn note(&mut self, now: Moment, absent: Option<(KeyHash, Key)>) {
        self.absent += usize::from(absent.is_some());
        self.answers.push_back((now, absent));
        if self.answers.len() > WINDOW {
            self.drop_oldest();
        }
        self.judge(now);
    }

    /// Too few answers in too long a time tell nothing: a storm that nobody feeds ends.
    fn judge(&mut self, now: Moment) {
        while self.answers.front().is_some_and(|(at, _)| now.since(*at) > WITHIN) {
            self.drop_oldest();
        }
        self.raging = self.answers.len() == WINDOW && self.absent * 2 > WINDOW;
    }

    fn drop_oldest(&mut self) {
        if let Some((_, Some(_))) = self.answers.pop_front() {
            self.absent -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyForm, KeySecret};

    fn absent(storm: &Storm, now: Moment) -> Option<Vec<(KeyHash, Key)>> {
        let key = KeyForm::Text.canonical(b"k").unwrap();
        storm.absent(KeySecret::new([7; KeySecret::LEN]).hash(&key), &key, now)
    }

    #[test]
    fn over_half_of_a_hundred_within_ten_seconds_is_a_storm() {
        let (storm, now) = (Storm::default(), Moment::from_nanos(1));
        (0..50).for_each(|_| storm.found(now));
        for _ in 0..50 {
            assert!(absent(&storm, now).is_none());
        }
        assert!(!storm.is_raging(now), "half is not over half");
        let begun = absent(&storm, now).expect("it begins with this one");
        assert_eq!(begun.len(), 51, "whose absences have to be taken back");
        assert!(absent(&storm, now).is_none(), "it begins once");
        assert!(storm.is_raging(now));
        (0..51).for_each(|_| storm.found(now));
        assert!(!storm.is_raging(now));
    }

    #[test]
    fn slow_absences_are_no_storm_and_a_storm_that_nobody_feeds_ends() {
        let storm = Storm::default();
        for i in 0..300u64 {
            assert!(absent(&storm, Moment::from_nanos(i * 102_000_000)).is_none());
        }
        let now = Moment::from_nanos(u64::MAX / 2);
        for _ in 0..100 {
            let _ = absent(&storm, now);
        }
        assert!(storm.is_raging(now.plus(Duration::from_secs(10))));
        assert!(!storm.is_raging(now.plus(Duration::from_secs(11))));
    }
}
