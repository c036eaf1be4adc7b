//! Absence storms: the backend answers absent for rows that it should have, because it is empty, lagging or broken.
//! During a storm no absence is cached, and absences cached at its start are voided.
//!
//! Clients choose the keys, so many absent answers prove nothing: a flood of random keys brings only false positives.
//! Two observations are evidence about the backend:
//! - *rows lost*: keys that had rows, and that nobody deleted, come back absent;
//! - *unexplained positives*: more distinct absent keys pass the filter than its own rate explains, at [`CONFIDENCE`].
//!   Keys in the filter without a row look the same (rows deleted unannounced, false positives that a client has
//!   collected). So this is a doubt only: the keyspace asks the backend for rows that it had lately, and the answer
//!   decides.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::{Key, KeyHash};

/// Number of distinct keys whose latest answers are evaluated together.
const WINDOW: usize = 100;
/// Answers older than this do not count.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Minimum number of absences for a storm: a few rows are deleted unannounced in every system.
const MIN_ABSENT: usize = 30;
/// Natural logarithm of 1e-6: positives less probable than that are unexplained.
const CONFIDENCE: f64 = -13.8;
/// A single filter differs from its estimated rate, a small one more so: this factor on the expected positives covers
/// that.
const SLACK: f64 = 1.5;
/// Pause between two doubts, after the backend has refuted one.
const QUIET_AFTER: Duration = Duration::from_secs(10);
/// Pause between two doubts, after the backend gave no answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the latest answers of the backend say about the backend.
#[derive(Debug, Default)]
pub(crate) struct Storm(Mutex<StormState>);

#[derive(Debug, Default)]
struct StormState {
    /// Found rows, and lost rows.
    rows: Answers,
    /// Found rows, and positives.
    recent: Answers,
    /// True while the backend is being asked for rows that it had.
    doubted: bool,
    quiet_until: Option<Moment>,
}

/// The latest answers, one per key; the newest last.
#[derive(Debug, Default)]
struct Answers {
    latest: VecDeque<Answered>,
    absent: usize,
}

#[derive(Debug)]
struct Answered {
    at: Moment,
    hash: KeyHash,
    /// The key, if it was absent.
    absent: Option<Key>,
    /// Absent verdicts of the filter at that moment.
    true_negatives: u64,
}

/// An absent key that passed the filter, and what the filter's rate explains.
pub(crate) struct Positive<'a> {
    pub(crate) hash: KeyHash,
    pub(crate) key: &'a Key,
    /// The backend or a cache had the row before.
    pub(crate) had_row: bool,
    /// The false-positive rate that the filter's fill predicts.
    pub(crate) rate: f64,
    /// Absent verdicts of the filter so far.
    pub(crate) true_negatives: u64,
}

/// What follows from a positive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// Nothing, or nothing new.
    None,
    /// It starts a storm: absences of these keys may have been cached.
    Storm(Vec<Key>),
    /// The backend must be asked for rows that it had. No absence is cached until [`Storm::confirm`], [`Storm::refute`]
    /// or [`Storm::undecided`].
    Doubt,
}

impl Storm {
    /// The backend has the row.
    pub(crate) fn found(&self, hash: KeyHash, true_negatives: u64, now: Moment) {
        let mut inner = self.0.lock();
        inner.rows.record(Answered { at: now, hash, absent: None, true_negatives });
        inner.recent.record(Answered { at: now, hash, absent: None, true_negatives });
    }

    /// The backend has no row of a key that passed the filter.
    pub(crate) fn positive(&self, positive: &Positive<'_>, now: Moment) -> Suspicion {
        let Positive { hash, key, true_negatives, .. } = *positive;
        let mut inner = self.0.lock();
        let answered = Answered { at: now, hash, absent: Some(key.clone()), true_negatives };
        if positive.had_row || inner.rows.holds_absent(hash) {
            let before = inner.rows.are_mostly_absent(now);
            inner.rows.record(answered);
            return if !before && inner.rows.are_mostly_absent(now) {
                Suspicion::Storm(inner.rows.absent_keys())
            } else {
                Suspicion::None
            };
        }
        inner.recent.record(answered);
        let quiet = inner.doubted || inner.quiet_until.is_some_and(|until| now < until);
        if quiet || !inner.recent.are_mostly_absent(now) || inner.recent.are_explained(positive.rate, true_negatives) {
            return Suspicion::None;
        }
        inner.doubted = true;
        Suspicion::Doubt
    }

    /// The backend has lost rows that it had. Returns the keys whose absences may have been cached, unless the storm
    /// has begun already.
    pub(crate) fn confirm(&self, now: Moment) -> Option<Vec<Key>> {
        let mut inner = self.0.lock();
        inner.doubted = false;
        let before = inner.rows.are_mostly_absent(now);
        let recent = std::mem::take(&mut inner.recent);
        let lost = recent.latest.into_iter().filter(|answered| answered.absent.is_some());
        // Rows found earlier say nothing about the present.
        inner.rows.drop_found();
        lost.for_each(|answered| inner.rows.record(Answered { at: now, ..answered }));
        (!before).then(|| inner.rows.absent_keys())
    }

    /// The backend still has its rows: the filter contains keys without rows.
    pub(crate) fn refute(&self, now: Moment) {
        self.end_doubt(now.plus(QUIET_AFTER));
    }

    /// The backend gave no answer.
    pub(crate) fn undecided(&self, now: Moment) {
        self.end_doubt(now.plus(RETRY_AFTER));
    }

    fn end_doubt(&self, quiet_until: Moment) {
        let mut inner = self.0.lock();
        inner.doubted = false;
        inner.recent = Answers::default();
        inner.quiet_until = Some(quiet_until);
    }

    /// Another filter is active: its positives differ.
    pub(crate) fn swapped(&self) {
        self.0.lock().recent = Answers::default();
    }

    /// Returns true while absences of the backend can't be trusted.
    pub(crate) fn is_raging(&self, now: Moment) -> bool {
        let mut inner = self.0.lock();
        inner.doubted || inner.rows.are_mostly_absent(now)
    }
}

impl Answers {
    fn record(&mut self, answered: Answered) {
        let earlier = self.latest.iter().position(|earlier| earlier.hash == answered.hash);
        if let Some(earlier) = earlier.or((self.latest.len() == WINDOW).then_some(0)) {
            self.remove(earlier);
        }
        self.absent += usize::from(answered.absent.is_some());
        self.latest.push_back(answered);
    }

    fn remove(&mut self, index: usize) {
        if self.latest.remove(index).is_some_and(|removed| removed.absent.is_some()) {
            self.absent -= 1;
        }
    }

    fn drop_found(&mut self) {
        self.latest.retain(|answered| answered.absent.is_some());
    }

    fn holds_absent(&self, hash: KeyHash) -> bool {
        self.latest.iter().any(|answered| answered.hash == hash && answered.absent.is_some())
    }

    /// Drops old answers first: a storm without further lost rows ends.
    fn are_mostly_absent(&mut self, now: Moment) -> bool {
        while self.latest.front().is_some_and(|oldest| now.since(oldest.at) > MAX_AGE) {
            self.remove(0);
        }
        self.absent >= MIN_ABSENT && self.absent * 2 > self.latest.len()
    }

    /// Returns true if the filter's rate explains this many positives among the keys asked for since the oldest answer.
    fn are_explained(&self, rate: f64, true_negatives: u64) -> bool {
        let positives = self.absent as f64;
        let since = self.latest.front().map_or(true_negatives, |oldest| oldest.true_negatives);
        let expected = SLACK * rate * (true_negatives.saturating_sub(since) as f64 + positives);
        // Chernoff's bound of the Poisson distribution: ln P(X ≥ x) ≤ x − λ − x·ln(x/λ) for x > λ.
        positives <= expected || positives - expected - positives * (positives / expected).ln() > CONFIDENCE
    }

    fn absent_keys(&self) -> Vec<Key> {
        self.latest.iter().filter_map(|answered| answered.absent.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
