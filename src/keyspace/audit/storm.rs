//! Absence storms: the backend says absent of rows that it has to have, because it is empty, lagging or broken. While one lasts no absence is cached, and
//! those that were cached at its beginning are taken back.
//!
//! Clients choose which keys are asked for, so that most answers are absences proves nothing: a flood of random keys brings false positives only. Two things
//! are evidence about the backend:
//! - *rows lost*: keys that had rows, and that nobody deleted, come back absent;
//! - *unexplained positives*: more distinct keys pass the filter in vain than its own rate explains, at [`CONFIDENCE`]. Keys that the filter holds without a
//!   row (rows deleted unannounced, false positives that a client has collected) look the same, so this is a doubt only: the backend is asked for rows
//!   that it had a while ago, and its answer decides.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::key::{Key, KeyHash};

/// Distinct keys whose latest answers are judged together.
const WINDOW: usize = 100;
/// They count for so long.
const WITHIN: Duration = Duration::from_secs(60);
/// Absences that a judgement takes at the least: a few rows are deleted unannounced everywhere.
const LEAST: usize = 30;
/// How improbable positives must be to be unexplained: natural logarithm of 1e-6.
const CONFIDENCE: f64 = -13.8;
/// A single filter differs from its estimated rate, more so a small one: its positives are expected to be so many times as many.
const SLACK: f64 = 1.5;
/// Between two doubts, once the backend has refuted one.
const QUIET: Duration = Duration::from_secs(10);
/// Between two doubts, where the backend gave no answer to the first.
const AGAIN: Duration = Duration::from_secs(1);

/// What the backend's latest answers say of the backend.
#[derive(Debug, Default)]
pub(crate) struct Storm(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Rows that were found, and such that are lost.
    rows: Answers,
    /// Rows that were found, and positives.
    recent: Answers,
    /// The backend is being asked for rows that it had.
    doubted: bool,
    quiet_until: Option<Moment>,
}

/// The latest answers, each key once; the latest last.
#[derive(Debug, Default)]
struct Answers {
    latest: VecDeque<Answered>,
    absent: usize,
}

#[derive(Debug)]
struct Answered {
    at: Moment,
    hash: KeyHash,
    /// The key, where it was absent.
    absent: Option<Key>,
    /// Absent verdicts of the filter until then.
    true_negatives: u64,
}

/// A key that passed the filter in vain, and what the filter itself explains of it.
pub(crate) struct Positive<'a> {
    pub(crate) hash: KeyHash,
    pub(crate) key: &'a Key,
    /// The backend or a cache had the row before.
    pub(crate) had_row: bool,
    /// The filter's rate, as its fill predicts it.
    pub(crate) rate: f64,
    /// Absent verdicts of the filter so far.
    pub(crate) true_negatives: u64,
}

/// What a positive comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// Nothing, or nothing new.
    None,
    /// A storm begins with it: these keys' absences may have been cached meanwhile.
    Storm(Vec<Key>),
    /// The backend must be asked for rows that it had. No absence is cached until [`Storm::convict`] or [`Storm::acquit`].
    Doubt,
}

impl Storm {
    /// The backend has the row.
    pub(crate) fn found(&self, hash: KeyHash, true_negatives: u64, now: Moment) {
        let mut inner = self.0.lock();
        inner.rows.note(Answered { at: now, hash, absent: None, true_negatives });
        inner.recent.note(Answered { at: now, hash, absent: None, true_negatives });
    }

    /// The backend has no row of a key that passed the filter.
    pub(crate) fn positive(&self, positive: &Positive<'_>, now: Moment) -> Suspicion {
        let Positive { hash, key, true_negatives, .. } = *positive;
        let mut inner = self.0.lock();
        let answered = Answered { at: now, hash, absent: Some(key.clone()), true_negatives };
        if positive.had_row || inner.rows.holds_absent(hash) {
            let before = inner.rows.are_mostly_absent(now);
            inner.rows.note(answered);
            return if !before && inner.rows.are_mostly_absent(now) {
                Suspicion::Storm(inner.rows.absent_keys())
            } else {
                Suspicion::None
            };
        }
        inner.recent.note(answered);
        let quiet = inner.doubted || inner.quiet_until.is_some_and(|until| now < until);
        if quiet || !inner.recent.are_mostly_absent(now) || inner.recent.are_explained(positive.rate, true_negatives) {
            return Suspicion::None;
        }
        inner.doubted = true;
        Suspicion::Doubt
    }

    /// The backend has lost rows that it had. Returns the keys whose absences may have been cached meanwhile, unless the storm rages already.
    pub(crate) fn convict(&self, now: Moment) -> Option<Vec<Key>> {
        let mut inner = self.0.lock();
        inner.doubted = false;
        let before = inner.rows.are_mostly_absent(now);
        let recent = std::mem::take(&mut inner.recent);
        let lost = recent.latest.into_iter().filter(|answered| answered.absent.is_some());
        // What was found before says nothing of now.
        inner.rows.drop_found();
        lost.for_each(|answered| inner.rows.note(Answered { at: now, ..answered }));
        (!before).then(|| inner.rows.absent_keys())
    }

    /// The backend has the rows that it had: the filter holds keys without rows.
    pub(crate) fn acquit(&self, now: Moment) {
        self.end_doubt(now.plus(QUIET));
    }

    /// The backend gave no answer.
    pub(crate) fn undecided(&self, now: Moment) {
        self.end_doubt(now.plus(AGAIN));
    }

    fn end_doubt(&self, quiet_until: Moment) {
        let mut inner = self.0.lock();
        inner.doubted = false;
        inner.recent = Answers::default();
        inner.quiet_until = Some(quiet_until);
    }

    /// Another filter is in force: its positives are others.
    pub(crate) fn swapped(&self) {
        self.0.lock().recent = Answers::default();
    }

    /// Whether absences are not to be believed at present.
    pub(crate) fn is_raging(&self, now: Moment) -> bool {
        let mut inner = self.0.lock();
        inner.doubted || inner.rows.are_mostly_absent(now)
    }
}

impl Answers {
    fn note(&mut self, answered: Answered) {
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

    /// Answers too old to count are dropped first: a storm without further lost rows ends.
    fn are_mostly_absent(&mut self, now: Moment) -> bool {
        while self.latest.front().is_some_and(|oldest| now.since(oldest.at) > WITHIN) {
            self.remove(0);
        }
        self.absent >= LEAST && self.absent * 2 > self.latest.len()
    }

    /// Whether a filter of this rate lets so many keys pass, of those asked for since the oldest answer.
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
