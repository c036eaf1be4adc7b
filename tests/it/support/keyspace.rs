//! One keyspace around scripted parts: the real keyspace, the real runner, the cache that the test chooses.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bloomguard::backend::{Backend, Members, SetBackend};
use bloomguard::buffers::{Buffers, Reservation, Share};
use bloomguard::cache::{MemoryCache, NoCache, SharedCache};
use bloomguard::config::{BackendKind, Freshness, KeyspaceConfig};
use bloomguard::key::{KeyForm, KeySecret};
use bloomguard::keyspace::{AnnounceLimits, Journal, Keyspace, KeyspaceParts, LogParts, Lookup, LookupOptions};
use bloomguard::labels::RebuildOutcome;
use bloomguard::metrics::Metrics;
use bloomguard::rebuild::{MemoryBudget, RebuildHandle, RebuildRequest, Runner};
use bloomguard::source::SourceError;
use tempfile::TempDir;

use super::eventually;
use super::scripted::{ScriptedBackend, ScriptedSource, key};

/// A running keyspace named `users` with text keys.
pub struct TestKeyspace {
    pub keyspace: Arc<Keyspace>,
    pub rebuild: RebuildHandle,
    pub backend: Arc<ScriptedBackend>,
    pub source: Arc<ScriptedSource>,
    pub metrics: Arc<Metrics>,
    pub shared: Arc<dyn SharedCache>,
    dir: Arc<TempDir>,
}

/// What most tests want: never schedules by itself, never ages, generous times.
pub fn config() -> KeyspaceConfig {
    let mut config = KeyspaceConfig {
        freshness: Freshness::Announced,
        deadline: Duration::from_secs(100),
        ..KeyspaceConfig::default()
    };
    config.rebuild.schedule = "0 0 1 1 *".into();
    config.rebuild.on_start = false;
    config.filter.false_positive_rate = 0.0001;
    // Tests of the proof ask for it.
    config.canary.proof = 0;
    // Tests of the canary ask for it: others count the backend's calls.
    config.canary.sample_rate = 0.0;
    config
}

/// A part of a budget that never ends.
pub fn unlimited() -> Reservation {
    Buffers::new(u64::MAX, Metrics::new().buffers).empty(Share::Batches)
}

fn users() -> ScriptedSource {
    ScriptedSource::of((0..1000).map(|i| format!("user:{i}")))
}

impl TestKeyspace {
    /// Starts with the keys `user:0` … `user:999` in the source and at the backend, and no filter yet.
    pub fn cold(config: KeyspaceConfig) -> Self {
        Self::with_cache(config, Arc::new(MemoryCache::new(64 << 20, 1 << 20)))
    }

    pub fn with_cache(config: KeyspaceConfig, shared: Arc<dyn SharedCache>) -> Self {
        Self::start(config, shared, Arc::new(TempDir::new().unwrap()), Arc::new(users()), None, None)
    }

    /// Its Redis has not answered yet, so that the fleet's secret is not known.
    pub fn without_secret(config: KeyspaceConfig) -> Self {
        let (dir, shared) = (Arc::new(TempDir::new().unwrap()), Arc::new(MemoryCache::new(64 << 20, 1 << 20)));
        Self::start_under(None, config, shared, dir, Arc::new(users()), None, None)
    }

    /// One of several instances, which tell each other by a log.
    pub fn with_log(config: KeyspaceConfig, shared: Arc<dyn SharedCache>, log: LogParts) -> Self {
        Self::start(config, shared, Arc::new(TempDir::new().unwrap()), Arc::new(users()), None, Some(log))
    }

    /// With a memory limit in bytes.
    pub fn with_memory(config: KeyspaceConfig, limit: Option<u64>) -> Self {
        let shared = Arc::new(MemoryCache::new(64 << 20, 1 << 20));
        Self::start(config, shared, Arc::new(TempDir::new().unwrap()), Arc::new(users()), limit, None)
    }

    /// The backend is the set of the source's keys; what stands at `backend` is not asked.
    pub fn of_set(mut config: KeyspaceConfig) -> Self {
        config.backend.kind = BackendKind::Set;
        Self::with_cache(config, Arc::new(NoCache::default()))
    }

    /// Where the journal is.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    fn start(
        config: KeyspaceConfig,
        shared: Arc<dyn SharedCache>,
        dir: Arc<TempDir>,
        source: Arc<ScriptedSource>,
        limit: Option<u64>,
        log: Option<LogParts>,
    ) -> Self {
        Self::start_under(Some(KeySecret::random()), config, shared, dir, source, limit, log)
    }

    fn start_under(
        secret: Option<KeySecret>,
        config: KeyspaceConfig,
        shared: Arc<dyn SharedCache>,
        dir: Arc<TempDir>,
        source: Arc<ScriptedSource>,
        limit: Option<u64>,
        log: Option<LogParts>,
    ) -> Self {
        let backend = Arc::new(ScriptedBackend::default());
        source.keys.lock().iter().for_each(|k| backend.commit(k));
        let metrics = Arc::new(Metrics::new());
        let recorders = metrics.keyspace("users");
        let (journal, replayed) = Journal::open(dir.path(), "users", config.commit_window, config.deadline).unwrap();
        let form = Arc::new(OnceLock::from(KeyForm::Text));
        let rows: Arc<dyn Backend> = match config.backend.kind {
            BackendKind::Set => {
                Arc::new(SetBackend::new(Members::new(Arc::clone(&form), config.commit_window + config.deadline)))
            }
            BackendKind::Sql | BackendKind::Http => backend.clone(),
        };
        let parts = KeyspaceParts {
            name: "users".into(),
            config: config.clone(),
            secret,
            log,
            form,
            shared: Arc::clone(&shared),
            backend: rows,
            announces: AnnounceLimits::default(),
            journal,
            replayed,
            snapshot: None,
            metrics: Arc::clone(&recorders),
        };
        let keyspace = Keyspace::new(parts);
        let memory = Arc::new(MemoryBudget::new(limit, 0));
        let (runner, rebuild) = Runner::new(Arc::clone(&keyspace), source.clone(), memory, &config, recorders).unwrap();
        tokio::spawn(runner.run());
        tokio::spawn(Arc::clone(&keyspace).run());
        Self { keyspace, rebuild, backend, source, metrics, shared, dir }
    }

    /// Starts and builds the first filter.
    pub async fn enforcing(config: KeyspaceConfig) -> Self {
        Self::cold(config).built().await
    }

    pub async fn built(self) -> Self {
        assert_eq!(self.rebuild().await, RebuildOutcome::Swapped, "{:?}", self.rebuild.progress().last_error);
        self
    }

    /// The process dies and starts again: only the disk and the shared cache remain.
    pub fn restarted(&self, config: KeyspaceConfig) -> Self {
        let shared = Arc::new(MemoryCache::new(64 << 20, 1 << 20));
        Self::start(config, shared, Arc::clone(&self.dir), Arc::clone(&self.source), None, None)
    }

    /// The same, one of several instances; it does not know the fleet's secret yet.
    pub fn restarted_without_secret(&self, config: KeyspaceConfig, log: LogParts) -> Self {
        let shared = Arc::new(MemoryCache::new(64 << 20, 1 << 20));
        Self::start_under(None, config, shared, Arc::clone(&self.dir), Arc::clone(&self.source), None, Some(log))
    }

    /// From now on each request for a build gets none, so the active filter stays.
    pub fn builds_no_more(&self) {
        *self.source.failure.lock() = Some(SourceError::Unavailable("as the test wants it".into()));
    }

    /// Begins a rebuild without waiting for it.
    pub fn begin_rebuild(&self) -> u64 {
        self.rebuild.request(RebuildRequest::default()).unwrap()
    }

    /// Waits for the rebuild under way.
    pub async fn rebuilt(&self) -> RebuildOutcome {
        eventually("the rebuild ends", || self.rebuild.progress().running.is_none()).await;
        self.rebuild.progress().last.unwrap().outcome
    }

    pub async fn rebuild(&self) -> RebuildOutcome {
        self.begin_rebuild();
        self.rebuilt().await
    }

    pub async fn lookup(&self, text: &str) -> Lookup {
        self.keyspace.lookup(key(text), LookupOptions::default()).await
    }

    /// `200 backend`, `404 filter`, `503`.
    pub async fn get(&self, text: &str) -> String {
        told(&self.lookup(text).await)
    }

    pub async fn get_bypassing(&self, text: &str) -> String {
        told(&self.keyspace.lookup(key(text), LookupOptions { bypass: true, ..LookupOptions::default() }).await)
    }

    /// A key that neither exists nor passes the active filter.
    pub fn absent(&self) -> String {
        use bloomguard::labels::Verdict;
        (0..).map(|i| format!("stranger:{i}")).find(|k| self.keyspace.peek(&key(k)).verdict == Verdict::Absent).unwrap()
    }

    /// A key that does not exist but passes the active filter.
    pub fn false_positive(&self) -> String {
        use bloomguard::labels::Verdict;
        (0..).map(|i| format!("stranger:{i}")).find(|k| self.keyspace.peek(&key(k)).verdict == Verdict::Maybe).unwrap()
    }

    /// Whether the active filter lets a key pass.
    pub fn maybe(&self, text: &str) -> bool {
        self.keyspace.peek(&key(text)).verdict == bloomguard::labels::Verdict::Maybe
    }

    /// The value of one line of `/metrics`.
    pub fn metric(&self, line: &str) -> f64 {
        super::metric(&self.metrics.render(), line)
    }
}

pub fn told(lookup: &Lookup) -> String {
    match &lookup.answer {
        Ok(answer) if answer.value.is_some() => format!("200 {}", answer.source),
        Ok(answer) => format!("404 {}", answer.source),
        Err(_) => "503".into(),
    }
}
