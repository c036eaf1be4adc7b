//! What the backend's answers teach: of the filter, and of the backend itself.

use std::sync::Arc;

use tokio::time::timeout;

use super::Keyspace;
use super::load::Errand;
use super::storm::{Positive, Suspicion};
use super::verify::Verified;
use crate::cache::Mark;
use crate::clock::Moment;
use crate::key::Key;
use crate::labels::{FoundBy, MismatchKind, Verdict};

/// Rows that the backend had lately, and that it is asked for where it may have lost them.
const ASKED_FOR: usize = 16;

impl Keyspace {
    /// What the backend's answer says of the filter, and of the backend. `was_cached`: the shared cache held a value of the row, expired or not.
    pub(super) fn learn(self: &Arc<Self>, errand: &Errand, was_cached: bool, found: bool) {
        let now = Moment::now();
        let probe = errand.glance.probe;
        if found {
            self.proven.found(errand.hash, &errand.asked(), now);
        }
        match (probe.generation, probe.verdict, found) {
            (0, ..) => {}
            (_, Verdict::Absent, false) if errand.glance.trusted => self.confirm_absence(errand.hash),
            (_, Verdict::Absent, false) => {}
            (_, Verdict::Maybe, true) => self.storm.found(errand.hash, self.observed.absent_verdicts(), now),
            (_, Verdict::Maybe, false) => {
                if !self.is_in_filter_by_right(errand, now) {
                    // A refresh asked by itself, and for a row that was there: the filter was not wrong.
                    if !errand.refresh {
                        self.false_positive(errand);
                    }
                    self.judge_backend(errand, was_cached, now);
                }
            }
            // Its announce has not been read yet, as the caller knew: the filter could not have it.
            (_, Verdict::Absent, true) if errand.options.unapplied_version => {}
            (_, Verdict::Absent, true) => self.found_although_absent(&errand.key, errand.hash, probe),
        }
    }

    /// Whether the filter holds an absent key by right: one that was deleted, or whose row is still to come.
    pub(super) fn is_in_filter_by_right(&self, errand: &Errand, now: Moment) -> bool {
        self.recent.contains(errand.hash, now) || self.deleted.contains(errand.hash)
    }

    pub(super) fn false_positive(&self, errand: &Errand) {
        self.metrics.false_positive();
        self.observed.false_positive();
        self.growth.false_positive(errand.hash);
        self.note_mismatch(MismatchKind::FalsePositive, FoundBy::Lookup, errand.glance.probe, errand.hash, &errand.key);
    }

    /// A key that passed the filter has no row: whether that speaks against the backend.
    fn judge_backend(self: &Arc<Self>, errand: &Errand, was_cached: bool, now: Moment) {
        let Some(current) = self.active.current() else { return };
        let positive = Positive {
            hash: errand.hash,
            key: &errand.key,
            had_row: was_cached || self.proven.contains(errand.hash),
            rate: current.filter.estimated_fpr(),
            true_negatives: self.observed.absent_verdicts(),
        };
        match self.storm.positive(&positive, now) {
            Suspicion::None => {}
            Suspicion::Storm(believed) => self.storm_began(believed),
            // Beside the lookup; there is one doubt at a time.
            Suspicion::Doubt => drop(tokio::spawn(Arc::clone(self).ask_for_known_rows())),
        }
    }

    /// Asks the backend for rows that it had lately. Where it has had none yet, nothing speaks for it.
    async fn ask_for_known_rows(self: Arc<Self>) {
        let known = self.known_rows(ASKED_FOR);
        let asked = timeout(self.deadline, self.verify_at_backend(&known)).await;
        let now = Moment::now();
        let Ok(Ok(verified)) = asked else { return self.storm.undecided(now) };
        let count = |answer: Verified| verified.iter().filter(|verified| **verified == answer).count();
        if !known.is_empty() && count(Verified::Row) + count(Verified::NoRow) == 0 {
            self.storm.undecided(now);
        } else if count(Verified::Row) > 0 && count(Verified::Row) >= count(Verified::NoRow) {
            self.storm.acquit(now);
        } else if let Some(believed) = self.storm.convict(now) {
            self.storm_began(believed);
        }
    }

    /// Takes back the absences that were cached before the storm was seen: they may be of rows that exist.
    fn storm_began(&self, believed: Vec<Key>) {
        tracing::error!(keyspace = %self.name, "absence storm: the backend has lost rows; no absence is cached");
        self.metrics.absence_storm();
        self.hot.drop_all_absences();
        let (shared, life) = (Arc::clone(&self.shared), self.recent.life());
        // Beside the lookup, which is not to wait for it; at most one of it a storm.
        tokio::spawn(async move {
            for key in believed {
                if let Err(error) = shared.put_mark(&key, Mark::Dropped, life).await {
                    tracing::warn!(%error, "an absence from the beginning of an absence storm may still be cached");
                }
            }
        });
    }
}
