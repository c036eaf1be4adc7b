//! One build, from counting to swap. Whatever fails, the filter in force stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::agreement::agreement;
use super::checks;
use super::counts::{CountRule, KeyCounts};
use super::error::BuildError;
use super::gather::Gathered;
use super::memory::{MemoryBudget, Reservation};
use super::plan::Plans;
use super::progress::Tracker;
use super::samples::Samples;
use super::turn::{ScanSlot, ScanSlots};
use crate::background;
use crate::config::{FilterConfig, FilterKind};
use crate::filter::{AllocError, Filter, FilterSpec};
use crate::key::{KeyBatch, KeyForm};
use crate::keyspace::{Build, Findings, Keyspace, Urgency};
use crate::labels::ScanTurn;
use crate::metrics::KeyspaceMetrics;
use crate::source::{KeySource, SourceError};

/// Batches on their way from the source to the filter: enough to keep both busy.
const BATCHES_AHEAD: usize = 4;

/// Keys that a filter is begun with which grows while it is filled, and of which nobody knows how large it will be.
const FIRST_LAYER_KEYS: u64 = 100_000;

/// How many times as long a build may take that comes behind the lookups of a flood: 35 times were measured on one processor, see docs/benchmarks.md.
const SLOWER_UNDER_A_FLOOD: f64 = 50.0;

/// What a build works with.
pub(super) struct Builder {
    pub(super) keyspace: Arc<Keyspace>,
    pub(super) source: Arc<dyn KeySource>,
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) filter: FilterConfig,
    pub(super) plans: Plans,
    pub(super) allow_empty: bool,
    pub(super) slots: ScanSlots,
    pub(super) metrics: Arc<KeyspaceMetrics>,
}

/// What a build ended with.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) generation: u64,
    pub(super) keys: KeyCounts,
}

impl Builder {
    /// Builds a filter and puts it in force. `last`: what the last scan brought.
    pub(super) async fn build(&self, last: Option<&KeyCounts>, tracker: &Arc<Tracker>) -> Result<Built, BuildError> {
        let form = self.key_form().await?;
        self.keyspace.prepare_scan().await?;
        // Before anything is asked of the source, and while there is no candidate that would sit beside the filter. Kept to the end.
        let _turn = self.wait_for_turn(tracker).await;
        let building = self.build_in_turn(form, last, tracker);
        if self.is_urgent() { background::at_normal_priority(building).await } else { building.await }
    }

    /// Returns true if the build must not give way to a flood of lookups: there is no trusted filter, or none before this build ends.
    fn is_urgent(&self) -> bool {
        let Urgency { has_trusted_filter, ages_in, last_took } = self.keyspace.urgency();
        let ages_soon = ages_in.is_some_and(|left| left.as_secs_f64() < last_took * SLOWER_UNDER_A_FLOOD);
        !has_trusted_filter || ages_soon
    }

    async fn build_in_turn(
        &self,
        form: KeyForm,
        last: Option<&KeyCounts>,
        tracker: &Arc<Tracker>,
    ) -> Result<Built, BuildError> {
        let request = tracker.begins();
        let counted = self.source.count().await?;
        if let Some(counted) = counted {
            tracker.expect(counted);
        }
        // A source that can't count may have grown since its last scan by what was announced.
        let sizing = self.keyspace.sizing();
        let known = counted.or(last.map(KeyCounts::total).max(sizing.items));
        let (spec, reservation) = self.set_aside(known, counted.is_some(), sizing.announced_lately)?;
        let bytes = spec.bytes_needed().map_err(AllocError::from)?;
        let reservation = Arc::new(reservation);
        let gathered = match sizing.keeps_keys {
            true => Some(Gathered::new(form, known, Arc::clone(&reservation), bytes)?),
            false => None,
        };
        let room = self.memory.room();
        let filter = background::start("make-filter", move || Filter::within(spec, room))
            .await
            .map_err(|_| BuildError::Cancelled)??;
        let build = Arc::new(self.keyspace.begin(filter)?);

        let scan = Instant::now();
        let filled = self.fill(&build, gathered, form, tracker).await;
        tracker.scan_took(scan.elapsed());
        let (samples, gathered) = filled?;
        let keys: KeyCounts = samples.iter().map(Samples::keys).collect();
        // Whatever becomes of the candidate: it may be what explains a refusal.
        build.set_source_warning(self.source.warning());
        // Announces since `begin` are in already; once more costs little and does not depend on that.
        build.replay_recent();

        build.poll_to_end().await;
        let rule = CountRule {
            last,
            expected: self.filter.expected_keys,
            ratio: self.plans.present().config.min_keys_ratio,
            allow_empty: self.allow_empty,
            accept_fewer: request.accept_fewer,
        };
        rule.judge(&keys)?;
        checks::fill(&build, keys.total())?;
        checks::confirmed_keys(&build).await?;
        let (set, agreed) = match gathered {
            // The source is all that there is: nothing could disagree with it.
            Some(gathered) => (Some(gathered.finish().await?), Findings::default()),
            None => (None, agreement(&build, form, &samples).await?),
        };
        let declared = self.source.form_conflict(form).await?;
        let compared = build.form_conflict(form).await?;
        let findings = Findings { conflict: declared.or(compared).or(agreed.conflict), ..agreed };

        let build = Arc::into_inner(build).ok_or(BuildError::Cancelled)?;
        let reservation = Arc::into_inner(reservation).ok_or(BuildError::Cancelled)?;
        let generation = build.swap(set, findings).map_err(|_| BuildError::Cancelled)?;
        reservation.keep();
        Ok(Built { generation, keys })
    }

    async fn wait_for_turn(&self, tracker: &Tracker) -> Option<ScanSlot> {
        let (turn, how) = self.slots.wait(&self.keyspace, tracker).await?;
        self.metrics.rebuilds.turn(how);
        if matches!(how, ScanTurn::TimedOut | ScanTurn::Unreachable) {
            tracing::info!(keyspace = self.keyspace.name(), %how, "scanning without a turn among the instances");
        }
        Some(turn)
    }

    /// The configured form, else the one that the source's column suggests.
    pub(super) async fn key_form(&self) -> Result<KeyForm, BuildError> {
        if let Some(form) = self.keyspace.form() {
            return Ok(form);
        }
        let form = self.source.key_form().await?.ok_or(BuildError::UnknownForm)?;
        Ok(self.keyspace.learn_form(form))
    }

    /// Room for the keys that were counted (or, where the source can't count, those of the last scan), and for those that are expected; and for those that
    /// were announced lately, as far as there is memory: a flood of announces must not keep a filter from being built.
    fn set_aside(
        &self,
        known: Option<u64>,
        counted: bool,
        lately: u64,
    ) -> Result<(FilterSpec, Reservation), BuildError> {
        let growing = (self.filter.kind == FilterKind::Scalable).then_some(FIRST_LAYER_KEYS);
        let keys = known.max(self.filter.expected_keys).or(growing).ok_or(BuildError::UnknownSize)?;
        let configured = self.filter.capacity_for(keys);
        let spec =
            |capacity| FilterSpec { kind: self.filter.kind.into(), capacity, rate: self.filter.false_positive_rate };
        let reserve = |spec: FilterSpec| -> Result<_, BuildError> {
            let bytes = spec.bytes_needed().map_err(AllocError::from)?;
            Ok((spec, self.memory.reserve(self.keyspace.name(), bytes)?))
        };
        // What the filter in force holds has them already; what the source counts may have none of them.
        let room = if counted { lately.saturating_mul(2) } else { lately };
        let roomy = configured.max(keys.saturating_add(room));
        match reserve(spec(roomy)) {
            Err(_) if roomy > configured => reserve(spec(configured)),
            reserved => reserved,
        }
    }

    /// Streams the source into the candidate: the scan is on the async threads, or on one of its own where the source blocks, hashing and inserting on another. Returns a few of the
    /// keys of each source of a union, and where all are to be gathered, all.
    async fn fill(
        &self,
        build: &Arc<Build>,
        gathered: Option<Gathered>,
        form: KeyForm,
        tracker: &Arc<Tracker>,
    ) -> Result<(Vec<Samples>, Option<Gathered>), BuildError> {
        let (members, incoming) = mpsc::channel(1);
        let leash = Leash(Arc::default());
        let filler = Filler {
            build: Arc::clone(build),
            gathered,
            tracker: Arc::clone(tracker),
            pace: Pace::new(self.plans.present().config.max_keys_per_second),
            abandoned: Arc::clone(&leash.0),
        };
        let filled = background::start("fill-filter", move || filler.fill(incoming));
        let scanned = self.scan(form, members).await;
        // Before what the scan says: a filler that gives up makes the scan end too.
        let filled = filled.await.map_err(|_| BuildError::Cancelled)??;
        drop(leash);
        scanned?;
        Ok(filled)
    }

    /// Scans the sources of a union one after another, each into a channel of its own.
    async fn scan(&self, form: KeyForm, members: mpsc::Sender<Batches>) -> Result<(), SourceError> {
        for member in 0..self.source.members() {
            let (batches, incoming) = mpsc::channel(BATCHES_AHEAD);
            members.send(incoming).await.map_err(|_| SourceError::Cancelled)?;
            self.source.scan_member(member, form, batches).await?;
        }
        Ok(())
    }
}

/// The keys of one source, in batches.
type Batches = mpsc::Receiver<KeyBatch>;

/// What the thread needs that hashes and inserts.
struct Filler {
    build: Arc<Build>,
    gathered: Option<Gathered>,
    tracker: Arc<Tracker>,
    pace: Pace,
    abandoned: Arc<AtomicBool>,
}

impl Filler {
    fn fill(mut self, mut members: mpsc::Receiver<Batches>) -> Result<(Vec<Samples>, Option<Gathered>), BuildError> {
        let mut samples = Vec::new();
        while let Some(batches) = members.blocking_recv() {
            samples.push(self.fill_from(batches)?);
        }
        Ok((samples, self.gathered))
    }

    fn fill_from(&mut self, mut batches: Batches) -> Result<Samples, BuildError> {
        let mut samples = Samples::new();
        while let Some(batch) = batches.blocking_recv() {
            if let Some(gathered) = &mut self.gathered {
                gathered.add(&batch)?;
            }
            self.build.fill(&batch);
            samples.draw(&batch);
            self.tracker.read(batch.len() as u64);
            self.pace.keep(batch.len() as u64, &self.abandoned);
            if self.abandoned.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(samples)
    }
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
        while let Some(left) =
            due.checked_sub(self.began.elapsed()).filter(|left| !left.is_zero() && !abandoned.load(Ordering::Relaxed))
        {
            std::thread::sleep(left.min(Self::NAP));
        }
    }
}
