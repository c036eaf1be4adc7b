//! One build, from count to swap. After any failure the active filter stays.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use super::agreement::agreement;
use super::checks;
use super::counts::{CountRule, KeyCounts};
use super::error::BuildError;
use super::fill::{AbandonOnDrop, Batches, FillThread, Pace, Scanned};
use super::gather::KeyCollector;
use super::memory::{MemoryBudget, MemoryReservation};
use super::plan::Plans;
use super::progress::Tracker;
use super::samples::Samples;
use super::scan_slot::{ScanSlot, ScanSlots};
use crate::backend::KeySet;
use crate::background;
use crate::config::{FilterConfig, KeyspaceFilterKind};
use crate::filter::{AllocError, Filter, FilterSpec};
use crate::key::KeyForm;
use crate::keyspace::{Build, Keyspace, Urgency};
use crate::labels::ScanTurn;
use crate::metrics::KeyspaceMetrics;
use crate::source::{KeySource, SourceError};

/// Batches buffered between the source and the filter: enough to keep both busy.
const BATCHES_AHEAD: usize = 4;

/// Initial capacity of a scalable filter whose number of keys is unknown.
const FIRST_LAYER_KEYS: u64 = 100_000;

/// Factor by which a flood of lookups may slow a build: 35 was measured on one processor, see docs/benchmarks.md.
const SLOWER_UNDER_A_FLOOD: f64 = 50.0;

/// What a build needs.
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

/// The result of a build.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) generation: u64,
    pub(super) keys: KeyCounts,
}

/// A candidate before its scan.
struct Candidate {
    reservation: Arc<MemoryReservation>,
    collector: Option<KeyCollector>,
    build: Arc<Build>,
}

impl Builder {
    /// Builds a filter and makes it active. `last`: key counts of the last scan.
    pub(super) async fn build(&self, last: Option<&KeyCounts>, tracker: &Arc<Tracker>) -> Result<Built, BuildError> {
        let form = self.key_form().await?;
        self.keyspace.prepare_scan().await?;
        // Before the first query to the source, and before a candidate takes memory. Held to the end.
        let _slot = self.wait_for_slot(tracker).await;
        let building = self.build_with_slot(form, last, tracker);
        if self.is_urgent() { background::at_normal_priority(building).await } else { building.await }
    }

    /// Returns true if a flood of lookups must not delay this build: there is no trusted filter, or the trust may end
    /// before the build does.
    fn is_urgent(&self) -> bool {
        let Urgency { has_trusted_filter, ages_in, last_took } = self.keyspace.urgency();
        let ages_soon = ages_in.is_some_and(|left| left.as_secs_f64() < last_took * SLOWER_UNDER_A_FLOOD);
        !has_trusted_filter || ages_soon
    }

    async fn build_with_slot(
        &self,
        form: KeyForm,
        last: Option<&KeyCounts>,
        tracker: &Arc<Tracker>,
    ) -> Result<Built, BuildError> {
        let request = tracker.begins();
        // In this order: after a failure the candidate is dropped before its reservation.
        let Candidate { reservation, collector, build } = self.begin(form, last, tracker).await?;
        let scan = Instant::now();
        let filled = self.fill(&build, collector, form, tracker).await;
        tracker.scan_took(scan.elapsed());
        let (samples, collector) = filled?;
        let keys: KeyCounts = samples.iter().map(Samples::keys).collect();
        // Even if the candidate is rejected: the warning may explain why.
        build.set_source_warning(self.source.warning());
        // Announces since `begin` are in already; a repetition costs little and does not depend on that.
        build.replay_recent();

        build.poll_to_end().await;
        let rule = CountRule {
            last,
            expected: self.filter.expected_keys,
            ratio: self.plans.current().config.min_keys_ratio,
            allow_empty: self.allow_empty,
            accept_fewer: request.accept_fewer,
        };
        rule.validate(&keys)?;
        checks::fill(&build, keys.total())?;
        checks::confirmed_keys(&build).await?;
        let (set, conflict) = self.compare(&build, form, &samples, collector).await?;

        let build = Arc::into_inner(build).ok_or(BuildError::Cancelled)?;
        let reservation = Arc::into_inner(reservation).ok_or(BuildError::Cancelled)?;
        let generation = build.swap(set, conflict).map_err(|_| BuildError::Cancelled)?;
        reservation.keep();
        Ok(Built { generation, keys })
    }

    /// Counts the source, reserves memory and publishes an empty candidate.
    async fn begin(&self, form: KeyForm, last: Option<&KeyCounts>, tracker: &Tracker) -> Result<Candidate, BuildError> {
        let counted = self.source.count().await?;
        if let Some(counted) = counted {
            tracker.expect(counted);
        }
        // A source that can't count may have grown since its last scan by the announced keys.
        let sizing = self.keyspace.sizing();
        let known = counted.or(last.map(KeyCounts::total).max(sizing.items));
        let (spec, reservation) = self.reserve(known, counted.is_some(), sizing.announced_lately)?;
        let bytes = spec.bytes_needed().map_err(AllocError::from)?;
        let reservation = Arc::new(reservation);
        let collector = match sizing.keeps_keys {
            true => Some(KeyCollector::new(form, known, Arc::clone(&reservation), bytes)?),
            false => None,
        };
        let room = self.memory.room();
        let filter = background::start("make-filter", move || Filter::within(spec, room))
            .await
            .map_err(|_| BuildError::Cancelled)??;
        let build = Arc::new(self.keyspace.begin(filter)?);
        Ok(Candidate { reservation, collector, build })
    }

    /// Compares the scanned keys with the backend, and builds the set if the keyspace keeps one.
    async fn compare(
        &self,
        build: &Build,
        form: KeyForm,
        samples: &[Samples],
        collector: Option<KeyCollector>,
    ) -> Result<(Option<KeySet>, Option<String>), BuildError> {
        let (set, agreed) = match collector {
            // The set is the backend: nothing can disagree with it.
            Some(collector) => (Some(collector.finish().await?), None),
            None => (None, agreement(build, form, samples).await?),
        };
        let declared = self.source.form_conflict(form).await?;
        let compared = build.form_conflict(form).await?;
        Ok((set, declared.or(compared).or(agreed)))
    }

    async fn wait_for_slot(&self, tracker: &Tracker) -> Option<ScanSlot> {
        let (slot, how) = self.slots.wait(&self.keyspace, tracker).await?;
        self.metrics.rebuilds.turn(how);
        if matches!(how, ScanTurn::TimedOut | ScanTurn::Unreachable) {
            tracing::info!(keyspace = self.keyspace.name(), %how, "scanning without a scan slot");
        }
        Some(slot)
    }

    /// The configured form, else the one that the source's column suggests.
    pub(super) async fn key_form(&self) -> Result<KeyForm, BuildError> {
        if let Some(form) = self.keyspace.form() {
            return Ok(form);
        }
        let form = self.source.key_form().await?.ok_or(BuildError::UnknownForm)?;
        Ok(self.keyspace.learn_form(form))
    }

    /// Reserves memory for the counted keys (or those of the last scan, if the source can't count), or for the expected
    /// keys if they are more. Adds room for the keys announced lately, if memory permits: a flood of announces must not
    /// prevent a build.
    fn reserve(
        &self,
        known: Option<u64>,
        counted: bool,
        lately: u64,
    ) -> Result<(FilterSpec, MemoryReservation), BuildError> {
        let growing = (self.filter.kind == KeyspaceFilterKind::Scalable).then_some(FIRST_LAYER_KEYS);
        let keys = known.max(self.filter.expected_keys).or(growing).ok_or(BuildError::UnknownSize)?;
        let configured = self.filter.capacity_for(keys);
        let spec =
            |capacity| FilterSpec { kind: self.filter.kind.into(), capacity, rate: self.filter.false_positive_rate };
        let try_reserve = |spec: FilterSpec| -> Result<_, BuildError> {
            let bytes = spec.bytes_needed().map_err(AllocError::from)?;
            Ok((spec, self.memory.reserve(self.keyspace.name(), bytes)?))
        };
        // The active filter contains the announced keys already; the source's count may include none of them.
        let room = if counted { lately.saturating_mul(2) } else { lately };
        let roomy = configured.max(keys.saturating_add(room));
        match try_reserve(spec(roomy)) {
            Err(_) if roomy > configured => try_reserve(spec(configured)),
            reserved => reserved,
        }
    }

    /// Streams the source into the candidate. The scan runs on the async threads, or on its own thread if the source
    /// blocks; hashing and inserting run on another. Returns samples of each source, and all keys if they are
    /// collected.
    async fn fill(
        &self,
        build: &Arc<Build>,
        collector: Option<KeyCollector>,
        form: KeyForm,
        tracker: &Arc<Tracker>,
    ) -> Result<Scanned, BuildError> {
        let (members, incoming) = mpsc::channel(1);
        let abandon = AbandonOnDrop(Arc::default());
        let thread = FillThread {
            build: Arc::clone(build),
            collector,
            tracker: Arc::clone(tracker),
            pace: Pace::new(self.plans.current().config.max_keys_per_second),
            abandoned: Arc::clone(&abandon.0),
        };
        let filled = background::start("fill-filter", move || thread.fill(incoming));
        let scanned = self.scan(form, members).await;
        // Before the result of the scan: a fill thread that fails makes the scan end too.
        let filled = filled.await.map_err(|_| BuildError::Cancelled)??;
        drop(abandon);
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
