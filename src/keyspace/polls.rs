//! Polls for new keys: polled rows take effect like announces, and complete polls keep the promise of freshness.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::freshness::{FreshnessTracker, PollCoverage};
use super::identity::Identity;
use super::probe::Prober;
use super::rebuild_signal::RebuildSignal;
use super::write::{CommitWindows, LocalEffects, RowStatus};
use crate::cache::{CacheError, Over, SharedCache};
use crate::clock::Moment;
use crate::key::{Key, KeyHash};
use crate::source::{PolledKey, Watermark};

/// Rows that are recorded under one lock, for which lookups wait.
const CHUNK: usize = 256;

const WAITING: &str = "waiting for polls to begin; where the watermark is no timestamp, until \
    source.incremental.overlap is over and every transaction has ended that was open when the watermark was first read";
const BUILDING: &str = "the first filter is being built";

/// Where the polls of a source continue so that, with the keys that the filter holds already, no row is missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollPlace {
    /// The watermark from which the poll after the last complete one starts.
    pub from: Watermark,
    /// When the last complete one began: every row visible at that moment is in the filter.
    pub began: Moment,
    /// How long the oldest transaction had been open then.
    pub open_for: Duration,
}

/// The polls of one keyspace.
pub struct PollTracker {
    parts: PollParts,
    /// Of the last complete poll; empty before the first.
    places: Mutex<Vec<PollPlace>>,
    /// Where the snapshot says that polls continue, and when the scan of its filter began.
    resume: Mutex<Option<(Vec<PollPlace>, Moment)>>,
    requested: Notify,
    progress: watch::Sender<PollProgress>,
}

/// What polled rows change.
pub(crate) struct PollParts {
    pub(crate) identity: Arc<Identity>,
    pub(crate) prober: Arc<Prober>,
    pub(crate) freshness: Arc<FreshnessTracker>,
    pub(crate) windows: Arc<CommitWindows>,
    pub(crate) effects: Arc<LocalEffects>,
    pub(crate) shared: Arc<dyn SharedCache>,
    pub(crate) rebuild: Arc<RebuildSignal>,
}

impl std::fmt::Debug for PollTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollTracker").field("progress", &self.progress).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct PollProgress {
    /// A scan that begins now would be covered.
    covering: bool,
    /// Start of the last complete poll.
    completed: Option<Moment>,
    /// End of the last poll that failed.
    failed: Option<Moment>,
}

/// Rows of a poll, by what has to be done for them.
#[derive(Default)]
struct Sorted {
    new_hashes: Vec<KeyHash>,
    /// Under the secret that is to be adopted: a candidate may be built under it.
    next_hashes: Vec<KeyHash>,
    new_keys: Vec<Key>,
    rechecked: Vec<Key>,
}

impl PollTracker {
    pub(crate) fn new(parts: PollParts) -> Self {
        Self {
            parts,
            places: Mutex::default(),
            resume: Mutex::default(),
            requested: Notify::new(),
            progress: watch::Sender::default(),
        }
    }

    /// Returns false if no source is polled: nothing needs to wait for polls.
    fn is_polled(&self) -> bool {
        self.parts.windows.polled.is_polled
    }

    /// Continues where the snapshot says.
    pub(crate) fn resume(&self, places: Vec<PollPlace>, scan_started: Moment) {
        *self.resume.lock() = Some((places, scan_started)).filter(|(places, _)| !places.is_empty());
    }

    /// Where polls may continue; returned once. And since when a scan must have begun for them to complete it.
    pub fn take_resume(&self) -> Option<(Vec<PollPlace>, Moment)> {
        self.resume.lock().take()
    }

    /// Of the last complete poll; empty before the first.
    pub(crate) fn places(&self) -> Vec<PollPlace> {
        self.places.lock().clone()
    }

    /// From where later polls start. Call it before the poll counts as complete.
    pub fn set_places(&self, places: Vec<PollPlace>) {
        *self.places.lock() = places;
    }

    /// Polls begin, as at the start or because the source has changed. `covers`: since when a scan must have begun for
    /// them to complete it.
    pub fn began(&self, covers: Option<Moment>) {
        self.places.lock().clear();
        self.parts.freshness.polls_began(covers);
        self.progress.send_modify(|progress| progress.covering = covers.is_some());
        self.rescan_if_needed();
    }

    /// One poll begins, at this moment.
    pub fn begin(&self, began: Moment) {
        self.parts.windows.polled.rows().begin(began, self.parts.shared.epoch());
    }

    /// Applies rows that the poll in progress found, and returns how many were new. Rows that the last complete poll
    /// had found, by the stamp of their watermark, have taken effect before: they only reach the filters, because a
    /// candidate may be younger.
    ///
    /// # Errors
    /// [`CacheError`]: an absence of a new key may be in the shared cache, or be stored there yet.
    pub async fn learn(&self, polled: &[PolledKey]) -> Result<u64, CacheError> {
        let PollParts { windows, effects, shared, .. } = &self.parts;
        let rows = self.sort(polled);
        // As an announce: the row is committed, but a backend that is a replica may not have it yet.
        windows.recent.remember_polled(&rows.new_hashes, Moment::now());
        effects.apply_announce(&rows.new_hashes);
        effects.restore_announces(&rows.next_hashes);
        if windows.backend.members().is_none() {
            // Values stay: polls bring changed rows too, and every instance polls, so marks in their place would keep
            // the shared cache from holding any. An instance may be about to store what it read before the row came,
            // and may die before its own poll.
            let life = windows.recent.life();
            let marked = async {
                shared.end_absences(&rows.new_keys, Over::AllButValues, life).await?;
                shared.end_absences(&rows.rechecked, Over::Absences, life).await
            };
            if let Err(error) = marked.await
                // As long as the row may be missing at a backend, another instance may store its absence.
                && !self.parts.freshness.marks_lost(Moment::now().plus(life))
            {
                return Err(error);
            }
        }
        Ok(rows.new_hashes.len() as u64)
    }

    fn sort(&self, polled: &[PolledKey]) -> Sorted {
        let mut sorted = Sorted::default();
        let secret = &self.parts.identity.secret;
        for chunk in polled.chunks(CHUNK) {
            let mut rows = self.parts.windows.polled.rows();
            // Before the present one: it may become that in between.
            if let Some(next) = secret.next() {
                sorted.next_hashes.extend(chunk.iter().map(|row| next.hash(&row.key)));
            }
            for row in chunk {
                let hash = secret.hash(&row.key);
                match rows.record(hash, row) {
                    RowStatus::New => {
                        sorted.new_hashes.push(hash);
                        sorted.new_keys.push(row.key.canonical());
                        continue;
                    }
                    RowStatus::Rechecked => sorted.rechecked.push(row.key.canonical()),
                    RowStatus::Known => {}
                }
                self.parts.prober.insert(hash);
            }
        }
        sorted
    }

    /// A poll that began then has read every source to its end.
    pub fn completed(&self, began: Moment, coverage: PollCoverage) {
        self.parts.windows.polled.rows().complete(Moment::now(), self.parts.windows.recent.life());
        self.parts.freshness.polled(began, coverage);
        let mut first = false;
        self.progress.send_modify(|progress| {
            first = coverage.covers.is_some() && !progress.covering;
            progress.covering = coverage.covers.is_some();
            progress.completed = Some(began);
        });
        if first {
            self.rescan_if_needed();
        }
    }

    /// A poll failed.
    pub fn failed(&self, reason: &'static str) {
        self.parts.freshness.poll_failed(reason);
        self.progress.send_modify(|progress| progress.failed = Some(Moment::now()));
    }

    /// A filter that was scanned before the polls began lacks what came between the two.
    pub(crate) fn rescan_if_needed(&self) {
        if self.parts.freshness.needs_scan_under_polls() {
            self.parts.rebuild.request();
        }
    }

    /// Returns once an early poll is requested.
    pub async fn wanted(&self) {
        self.requested.notified().await;
    }

    /// Returns once polls would complete a scan that begins now, or one has failed since this call. `/status` says so
    /// meanwhile.
    pub(crate) async fn cover_scan(&self) {
        let asked = Moment::now();
        if !self.is_polled() || self.progress.borrow().covering {
            return;
        }
        self.parts.freshness.explain_cold(WAITING.into());
        self.wait_for(|progress| progress.covering || progress.failed > Some(asked)).await;
        self.parts.freshness.explain_cold(BUILDING.into());
    }

    /// Polls now. Returns once a poll that began after `began` is complete or one has failed; true if nothing is left
    /// to be polled.
    pub(crate) async fn poll_after(&self, began: Moment) -> bool {
        let asked = Moment::now();
        self.requested.notify_one();
        self.wait_for(|progress| progress.completed >= Some(began) || progress.failed > Some(asked)).await;
        !self.is_polled() || self.progress.borrow().completed >= Some(began)
    }

    async fn wait_for(&self, condition: impl Fn(&PollProgress) -> bool) {
        if self.is_polled() {
            // The sender lives as long as this.
            let _ = self.progress.subscribe().wait_for(condition).await;
        }
    }

    /// For an operator.
    pub(crate) fn warning(&self) -> Option<String> {
        let why = self.parts.freshness.hidden_transactions()?;
        Some(format!(
            "rows of transactions that are open for longer than source.incremental.overlap may be missed by polls \
             until the next scan: {why}"
        ))
    }
}
