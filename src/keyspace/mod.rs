//! The keyspace of one keyspace: [`Keyspace::lookup`], announces, drops, and what builds need of it.

mod allowance;
mod announce;
mod announce_limits;
mod announce_rate;
mod batch;
mod build;
mod call;
mod canary;
mod check;
mod deleted;
mod distinct;
mod enforcement;
mod error;
mod fill;
mod follow;
mod freshness;
mod gate;
mod glance;
mod growth;
mod hold;
mod journal;
mod learn;
mod lease;
mod load;
mod mismatches;
mod missed;
mod observed;
mod outcome;
mod peers;
mod polled;
mod proof;
mod proven;
mod recent;
mod refresh;
mod report;
mod secret;
mod seen_rows;
mod set;
mod settings;
mod single_flight;
mod snapshot;
mod stale;
mod standing;
mod status;
mod storm;
mod trouble;
mod verify;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

pub use self::announce_limits::AnnounceLimits;
pub use self::build::{Build, CantBegin, CantSwap};
pub use self::check::{BatchCheck, Checked};
pub use self::enforcement::{EnforcementStatus, Origin, SwitchError};
pub use self::error::{AnnounceError, DropError, LookupError};
pub use self::follow::LogParts;
pub use self::journal::{Extent, Journal, JournalError, Replayed};
pub use self::mismatches::{Mismatch, Mismatches};
pub use self::outcome::{Answer, Lookup, LookupOptions, Probe, Staleness};
pub use self::polled::{PollCoverage, PollPlace};
pub use self::proof::ProofStatus;
pub use self::snapshot::{Expected, Refused, Restored, SnapshotParts, SnapshotStatus, Snapshots, restore};
pub use self::status::{AnnounceStatus, BackendStatus, KeyspaceStatus, LastRebuild};
pub(crate) use self::verify::{SourceSample, Verified};

use self::load::Errand;
use self::settings::Settings;
use self::single_flight::Loaded;
use self::standing::Standing;
use crate::backend::Backend;
use crate::cache::{HotCache, SharedCache};
use crate::clock::Moment;
use crate::config::KeyspaceConfig;
use crate::filter::Active;
use crate::fleet::Terms;
use crate::key::{Key, KeyError, KeyForm, KeySecret};
use crate::labels::{Source, State};
use crate::metrics::KeyspaceMetrics;

/// Keys that the backend has answered lately and that the next filter must hold.
const PROVEN_LIMIT: usize = 10_000;

/// What a keyspace is made of; the composition root fills it in.
pub struct Parts {
    /// Name of the keyspace.
    pub name: String,
    /// Its settings.
    pub config: KeyspaceConfig,
    /// The secret its keys are hashed under; `None`: not known yet, see [`Keyspace::agree_on_secret`].
    pub secret: Option<KeySecret>,
    /// The form of its keys; shared with the backend, which needs it to bind them. Empty until it is known.
    pub form: Arc<OnceLock<KeyForm>>,
    /// Redis, or the cache in this process that stands in for it.
    pub shared: Arc<dyn SharedCache>,
    /// The system of record.
    pub backend: Arc<dyn Backend>,
    /// How many announces are taken.
    pub announces: AnnounceLimits,
    /// Makes announces durable.
    pub journal: Journal,
    /// What the journal held at start.
    pub replayed: Replayed,
    /// What instances tell each other; `None`: there are no others.
    pub log: Option<LogParts>,
    /// The filter on disk; `None`: it is not kept.
    pub snapshot: Option<SnapshotParts>,
    /// Recorders.
    pub metrics: Arc<KeyspaceMetrics>,
}

/// One keyspace: lookups, announces, drops, builds.
pub struct Keyspace {
    name: String,
    deadline: Duration,
    peers: peers::Peers,
    settings: ArcSwap<Settings>,
    asked_fpr: f64,
    secret: secret::Secret,
    form: Arc<OnceLock<KeyForm>>,
    active: Arc<Active>,
    standing: Standing,
    hot: HotCache,
    shared: Arc<dyn SharedCache>,
    backend: Arc<dyn Backend>,
    gate: gate::Gate,
    breaker: call::BackendBreaker,
    /// Backend calls that one batch may have under way.
    batch_share: usize,
    /// Refreshes that may be under way: as many as a batch's calls, so that lookups keep three quarters of the backend.
    refreshes: Arc<Semaphore>,
    lease_times: lease::LeaseTimes,
    flights: Arc<single_flight::Flights>,
    recent: recent::Recent,
    announce_limits: AnnounceLimits,
    announce_rate: announce_rate::AnnounceRate,
    journal: Journal,
    fleet: Option<follow::Fleet>,
    proven: proven::Proven,
    deleted: deleted::Deleted,
    observed: observed::Observed,
    mismatches: mismatches::Memory,
    canary: canary::Canary,
    found_rows: missed::FoundRows,
    growth: growth::Growth,
    storm: storm::Storm,
    trouble: trouble::Trouble,
    write_trouble: trouble::Trouble,
    last_rebuild: Mutex<Option<LastRebuild>>,
    /// What the last scan found that endangers the key set.
    source_warning: Mutex<Option<String>>,
    /// What the backend said of keys that the last scan brought.
    sampled: Mutex<verify::SourceSample>,
    swapped_at: Mutex<Option<Moment>>,
    /// What the rebuild under way waits for.
    rebuild_waits: Mutex<Option<&'static str>>,
    /// Keys that the last scan brought, of each source.
    counted: Mutex<Vec<u64>>,
    snapshots: Option<Arc<Snapshots>>,
    /// What is still to be known of the filter that the process started from.
    untrusted: Mutex<Option<snapshot::Untrusted>>,
    rebuild_wanted: Notify,
    polls: polled::Polls,
    metrics: Arc<KeyspaceMetrics>,
}

/// A key that can't be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Without canonical form.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The form is not known yet: the key source, which would tell it, has not been read.
    #[error(
        "the key form of this keyspace is not known yet: its key source could not be asked; set `key` in the configuration to know it from the start"
    )]
    UnknownForm,
}

impl Keyspace {
    /// Assembles a keyspace. Its keyspace is cold until the first build.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let config = &parts.config;
        let life = config.commit_window + config.deadline;
        let share = (config.backend.max_concurrency / 4).max(1);
        let canary = canary::Canary::new(&config.canary, parts.backend.members().is_none());
        let (snapshots, restored) =
            parts.snapshot.map_or((None, None), |parts| (Some(parts.snapshots), parts.restored));
        let keyspace = Self {
            name: parts.name,
            deadline: config.deadline,
            peers: peers::Peers::new(
                Terms::new(None, config.data_fingerprint(), config.commit_window, config.deadline),
                parts.log.as_ref().map(|parts| parts.log.retention()),
            ),
            settings: ArcSwap::from_pointee(Settings::new(config)),
            asked_fpr: config.filter.false_positive_rate,
            secret: secret::Secret::new(parts.secret),
            form: parts.form,
            active: Arc::default(),
            standing: Standing::new(
                config.enforcement_setting(),
                config.freshness,
                config.max_staleness,
                parts.log.as_ref().map(|log| log.max_lag),
            )
            .with_hold(config.canary.hold)
            .with_proof(if parts.backend.members().is_none() { config.canary.proof } else { 0 })
            .with_snapshots(snapshots.clone()),
            hot: HotCache::new(config.cache.hot_capacity),
            shared: parts.shared,
            backend: parts.backend,
            gate: gate::Gate::new(config.backend.max_concurrency, config.backend.max_queue, config.deadline),
            breaker: call::BackendBreaker::new(config, &parts.metrics),
            batch_share: share,
            refreshes: Arc::new(Semaphore::new(share)),
            lease_times: lease::LeaseTimes::new(config),
            flights: single_flight::Flights::new(),
            recent: recent::Recent::new(life, parts.announces.of_memory()),
            announce_limits: parts.announces,
            announce_rate: parts.announces.rate(),
            journal: parts.journal,
            fleet: parts.log.map(follow::Fleet::new),
            proven: proven::Proven::new(PROVEN_LIMIT),
            deleted: deleted::Deleted::default(),
            observed: observed::Observed::default(),
            mismatches: mismatches::Memory::new(config.reveal_keys),
            canary,
            found_rows: missed::FoundRows::default(),
            growth: growth::Growth::new(&config.filter),
            storm: storm::Storm::default(),
            trouble: trouble::Trouble::default(),
            write_trouble: trouble::Trouble::default(),
            last_rebuild: Mutex::default(),
            source_warning: Mutex::default(),
            sampled: Mutex::default(),
            swapped_at: Mutex::default(),
            rebuild_waits: Mutex::default(),
            counted: Mutex::default(),
            snapshots,
            untrusted: Mutex::default(),
            rebuild_wanted: Notify::new(),
            polls: polled::Polls::new(config.source.iter().any(|source| source.incremental.is_some())),
            metrics: parts.metrics,
        };
        if let Some(restored) = restored {
            keyspace.start_from(restored);
        }
        keyspace.remember_replayed(&parts.replayed);
        if let Some(form) = keyspace.form() {
            keyspace.trust_snapshot(form);
        }
        Arc::new(keyspace)
    }

    /// Brings a request's bytes into canonical form.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn key(&self, raw: &[u8]) -> Result<Key, ParseError> {
        let form = self.form.get().ok_or(ParseError::UnknownForm)?;
        let key = form.canonical(raw)?;
        self.backend.admits((&key).into())?;
        Ok(key)
    }

    /// Looks a key up: filter, then hot tier, shared cache and backend, or the set of keys in their place. Lasts no longer than the keyspace's deadline;
    /// dropping the future abandons the wait, not a load that others share.
    pub async fn lookup(self: &Arc<Self>, key: Key, options: LookupOptions) -> Lookup {
        let errand = self.errand(key, options);
        let answer = match self.look_first(&errand) {
            Some(answer) => answer,
            None => self.load_together(&errand).await,
        };
        self.answered(&errand, answer)
    }

    /// [`Keyspace::lookup`] where it waits for nothing: the answer of filter, hot tier or set. `None`, and nothing counted: the key has to be looked up.
    #[must_use]
    pub fn lookup_at_once(&self, key: Key, options: LookupOptions) -> Option<Lookup> {
        let errand = self.errand(key, options);
        let answer = self.answer_at_once(&errand)?;
        self.count_look(&errand);
        Some(self.answered(&errand, answer))
    }

    /// Steps 2 and 3: hashes once and asks the filter.
    fn errand(&self, key: Key, options: LookupOptions) -> Errand {
        let (hash, glance) = self.hash_and_glance(&key);
        let given = key.given();
        let key = if given.is_some() { key.canonical() } else { key };
        Errand { glance, key, given, hash, options, refresh: false }
    }

    fn count_look(&self, errand: &Errand) {
        if errand.options.bypass {
            self.metrics.bypass();
        }
        self.count_probe(errand.hash, errand.glance.probe);
    }

    /// Steps 2 to 4, counted also where they find no answer: for who goes on to the next.
    fn look_first(&self, errand: &Errand) -> Option<Loaded> {
        self.count_look(errand);
        let answer = self.answer_at_once(errand);
        if answer.is_none() {
            self.count_hot_miss(errand);
        }
        answer
    }

    /// What needs no waiting: the filter's absence, the answer of a set in memory, or the hot tier's.
    fn answer_at_once(&self, errand: &Errand) -> Option<Loaded> {
        if errand.rejected() {
            self.sample(errand.hash, errand.glance.probe, || errand.asked());
            return Some(Ok(Answer::fresh(None, Source::Filter)));
        }
        match self.backend.members() {
            Some(members) => Some(self.ask_set(members, errand)),
            None => self.look_hot(errand).map(Ok),
        }
    }

    fn answered(&self, errand: &Errand, answer: Loaded) -> Lookup {
        let lookup = Lookup { probe: errand.glance.probe, answer };
        self.metrics.lookup(lookup.source(), lookup.result(), Moment::now().since(errand.glance.at));
        lookup
    }

    /// The present state.
    #[must_use]
    pub fn state(&self) -> State {
        self.standing.explain(Moment::now()).0
    }

    /// Number of the filter in force; 0 while there is none.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.active.current().map_or(0, |generation| generation.number)
    }

    /// Keys in the filter in force, estimated from its fill; `None` while there is none.
    #[must_use]
    pub fn items(&self) -> Option<u64> {
        self.active.current().map(|generation| generation.filter.items())
    }

    /// Name of the keyspace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name).finish_non_exhaustive()
    }
}
