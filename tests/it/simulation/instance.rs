//! One instance: the real keyspace and the real runner over simulated edges. Its disk outlives it.

use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use bloomguard::config::{Freshness, KeyspaceConfig};
use bloomguard::fleet::WriterId;
use bloomguard::key::{KeyForm, KeySecret};
use bloomguard::keyspace::{
    AnnounceLimits, Expected, Journal, Keyspace, KeyspaceParts, LogParts, Refused, Replayed, Restored, SnapshotFile,
    SnapshotParts, restore,
};
use bloomguard::metrics::{KeyspaceMetrics, Metrics};
use bloomguard::rebuild::{MemoryBudget, RebuildHandle, Runner};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::database::{Database, Reader, Source};
use super::edges::{SimulatedCache, SimulatedLog, agree_on_secret};
use super::network::{Link, Network};

pub const KEYSPACE: &str = "users";
pub const MAX_LAG: Duration = Duration::from_millis(600);
pub const WINDOW: Duration = Duration::from_millis(2000);

/// No test reads them, and making them takes longer than a whole run.
static METRICS: LazyLock<Arc<KeyspaceMetrics>> = LazyLock::new(|| Metrics::new().keyspace(KEYSPACE));

/// A process, from its start to its crash.
pub struct Instance {
    pub keyspace: Arc<Keyspace>,
    pub rebuild: RebuildHandle,
    pub source: Arc<Source>,
    /// It had a filter before any scan.
    pub from_snapshot: bool,
    link: Arc<Link>,
    tasks: Vec<AbortHandle>,
}

fn config(hot_capacity: u64) -> KeyspaceConfig {
    let mut config = KeyspaceConfig {
        freshness: Freshness::Announced,
        commit_window: WINDOW,
        key: Some(KeyForm::Text),
        ..KeyspaceConfig::default()
    };
    config.rebuild.schedule = "0 0 1 1 *".into();
    config.rebuild.min_keys_ratio = 0.5;
    config.filter.expected_keys = None;
    config.filter.false_positive_rate = 0.000_01;
    config.cache.jitter = 0.0;
    config.cache.hot_capacity = hot_capacity;
    config.canary.sample_rate = 0.0;
    config.canary.proof = 0;
    // What is found too late is for the judge to see, and not for a hold to cover.
    config.canary.hold = Duration::ZERO;
    config
}

/// The secret, where Redis tells it, and the filter to start from, where there is one whose keys are hashed under it.
fn found(
    number: usize,
    network: &Network,
    disk: &Path,
    config: &KeyspaceConfig,
    replayed: &Replayed,
    memory: &Arc<MemoryBudget>,
) -> (Option<KeySecret>, SnapshotParts) {
    let snapshots = Arc::new(SnapshotFile::new(disk, KEYSPACE, 0).removing_in_place());
    let expected = Expected {
        keyspace: KEYSPACE.into(),
        basis: 0,
        form: config.key,
        freshness: config.freshness,
        max_staleness: config.max_staleness,
        announces: true,
        has_log: true,
        polled_sources: 0,
        journal: replayed.extent,
    };
    let restored = if replayed.damaged {
        Err(Refused::DamagedJournal)
    } else {
        restore(snapshots.path(), &expected, |_| Ok(memory.room()))
    };
    let own = restored.as_ref().ok().and_then(Option::as_ref).map(|restored| restored.secret().clone());
    let secret = network.secret(number, own.unwrap_or_else(KeySecret::random));
    let restored = restored.and_then(|restored| match (restored, &secret) {
        (Some(_), None) => Err(Refused::NoSecret),
        (Some(restored), Some(secret)) if restored.secret().fingerprint() != secret.fingerprint() => {
            Err(Refused::Secret)
        }
        (restored, _) => Ok(restored),
    });
    let restored: Option<Restored> = restored.unwrap_or_else(|refused| {
        snapshots.refused(&refused, refused.is_final());
        None
    });
    (secret, SnapshotParts { file: snapshots, restored })
}

impl Instance {
    /// As the composition root builds it. Without hot tier, reads show what is in Redis; with it, nothing expires there
    /// during a run.
    pub fn start(number: usize, network: &Arc<Network>, database: &Arc<Database>, disk: &Path, began: Instant) -> Self {
        let config = config(if number == 2 { 0 } else { 1 << 20 });
        let (journal, replayed) =
            Journal::open_in_place(disk, KEYSPACE, config.commit_window, config.deadline).unwrap();
        let link = Link::new(Arc::clone(network), number);
        let writer = WriterId::random();
        let log = Arc::new(SimulatedLog::new(Arc::clone(&link), writer, began));
        let memory = Arc::new(MemoryBudget::new(None, 0));
        let (secret, snapshot) = found(number, network, disk, &config, &replayed, &memory);
        let from_snapshot = snapshot.restored.is_some();
        let keyspace = Keyspace::new(KeyspaceParts {
            name: KEYSPACE.into(),
            config: config.clone(),
            secret,
            form: Arc::new(OnceLock::from(KeyForm::Text)),
            shared: Arc::new(SimulatedCache(Arc::clone(&link))),
            backend: Arc::new(Reader(Arc::clone(database))),
            announces: AnnounceLimits::default(),
            journal,
            replayed,
            log: Some(LogParts { log, writer, max_lag: MAX_LAG, is_first_start: false }),
            snapshot: Some(snapshot),
            metrics: Arc::clone(&METRICS),
        });
        let source = Source::new(Arc::clone(database));
        let (runner, rebuild) =
            Runner::new(Arc::clone(&keyspace), source.clone(), memory, &config, Arc::clone(&METRICS)).unwrap();
        let tasks = [
            tokio::spawn(Arc::clone(&link).keep()),
            tokio::spawn(agree_on_secret(Arc::clone(&keyspace), Arc::clone(&link))),
            tokio::spawn(runner.run()),
            tokio::spawn(Arc::clone(&keyspace).run()),
        ];
        Self {
            keyspace,
            rebuild,
            source,
            from_snapshot,
            link,
            tasks: tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect(),
        }
    }

    /// The process dies: what it had under way neither sends nor hears anything any more.
    pub fn crash(self) {
        self.link.kill();
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
