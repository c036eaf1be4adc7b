//! Assembles a keyspace from its parts, lower rooms first.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::Keyspace;
use super::audit::{Audit, Canary, EvidenceGatherer, FalseNegatives, ProofEnd, Sampler, Storm, Storms};
use super::backend::{BackendClient, FailureLog};
use super::build_state::BuildState;
use super::freshness::{CachedAbsences, FreshnessTracker, LogRole, Promise};
use super::identity::Identity;
use super::journal::{Journal, Replayed};
use super::membership::Membership;
use super::polls::{PollParts, PollTracker};
use super::probe::Prober;
use super::read::{FillLimits, LeaseTimes, Reader};
use super::rebuild_signal::RebuildSignal;
use super::replicate::{FollowerParts, JournalFound, LogFollower, LogParts, SnapshotFound, StartEvidence};
use super::secret::Secret;
use super::single_flight::Flights;
use super::snapshot::{SnapshotKeeper, SnapshotParts};
use super::snapshot_file::SnapshotFile;
use super::stats::FilterStats;
use super::write::{AnnounceLimits, CommitWindows, LocalEffects, Peers, Polled, Recent, Writer};
use crate::backend::Backend;
use crate::cache::{HotCache, SharedCache};
use crate::clock::Moment;
use crate::config::KeyspaceConfig;
use crate::fleet::{Committer, Terms};
use crate::key::{KeyForm, KeySecret};
use crate::labels::UnprotectedReason;
use crate::metrics::KeyspaceMetrics;

/// What a keyspace is made of; the composition root fills it in.
pub struct KeyspaceParts {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub config: KeyspaceConfig,
    /// The secret its keys are hashed under; `None`: not known yet, see [`Keyspace::agree_on_secret`].
    pub secret: Option<KeySecret>,
    /// The form of its keys, shared with the backend, which binds keys by it. Empty until it is known.
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
    /// The delta log; `None`: there are no other instances.
    pub log: Option<LogParts>,
    /// The filter on disk; `None`: it is not kept.
    pub snapshot: Option<SnapshotParts>,
    /// Recorders.
    pub metrics: Arc<KeyspaceMetrics>,
}

/// What several parts share.
struct Common {
    config: KeyspaceConfig,
    identity: Arc<Identity>,
    shared: Arc<dyn SharedCache>,
    hot: Arc<HotCache>,
    flights: Arc<Flights>,
    backend: Arc<BackendClient>,
    freshness: Arc<FreshnessTracker>,
    prober: Arc<Prober>,
    stats: Arc<FilterStats>,
    windows: Arc<CommitWindows>,
    effects: Arc<LocalEffects>,
    membership: Option<Arc<Membership>>,
    rebuild: Arc<RebuildSignal>,
    builds: Arc<BuildState>,
    snapshot_file: Option<Arc<SnapshotFile>>,
    metrics: Arc<KeyspaceMetrics>,
}

impl Keyspace {
    /// Assembles a keyspace, which is cold until the first build. Must be called within a Tokio runtime.
    #[must_use]
    pub fn new(parts: KeyspaceParts) -> Arc<Self> {
        let evidence = start_evidence(&parts.replayed, parts.snapshot.as_ref());
        let (file, restored) = parts.snapshot.map_or((None, None), |parts| (Some(parts.file), parts.restored));
        let identity = Arc::new(Identity { name: parts.name, form: parts.form, secret: Secret::new(parts.secret) });
        let log = parts.log.as_ref();
        let mut common =
            Common::new(parts.config, identity, parts.shared, parts.backend, parts.announces, log, file, parts.metrics);
        common.membership = log.and_then(|log| membership(&common.identity.name, log, &evidence));
        let committer = log.map(|parts| Committer::new(Arc::clone(&parts.log)));
        let follower = parts.log.map(|log| Arc::new(common.follower(log, evidence)));
        let announces = follower.as_ref().filter(|_| common.freshness.promise().rests_on_log());
        let polls = Arc::new(common.polls());
        let audit = Arc::new(common.audit(announces, &polls));
        let journal = Arc::new(parts.journal);
        let writer = Arc::new(common.writer(parts.announces, &journal, committer));
        let snapshots = Arc::new(common.snapshots(announces, &polls, &journal));
        if let Some(restored) = restored {
            snapshots.start_from(restored);
        }
        let keyspace = Self {
            reader: Arc::new(common.reader(follower.as_ref(), &audit)),
            writer,
            follower,
            polls,
            audit,
            snapshots,
            identity: common.identity,
            prober: common.prober,
            freshness: common.freshness,
            backend: common.backend,
            stats: common.stats,
            builds: common.builds,
        };
        keyspace.restore_announces(&parts.replayed);
        if let Some(form) = keyspace.form() {
            keyspace.snapshots.trust(form);
        }
        Arc::new(keyspace)
    }

    /// Restores the journal's announces, and revokes the promise if some are lost.
    fn restore_announces(&self, replayed: &Replayed) {
        let Err(lost) = self.writer.restore(replayed) else { return };
        if !self.writer.takes_announces {
            // Of an earlier configuration; the promise does not rest on them any more.
            tracing::warn!(keyspace = self.name(), reason = lost, "announces of an earlier configuration lost");
            return;
        }
        tracing::error!(keyspace = self.name(), reason = lost, "announces lost at start");
        let at = Moment::now().plus(self.writer.windows.longest().window);
        let reason = UnprotectedReason::Journal;
        self.freshness.revoke(at, reason, format!("{lost}; a scan after the commit window restores them"));
    }
}

impl Common {
    #[allow(clippy::too_many_arguments)] // The parts of a keyspace, each once.
    fn new(
        config: KeyspaceConfig,
        identity: Arc<Identity>,
        shared: Arc<dyn SharedCache>,
        backend: Arc<dyn Backend>,
        announces: AnnounceLimits,
        log: Option<&LogParts>,
        snapshot_file: Option<Arc<SnapshotFile>>,
        metrics: Arc<KeyspaceMetrics>,
    ) -> Self {
        let hot = Arc::new(HotCache::new(config.cache.hot_capacity));
        let backend = Arc::new(BackendClient::new(&identity.name, &config, backend, &metrics));
        let promise = Promise {
            freshness: config.freshness,
            max_staleness: config.max_staleness,
            log: match log {
                None => LogRole::None,
                Some(log) if config.takes_announces() => LogRole::Announces { max_lag: log.max_lag },
                Some(_) => LogRole::DropsOnly,
            },
        };
        let freshness = Arc::new(FreshnessTracker::new(
            &identity.name,
            &config,
            promise,
            backend.members().is_none(),
            CachedAbsences { hot: Arc::clone(&hot), shared: Arc::clone(&shared) },
            snapshot_file.clone(),
            &metrics,
        ));
        let prober = Arc::new(Prober {
            identity: Arc::clone(&identity),
            active: Arc::default(),
            freshness: Arc::clone(&freshness),
        });
        let (stats, flights) = (Arc::new(FilterStats::new(&config, &metrics)), Flights::new());
        let rebuild = Arc::new(RebuildSignal::default());
        let own_terms = Terms::new(None, config.data_fingerprint(), config.commit_window, config.deadline);
        let windows = Arc::new(CommitWindows {
            recent: Recent::new(config.commit_window + config.deadline, announces.of_memory()),
            peers: Peers::new(own_terms, log.map(|log| log.log.retention())),
            polled: Polled::new(config.source.iter().any(|source| source.incremental.is_some())),
            identity: Arc::clone(&identity),
            backend: Arc::clone(&backend),
        });
        let effects = Arc::new(LocalEffects {
            prober: Arc::clone(&prober),
            flights: Arc::clone(&flights),
            hot: Arc::clone(&hot),
            stats: Arc::clone(&stats),
            backend: Arc::clone(&backend),
            rebuild: Arc::clone(&rebuild),
        });
        let builds = Arc::new(BuildState::new(&config, &rebuild));
        Self {
            config,
            identity,
            shared,
            hot,
            flights,
            backend,
            freshness,
            prober,
            stats,
            windows,
            effects,
            membership: None,
            rebuild,
            builds,
            snapshot_file,
            metrics,
        }
    }

    fn follower(&self, log: LogParts, evidence: StartEvidence) -> LogFollower {
        LogFollower::new(
            log,
            evidence,
            FollowerParts {
                identity: Arc::clone(&self.identity),
                freshness: Arc::clone(&self.freshness),
                windows: Arc::clone(&self.windows),
                effects: Arc::clone(&self.effects),
                membership: self.membership.clone(),
                rebuild: Arc::clone(&self.rebuild),
                metrics: Arc::clone(&self.metrics),
            },
        )
    }

    fn polls(&self) -> PollTracker {
        PollTracker::new(PollParts {
            identity: Arc::clone(&self.identity),
            prober: Arc::clone(&self.prober),
            freshness: Arc::clone(&self.freshness),
            windows: Arc::clone(&self.windows),
            effects: Arc::clone(&self.effects),
            shared: Arc::clone(&self.shared),
            rebuild: Arc::clone(&self.rebuild),
        })
    }

    fn audit(&self, follower: Option<&Arc<LogFollower>>, polls: &Arc<PollTracker>) -> Audit {
        let sampler = Arc::new(Sampler::new(&self.config.canary, self.backend.members().is_none()));
        let proof_end = Arc::new(ProofEnd {
            identity: Arc::clone(&self.identity),
            freshness: Arc::clone(&self.freshness),
            sampler: Arc::clone(&sampler),
            snapshot: self.snapshot_file.clone(),
        });
        let evidence = EvidenceGatherer {
            follower: follower.cloned(),
            polls: Arc::clone(polls),
            max_staleness: self.config.max_staleness,
        };
        let false_negatives = Arc::new(FalseNegatives::new(
            Arc::clone(&self.prober),
            Arc::clone(&self.stats),
            evidence,
            Arc::clone(&self.rebuild),
            Arc::clone(&proof_end),
        ));
        let canary = Canary {
            sampler,
            proof_end,
            backend: Arc::clone(&self.backend),
            false_negatives: Arc::clone(&false_negatives),
            metrics: Arc::clone(&self.metrics),
        };
        let storms = Storms {
            storm: Storm::default(),
            prober: Arc::clone(&self.prober),
            stats: Arc::clone(&self.stats),
            builds: Arc::clone(&self.builds),
            windows: Arc::clone(&self.windows),
            hot: Arc::clone(&self.hot),
            shared: Arc::clone(&self.shared),
            deadline: self.config.deadline,
            metrics: Arc::clone(&self.metrics),
        };
        Audit {
            prober: Arc::clone(&self.prober),
            stats: Arc::clone(&self.stats),
            builds: Arc::clone(&self.builds),
            windows: Arc::clone(&self.windows),
            canary: Arc::new(canary),
            false_negatives,
            storms: Arc::new(storms),
        }
    }

    fn writer(&self, limits: AnnounceLimits, journal: &Arc<Journal>, committer: Option<Committer>) -> Writer {
        Writer {
            identity: Arc::clone(&self.identity),
            deadline: self.config.deadline,
            takes_announces: self.config.takes_announces(),
            limits,
            rate: limits.rate(),
            windows: Arc::clone(&self.windows),
            effects: Arc::clone(&self.effects),
            shared: Arc::clone(&self.shared),
            journal: Arc::clone(journal),
            committer,
            membership: self.membership.clone(),
            builds: Arc::clone(&self.builds),
            rebuild: Arc::clone(&self.rebuild),
            failures: FailureLog::default(),
            metrics: Arc::clone(&self.metrics),
        }
    }

    fn snapshots(
        &self,
        follower: Option<&Arc<LogFollower>>,
        polls: &Arc<PollTracker>,
        journal: &Arc<Journal>,
    ) -> SnapshotKeeper {
        SnapshotKeeper {
            file: self.snapshot_file.clone(),
            identity: Arc::clone(&self.identity),
            prober: Arc::clone(&self.prober),
            freshness: Arc::clone(&self.freshness),
            follower: follower.cloned(),
            polls: Arc::clone(polls),
            journal: Arc::clone(journal),
            builds: Arc::clone(&self.builds),
            awaited: Mutex::default(),
            metrics: Arc::clone(&self.metrics),
        }
    }

    fn reader(&self, follower: Option<&Arc<LogFollower>>, audit: &Arc<Audit>) -> Reader {
        Reader {
            deadline: self.config.deadline,
            limits: Arc::new(FillLimits::new(&self.config)).into(),
            lease_times: LeaseTimes::new(&self.config),
            prober: Arc::clone(&self.prober),
            hot: Arc::clone(&self.hot),
            flights: Arc::clone(&self.flights),
            shared: Arc::clone(&self.shared),
            backend: Arc::clone(&self.backend),
            windows: Arc::clone(&self.windows),
            follower: follower.cloned(),
            stats: Arc::clone(&self.stats),
            audit: Arc::clone(audit),
            refreshes: Arc::new(Semaphore::new(self.backend.batch_share())),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

/// The membership in the roster, where another log may cost reports instead of a scan.
fn membership(keyspace: &str, log: &LogParts, evidence: &StartEvidence) -> Option<Arc<Membership>> {
    let terms = log.roll_call?;
    let is_first_start = log.is_first_start && !evidence.shows_earlier_start(None);
    Some(Arc::new(Membership::new(Arc::clone(&log.log), keyspace, log.writer, terms, is_first_start)))
}

/// What `data_dir` shows of announces before this process met the log.
fn start_evidence(replayed: &Replayed, snapshot: Option<&SnapshotParts>) -> StartEvidence {
    let written = replayed.extent.map_or(0, |extent| extent.next).max(replayed.keys.len() as u64);
    let journal = match written {
        _ if replayed.damaged => JournalFound::Damaged,
        0 => JournalFound::Empty,
        written => JournalFound::Records(written),
    };
    let snapshot = match snapshot {
        Some(SnapshotParts { restored: Some(restored), .. }) => {
            SnapshotFound::Of(restored.validated.log.map(|place| place.identity))
        }
        Some(parts) if parts.file.was_refused() => SnapshotFound::Refused,
        _ => SnapshotFound::None,
    };
    StartEvidence { journal, snapshot }
}
