//! Effects of an absence storm: the keyspace asks the backend for rows that it had, and voids cached absences.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::storm::{Positive, Storm, Suspicion};
use crate::cache::{HotCache, Mark, SharedCache};
use crate::clock::Moment;
use crate::key::{Key, KeyHash};
use crate::keyspace::backend::Verified;
use crate::keyspace::build_state::BuildState;
use crate::keyspace::probe::Prober;
use crate::keyspace::stats::FilterStats;
use crate::keyspace::write::CommitWindows;
use crate::metrics::KeyspaceMetrics;

/// Number of rows that the backend had lately and is asked for in a doubt.
const KNOWN_ROWS: usize = 16;

pub(crate) struct Storms {
    pub(crate) storm: Storm,
    pub(crate) prober: Arc<Prober>,
    pub(crate) stats: Arc<FilterStats>,
    pub(crate) builds: Arc<BuildState>,
    pub(crate) windows: Arc<CommitWindows>,
    pub(crate) hot: Arc<HotCache>,
    pub(crate) shared: Arc<dyn SharedCache>,
    pub(crate) deadline: Duration,
    pub(crate) metrics: Arc<KeyspaceMetrics>,
}

impl Storms {
    /// Returns true while absences are not to be believed.
    pub(crate) fn is_raging(&self, now: Moment) -> bool {
        self.storm.is_raging(now)
    }

    /// Another filter is active: its false positives are others.
    pub(crate) fn swapped(&self) {
        self.storm.swapped();
    }

    /// The backend has the row.
    pub(super) fn found(&self, hash: KeyHash, now: Moment) {
        self.storm.found(hash, self.stats.absent_verdicts(), now);
    }

    /// A key that passed the filter has no row, which may speak against the backend.
    pub(super) fn false_positive(self: &Arc<Self>, hash: KeyHash, key: &Key, was_cached: bool, now: Moment) {
        let Some(current) = self.prober.current() else { return };
        let positive = Positive {
            hash,
            key,
            had_row: was_cached || self.builds.confirmed.contains(hash),
            rate: current.filter.estimated_fpr(),
            true_negatives: self.stats.absent_verdicts(),
        };
        match self.storm.positive(&positive, now) {
            Suspicion::None => {}
            Suspicion::Storm(keys) => self.began(keys),
            // Spawned, so that the lookup does not wait; there is one doubt at a time.
            Suspicion::Doubt => drop(tokio::spawn(Arc::clone(self).ask_for_known_rows())),
        }
    }

    /// Asks the backend for rows that it had lately. Without any, nothing contradicts the doubt.
    async fn ask_for_known_rows(self: Arc<Self>) {
        let known = self.builds.known_rows(KNOWN_ROWS, |key| self.prober.identity.hash(key));
        let asked = timeout(self.deadline, self.windows.backend.verify(&known)).await;
        let now = Moment::now();
        let Ok(Ok(verified)) = asked else { return self.storm.undecided(now) };
        let count = |answer: Verified| verified.iter().filter(|verified| **verified == answer).count();
        let (rows, lost) = (count(Verified::Row), count(Verified::NoRow));
        if !known.is_empty() && rows + lost == 0 {
            self.storm.undecided(now);
        } else if rows > 0 && rows >= lost {
            self.storm.refute(now);
        } else if let Some(keys) = self.storm.confirm(now) {
            self.began(keys);
        }
    }

    /// Voids absences that were cached before the storm was noticed: their rows may exist.
    fn began(&self, keys: Vec<Key>) {
        let keyspace = &self.prober.identity.name;
        tracing::error!(%keyspace, "absence storm: the backend has lost rows; no absence is cached");
        self.metrics.absence_storm();
        self.hot.drop_all_absences();
        let (shared, life) = (Arc::clone(&self.shared), self.windows.recent.life());
        // Spawned, so that the lookup does not wait; at most one per storm.
        tokio::spawn(async move {
            for key in keys {
                if let Err(error) = shared.put_mark(&key, Mark::Dropped, life).await {
                    tracing::warn!(%error, "absence of an absence storm may still be cached");
                }
            }
        });
    }
}
