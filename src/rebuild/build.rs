//! One build, from counting to swap. Whatever fails, the filter in force stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::checks::{self, CountRule};
use super::error::BuildError;
use super::gather::Gathered;
use super::memory::MemoryBudget;
use super::progress::Tracker;
use super::request::RebuildRequest;
use super::samples::Samples;
use crate::config::{FilterConfig, RebuildConfig};
use crate::filter::{AllocError, SplitBlock};
use crate::guard::{Build, Guard, NoSet};
use crate::key::{Key, KeyForm};
use crate::source::KeySource;

/// Batches on their way from the source to the filter: enough to keep both busy.
const BATCHES_AHEAD: usize = 4;

/// What a build works with.
pub(super) struct Tools {
    pub(super) guard: Arc<Guard>,
    pub(super) source: Arc<dyn KeySource>,
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) filter: FilterConfig,
    pub(super) rebuild: RebuildConfig,
    pub(super) allow_empty: bool,
}

/// What a build ended with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Built {
    pub(super) generation: u64,
    pub(super) keys: u64,
}

impl Tools {
    /// Builds a filter and puts it in force. `last_keys`: what the last scan brought.
    pub(super) async fn build(&self, request: RebuildRequest, last_keys: Option<u64>, tracker: &Arc<Tracker>) -> Result<Built, BuildError> {
        let form = self.key_form().await?;
        if !self.guard.has_secret() {
            return Err(BuildError::NoSecret);
        }
        // Rows that become visible while it is scanned are for polls to find.
        self.guard.polls_cover().await;
        let counted = self.source.count().await?;
        if let Some(counted) = counted {
            tracker.expect(counted);
        }
        let known = counted.or(last_keys);
        let (rate, capacity) = (self.filter.false_positive_rate, self.capacity(known)?);
        let bytes = SplitBlock::bytes_needed(capacity, rate).map_err(AllocError::from)?;
        let reservation = Arc::new(self.memory.reserve(self.guard.name(), bytes)?);
        let gathered = match self.guard.members() {
            Some(_) => Some(Gathered::new(form, known, Arc::clone(&reservation), bytes)?),
            None => None,
        };
        let filter = tokio::task::spawn_blocking(move || SplitBlock::new(capacity, rate)).await.map_err(|_| BuildError::Cancelled)??;
        let build = Arc::new(self.guard.begin(filter).map_err(|_| BuildError::Cancelled)?);

        let (samples, gathered) = self.fill(&build, gathered, form, tracker).await?;
        let keys = tracker.keys_read();
        // Whatever becomes of the candidate: it may be what explains a refusal.
        self.guard.source_warning(self.source.warning());
        // Announces since `begin` are in already; once more costs little and does not depend on that.
        build.replay_recent();

        self.guard.poll_after(build.began()).await;
        let rule = CountRule {
            last: last_keys,
            expected: self.filter.expected_keys,
            ratio: self.rebuild.min_keys_ratio,
            allow_empty: self.allow_empty,
            accept_fewer: request.accept_fewer,
        };
        checks::count(keys, rule)?;
        checks::fill(&build, keys)?;
        checks::proven_keys(&self.guard, &build).await?;
        let (set, conflict) = match gathered {
            // The source is all that there is: nothing could disagree with it.
            Some(gathered) => (Some(gathered.finish().await?), None),
            None => (None, checks::agreement(&self.guard, &build, form, &samples).await?),
        };
        let declared = self.source.form_conflict(form).await?;
        let compared = self.guard.backend_conflict(form).await?;
        self.guard.form_conflict(declared.or(compared).or(conflict));

        let build = Arc::into_inner(build).ok_or(BuildError::Cancelled)?;
        let reservation = Arc::into_inner(reservation).ok_or(BuildError::Cancelled)?;
        let generation = build.swap(set).map_err(|NoSet| BuildError::Cancelled)?;
        reservation.keep();
        Ok(Built { generation, keys })
    }

    /// The configured form, else the one that the source's column suggests.
    pub(super) async fn key_form(&self) -> Result<KeyForm, BuildError> {
        if let Some(form) = self.guard.form() {
            return Ok(form);
        }
        let form = self.source.key_form().await?.ok_or(BuildError::UnknownForm)?;
        Ok(self.guard.learn_form(form))
    }

    /// Room for the keys that were counted (or, where the source can't count, those of the last scan), and for those that are expected.
    fn capacity(&self, known: Option<u64>) -> Result<u64, BuildError> {
        let keys = known.max(self.filter.expected_keys).ok_or(BuildError::UnknownSize)?;
        Ok((keys as f64 * self.filter.headroom).ceil() as u64)
    }

    /// Streams the source into the candidate: the scan stays on the async threads, hashing and inserting on one of its own. Returns a few of the
    /// keys, or where all are to be gathered, all.
    async fn fill(
        &self,
        build: &Arc<Build>,
        gathered: Option<Gathered>,
        form: KeyForm,
        tracker: &Arc<Tracker>,
    ) -> Result<(Samples, Option<Gathered>), BuildError> {
        let (batches, incoming) = mpsc::channel(BATCHES_AHEAD);
        let leash = Leash(Arc::default());
        let inserter = {
            let (build, tracker, pace) = (Arc::clone(build), Arc::clone(tracker), Pace::new(self.rebuild.max_keys_per_second));
            let abandoned = Arc::clone(&leash.0);
            tokio::task::spawn_blocking(move || insert_all(&build, gathered, incoming, &tracker, pace, &abandoned))
        };
        let scanned = self.source.scan(form, batches).await;
        // Before what the scan says: a filler that gives up makes the scan end too.
        let filled = inserter.await.map_err(|_| BuildError::Cancelled)??;
        drop(leash);
        scanned?;
        Ok(filled)
    }
}

fn insert_all(
    build: &Build,
    mut gathered: Option<Gathered>,
    mut incoming: mpsc::Receiver<Vec<Key>>,
    tracker: &Tracker,
    mut pace: Pace,
    abandoned: &AtomicBool,
) -> Result<(Samples, Option<Gathered>), BuildError> {
    let mut samples = Samples::default();
    while let Some(batch) = incoming.blocking_recv() {
        if let Some(gathered) = &mut gathered {
            gathered.add(&batch)?;
        }
        for key in &batch {
            build.filter().insert(build.hash(key).get());
        }
        samples.draw(&batch);
        tracker.read(batch.len() as u64);
        pace.keep(batch.len() as u64, abandoned);
        if abandoned.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok((samples, gathered))
}

/// Tells the thread that fills a filter when nobody wants it any more: a process that stops waits for that thread.
struct Leash(Arc<AtomicBool>);

impl Drop for Leash {
    fn drop(&mut self) {
        // Relaxed, here and where it is read: it only ends a loop.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps a scan at `max_keys_per_second` by letting its reader sleep; the bounded channel then slows the source.
struct Pace {
    per_second: u64,
    began: Instant,
    keys: u64,
}

impl Pace {
    /// Longest time that passes before the end of a build is noticed.
    const NAP: Duration = Duration::from_millis(20);

    fn new(per_second: u64) -> Self {
        Self { per_second, began: Instant::now(), keys: 0 }
    }

    fn keep(&mut self, keys: u64, abandoned: &AtomicBool) {
        if self.per_second == 0 {
            return;
        }
        self.keys += keys;
        let due = Duration::from_secs_f64(self.keys as f64 / self.per_second as f64);
        while let Some(left) = due.checked_sub(self.began.elapsed()).filter(|left| !left.is_zero() && !abandoned.load(Ordering::Relaxed)) {
            std::thread::sleep(left.min(Self::NAP));
        }
    }
}
