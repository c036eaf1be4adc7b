//! One keyspace: lookups, announces, drops, and what builds need of it.
//!
//! [`Keyspace`] is a facade. Each part has its own small state and says what it does not know:
//!
//! | part | room |
//! |---|---|
//! | what the filter answers for one key | `probe`, `probe_batch` |
//! | lookups | `read` |
//! | the backend's calls | `backend` |
//! | the right to answer 404 from the filter | `freshness` |
//! | announces and drops | `write` |
//! | other instances' announces and drops | `replicate` |
//! | new rows that polls find | `polls` |
//! | what answers say of filter and backend | `audit`, `stats` |
//! | the filter on disk | `snapshot` |
//! | builds | `build`, `build_state` |

mod audit;
mod backend;
mod build;
mod build_state;
mod compose;
mod error;
mod fleet_secret;
mod freshness;
mod identity;
mod journal;
mod membership;
mod outcome;
mod polls;
mod probe;
mod probe_batch;
mod read;
mod rebuild_signal;
mod replicate;
mod request;
mod run;
mod secret;
mod single_flight;
mod snapshot;
mod snapshot_file;
mod stats;
mod status;
mod write;

use std::sync::Arc;

pub(crate) use self::backend::Verified;
pub(crate) use self::build::Urgency;
pub use self::build::{Build, CantBegin, CantSwap};
pub use self::build_state::LastRebuild;
pub(crate) use self::build_state::SourceSample;
pub use self::compose::KeyspaceParts;
pub use self::error::{AnnounceError, DropError, LookupError};
pub use self::freshness::{EnforcementOrigin, EnforcementStatus, PollCoverage, ProofStatus, SwitchError};
pub use self::journal::{Extent, Journal, JournalError, Replayed};
pub use self::outcome::{Answer, Lookup, LookupOptions, Probe, Staleness};
pub use self::polls::{PollPlace, PollTracker};
pub use self::probe_batch::{BatchCheck, Checked};
pub use self::replicate::LogParts;
pub use self::snapshot::{Expected, Refused, Restored, SnapshotParts, restore};
pub use self::snapshot_file::{SnapshotFile, SnapshotStatus};
pub use self::stats::{Mismatch, Mismatches};
pub use self::status::{AnnounceStatus, BackendStatus, KeyspaceStatus};
pub use self::write::AnnounceLimits;

use self::audit::Audit;
use self::backend::BackendClient;
use self::build_state::BuildState;
use self::freshness::FreshnessTracker;
use self::identity::Identity;
use self::probe::Prober;
use self::read::{FillLimits, Reader};
use self::replicate::LogFollower;
use self::snapshot::SnapshotKeeper;
use self::stats::FilterStats;
use self::write::Writer;
use crate::backend::BackendError;
use crate::buffers::Reservation;
use crate::config::{EnforcementSetting, KeyspaceConfig};
use crate::fleet::Version;
use crate::key::{Key, KeyError, KeyForm};
use crate::labels::{State, Verdict};

/// One keyspace.
pub struct Keyspace {
    identity: Arc<Identity>,
    prober: Arc<Prober>,
    freshness: Arc<FreshnessTracker>,
    backend: Arc<BackendClient>,
    reader: Arc<Reader>,
    writer: Arc<Writer>,
    /// `None`: there is no delta log, so there are no other instances.
    follower: Option<Arc<LogFollower>>,
    polls: Arc<PollTracker>,
    stats: Arc<FilterStats>,
    audit: Arc<Audit>,
    snapshots: Arc<SnapshotKeeper>,
    builds: Arc<BuildState>,
}

/// A key that can't be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It has no canonical form.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The form is not known yet: it comes from the key source, which has not been read.
    #[error(
        "the key form of this keyspace is not known yet: its key source could not be asked; set `key` in the \
         configuration to know it from the start"
    )]
    UnknownForm,
}

impl Keyspace {
    /// Brings a request's bytes into canonical form.
    ///
    /// # Errors
    /// [`ParseError`].
    pub fn key(&self, raw: &[u8]) -> Result<Key, ParseError> {
        let form = self.identity.form.get().ok_or(ParseError::UnknownForm)?;
        let key = form.canonical(raw)?;
        self.backend.admits((&key).into())?;
        Ok(key)
    }

    /// Looks a key up: filter, then hot tier, shared cache and backend, or the set of keys in their place. Lasts no
    /// longer than the keyspace's deadline; dropping the future ends the wait, not a load that others share.
    pub async fn lookup(&self, key: Key, options: LookupOptions) -> Lookup {
        self.reader.lookup(key, options).await
    }

    /// [`Keyspace::lookup`] if it waits for nothing: the answer of filter, hot tier or set. `None`, and nothing
    /// counted: the key has to be looked up.
    #[must_use]
    pub fn lookup_at_once(&self, key: Key, options: LookupOptions) -> Option<Lookup> {
        self.reader.lookup_locally(key, options)
    }

    /// Looks many keys up, coalesced with single lookups. Lasts no longer than the keyspace's deadline; each key fails
    /// for itself: if it is not known by then, if its value does not fit into `max_bytes` beside the others, or can't
    /// be added to `held` (the values and the response that they are written into).
    pub async fn lookup_all(
        &self,
        keys: Vec<Key>,
        options: LookupOptions,
        max_bytes: u64,
        held: &mut Reservation,
    ) -> Vec<Lookup> {
        self.reader.lookup_all(keys, options, max_bytes, held).await
    }

    /// Asks the filter only.
    pub fn check(&self, key: &Key) -> Probe {
        let (hash, probed) = self.prober.probe(key);
        let probe = probed.probe;
        self.stats.record_probe(hash, probe);
        if probe.effective() == Verdict::Absent {
            self.audit.sample(hash, probe, || key.clone());
        } else if probe.verdict == Verdict::Absent && probed.trusted {
            self.audit.canary.sample_for_proof(key, hash, probe);
        }
        probe
    }

    /// Asks the filter without counting the answer.
    #[must_use]
    pub fn peek(&self, key: &Key) -> Probe {
        self.prober.probe(key).1.probe
    }

    /// Announces keys before their rows are committed, all or none. Returns once they can't be lost, with the version
    /// from which any instance knows them, if there are several. Lasts no longer than the keyspace's deadline.
    ///
    /// # Errors
    /// [`AnnounceError`]: not durable, so the rows must not be committed.
    pub async fn announce(&self, keys: &[Key]) -> Result<Option<Version>, AnnounceError> {
        self.writer.announce(keys).await
    }

    /// Drops a removed row's key from every cache. The filter keeps its bits until the next build.
    ///
    /// # Errors
    /// [`DropError`]: the shared cache may still hold the old row.
    pub async fn delete(&self, key: &Key) -> Result<(), DropError> {
        self.writer.delete(key).await
    }

    /// Drops the values and absences of changed rows from every cache; a fill in progress can't bring them back.
    ///
    /// # Errors
    /// [`DropError`]: the shared cache may still hold old values.
    pub async fn invalidate(&self, keys: &[Key]) -> Result<(), DropError> {
        self.writer.invalidate(keys).await
    }

    /// Returns true if everything up to `version` has taken effect here. Says something of probes that come after this
    /// call only. Returns false for a version of another log or keyspace.
    #[must_use]
    pub fn has_applied(&self, version: &Version) -> bool {
        self.follower.as_ref().is_some_and(|follower| follower.has_applied(version))
    }

    /// For which keys the filter answers 404, and the origin of that setting.
    #[must_use]
    pub fn enforcement(&self) -> EnforcementStatus {
        self.freshness.enforcement().status()
    }

    /// Replaces the enforcement of this instance, until it or the fleet is switched again; `None`: the fleet's applies,
    /// or the configuration.
    pub fn enforce_here(&self, setting: Option<EnforcementSetting>) -> EnforcementStatus {
        self.freshness.switch_instance(setting)
    }

    /// Replaces the enforcement of every instance, also of those that start later; `None`: each configuration applies.
    /// Settings of single instances are void.
    ///
    /// # Errors
    /// [`SwitchError`].
    pub async fn enforce_everywhere(
        &self,
        setting: Option<EnforcementSetting>,
    ) -> Result<EnforcementStatus, SwitchError> {
        self.follower.as_ref().ok_or(SwitchError::NoFleet)?.switch_fleet(setting).await
    }

    /// How far the proof has come; `None`: it is finished, or `canary.proof` is 0.
    #[must_use]
    pub fn proof(&self) -> Option<ProofStatus> {
        self.enforcement().proof
    }

    /// Compares absences of these keys with the backend: for a keyspace that has no clients yet and knows keys without
    /// rows.
    ///
    /// # Errors
    /// [`BackendError`] if the backend gives no answer.
    pub(crate) async fn prove_by(&self, keys: Vec<Key>) -> Result<(), BackendError> {
        self.audit.prove_by(keys).await
    }

    /// What the filter got wrong lately, or would have.
    #[must_use]
    pub fn mismatches(&self) -> Mismatches {
        self.stats.mismatches()
    }

    /// Where polls report what they find.
    #[must_use]
    pub fn polls(&self) -> &PollTracker {
        &self.polls
    }

    /// Applies the live settings of `config`; its other settings must be those that the keyspace was made with.
    /// Settings of the admin API stay.
    pub fn reconfigure(&self, config: &KeyspaceConfig) {
        self.reader.limits.store(Arc::new(FillLimits::new(config)));
        self.builds.reconfigure(config);
        self.audit.canary.sampler.reconfigure(&config.canary);
        self.stats.reconfigure(config);
        self.freshness.reconfigure(config, self.backend.members().is_none());
        self.freshness.observe_state();
    }

    /// The present state.
    #[must_use]
    pub fn state(&self) -> State {
        self.freshness.explain(crate::clock::Moment::now()).0
    }

    /// Number of the active filter; 0 while there is none.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.prober.current().map_or(0, |generation| generation.number)
    }

    /// Keys in the active filter, estimated from its fill; `None` while there is none.
    #[must_use]
    pub fn items(&self) -> Option<u64> {
        self.prober.current().map(|generation| generation.filter.items())
    }

    /// The form of the keys, once it is known.
    #[must_use]
    pub fn form(&self) -> Option<KeyForm> {
        self.identity.form()
    }

    /// Name of the keyspace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// How the last rebuild ended.
    #[must_use]
    pub fn last_rebuild(&self) -> Option<LastRebuild> {
        self.builds.last_rebuild()
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.identity.name).finish_non_exhaustive()
    }
}
