//! What polls find, and what they are worth to the keyspace's standing.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::Keyspace;
use super::seen_rows::{SeenRows, Sight};
use crate::cache::{CacheError, Over};
use crate::clock::Moment;
use crate::key::KeyHash;
use crate::source::{PolledKey, Watermark};

/// Rows that are taken in while lookups wait for what is remembered of them.
const HANDFUL: usize = 256;

const WAITING: &str = "waiting for polls to begin; where the watermark is no timestamp, until source.incremental.overlap is over and every \
    transaction has ended that was open when the watermark was first read";

/// What a complete poll covers.
#[derive(Debug, Clone, Copy)]
pub struct PollCoverage {
    /// A scan that began later, and the polls since, miss no row; `None`: it is not known yet what does.
    pub covers: Option<Moment>,
    /// Why transactions of others can't be seen at a source.
    pub hidden: Option<&'static str>,
}

/// From where on a source has to be polled so that, with what its keyspace's filter holds already, no row is missed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollPlace {
    /// The watermark from which the poll after the last complete one starts.
    pub from: Watermark,
    /// When the last complete one began: whatever was visible then is in the filter.
    pub began: Moment,
    /// How long the oldest transaction had been open then.
    pub open_for: Duration,
}

/// How polling goes, for builds that wait for it.
#[derive(Debug)]
pub(super) struct Polls {
    /// Of the last complete poll; empty before the first.
    places: Mutex<Vec<PollPlace>>,
    /// Where a snapshot tells to begin, and when the scan of its filter began.
    resume: Mutex<Option<(Vec<PollPlace>, Moment)>>,
    seen: Mutex<SeenRows>,
    /// Where no source is polled nobody need wait.
    any: bool,
    wanted: Notify,
    progress: watch::Sender<Progress>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// A scan that begins now would be covered.
    covering: bool,
    /// Start of the last complete poll.
    completed: Option<Moment>,
    /// End of the last one that failed.
    failed: Option<Moment>,
}

impl Polls {
    pub(super) fn new(any: bool) -> Self {
        Self {
            places: Mutex::default(),
            resume: Mutex::default(),
            seen: Mutex::default(),
            any,
            wanted: Notify::new(),
            progress: watch::Sender::default(),
        }
    }

    /// Polls begin where a snapshot tells.
    pub(super) fn resume(&self, places: Vec<PollPlace>, scan_started: Moment) {
        *self.resume.lock() = Some((places, scan_started)).filter(|(places, _)| !places.is_empty());
    }

    /// Of the last complete poll; empty before the first.
    pub(super) fn places(&self) -> Vec<PollPlace> {
        self.places.lock().clone()
    }
}

impl Keyspace {
    /// A poll begins, at this moment.
    pub fn begin_poll(&self, began: Moment) {
        self.polls.seen.lock().begin(began, self.shared.epoch());
    }

    /// Takes in rows that the poll under way found. Those that the last complete one had found, by the stamp of their watermark, have been taken in before
    /// and only reach the filters, of which one may be younger. Returns how many were new.
    ///
    /// # Errors
    /// [`CacheError`]: a cached absence of a new key may be left in the shared cache, or be stored there yet.
    pub async fn learn_polled(&self, rows: &[PolledKey]) -> Result<u64, CacheError> {
        let (mut hashes, mut keys, mut looked_after) = (Vec::new(), Vec::new(), Vec::new());
        for handful in rows.chunks(HANDFUL) {
            let mut seen = self.polls.seen.lock();
            for row in handful {
                let hash = self.secret.hash(&row.key);
                let sight = seen.see(hash, row);
                match sight {
                    Sight::New => {
                        hashes.push(hash);
                        keys.push(row.key.canonical());
                        continue;
                    }
                    Sight::LookedAfter => looked_after.push(row.key.canonical()),
                    Sight::Known => {}
                }
                self.active.insert(hash.get());
            }
        }
        // As an announce: the row is committed, but a backend that is a replica may not have it yet.
        self.recent.remember_polled(&hashes, Moment::now());
        self.expect_rows(&hashes);
        if self.members().is_none() {
            // Values stay: polls bring rows that were changed too, and every instance polls, so marks in their place would keep the shared cache from
            // holding any. Where nothing is, an instance may be about to store what it read before the row came, and may die before its own poll.
            self.shared.end_absences(&keys, Over::AllButValues, self.recent.life()).await?;
            self.shared.end_absences(&looked_after, Over::Absences, self.recent.life()).await?;
        }
        Ok(hashes.len() as u64)
    }

    /// Whether a poll has found a row of this key within the last window: no absence of it is to be believed.
    pub(super) fn was_polled(&self, hash: KeyHash, now: Moment) -> bool {
        self.polls.any && self.polls.seen.lock().contains(hash, now, self.recent.life())
    }

    /// Polls begin, as at the start or because the source has changed. `covers`: since when a scan must have begun for them to complete it.
    pub fn polls_began(&self, covers: Option<Moment>) {
        self.polls.places.lock().clear();
        self.standing.polls_began(covers);
        self.polls.progress.send_modify(|progress| progress.covering = covers.is_some());
        self.rescan_under_polls();
    }

    /// From where on later polls start. To be told before the poll counts as complete.
    pub fn note_poll_places(&self, places: Vec<PollPlace>) {
        *self.polls.places.lock() = places;
    }

    /// Where polls may begin, once, and since when a scan must have begun for them to complete it.
    pub fn take_poll_places(&self) -> Option<(Vec<PollPlace>, Moment)> {
        self.polls.resume.lock().take()
    }

    /// A poll that began then has read every source to its end.
    pub fn poll_completed(&self, began: Moment, coverage: PollCoverage) {
        self.void_untrusted_absences();
        self.polls.seen.lock().complete(Moment::now(), self.recent.life());
        self.standing.polled(began, coverage);
        let mut first = false;
        self.polls.progress.send_modify(|progress| {
            first = coverage.covers.is_some() && !progress.covering;
            progress.covering = coverage.covers.is_some();
            progress.completed = Some(began);
        });
        if first {
            self.rescan_under_polls();
        }
    }

    /// A filter that was scanned before the polls began lacks what came between the two.
    pub(super) fn rescan_under_polls(&self) {
        if self.standing.needs_scan_under_polls() {
            self.rebuild_wanted.notify_one();
        }
    }

    /// A poll failed; the keyspace's standing ages by itself.
    pub fn poll_failed(&self, reason: &'static str) {
        self.standing.poll_failed(reason);
        self.polls.progress.send_modify(|progress| progress.failed = Some(Moment::now()));
    }

    /// Returns when somebody wants a poll before its time.
    pub async fn poll_wanted(&self) {
        self.polls.wanted.notified().await;
    }

    /// Returns once polls would complete a scan that begins now, or one has failed since this was asked. What waits says so in `/status`.
    pub(crate) async fn polls_cover(&self) {
        let asked = Moment::now();
        if !self.polls.any || self.polls.progress.borrow().covering {
            return;
        }
        self.still_cold(WAITING.into());
        self.wait_for_polls(|progress| progress.covering || progress.failed > Some(asked)).await;
        self.still_cold("the first filter is being built".into());
    }

    /// Polls now; returns once a poll that began after `began` is complete, or one has failed, and says whether nothing is left to be polled.
    pub(crate) async fn poll_after(&self, began: Moment) -> bool {
        let asked = Moment::now();
        self.polls.wanted.notify_one();
        self.wait_for_polls(|progress| progress.completed >= Some(began) || progress.failed > Some(asked)).await;
        !self.polls.any || self.polls.progress.borrow().completed >= Some(began)
    }

    /// What an operator should know of the polls.
    pub(super) fn poll_warning(&self) -> Option<String> {
        let why = self.standing.hidden_transactions()?;
        Some(format!(
            "rows of transactions that are open for longer than source.incremental.overlap may be missed by polls until the next scan: {why}"
        ))
    }

    async fn wait_for_polls(&self, enough: impl Fn(&Progress) -> bool) {
        if self.polls.any {
            // The sender lives as long as the keyspace.
            let _ = self.polls.progress.subscribe().wait_for(enough).await;
        }
    }
}
