//! The composition root: the only place that builds and connects parts.

mod descriptors;
mod links;
mod reloads;
mod secret;
mod start;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::descriptors::Connections;
use self::links::{RedisLinks, connect_redis};
use self::secret::{agree_on_secret, secret};
use self::start::Start;
use crate::backend::{Backend, HttpBackend, Members, SetBackend, SqlBackend};
use crate::buffers::Buffers;
use crate::cache::{MemoryCache, NoCache, RedisCache, SharedCache};
use crate::config::{BackendKind, Config, Freshness, IncrementalConfig, KeyspaceConfig, SourceConfig, SourceKind};
use crate::fleet::{RedisDeltaLog, RedisScanPermit, Retention, ScanPermit, Terms, WriterId};
use crate::http::{self, AtOnce, Bound, ConnectionLimits, HttpContext, HttpSettings, LocalAddr, ServedKeyspace};
use crate::keyspace::{AnnounceLimits, Journal, Keyspace, KeyspaceParts, LogParts};
use crate::labels::Listener;
use crate::metrics::{KeyspaceMetrics, Metrics};
use crate::poll::Poller;
use crate::rebuild::{MemoryBudget, Runner, machine_memory, memory_limit};
use crate::redis::RedisLink;
use crate::reload::{self, ConfigSource, Triggers};
use crate::source::{
    FileSource, HttpSource, Incremental, KeySource, Member, RedisSource, SourceError, SqlPolls, SqlSource, Union,
};
use crate::telemetry::LogLevel;
use crate::{quickstart, shutdown};

/// Time for the last snapshot where the drain has left none.
const LAST_SNAPSHOT: Duration = Duration::from_secs(1);
/// Time for scrapes and probes under way once all else has ended, and then for threads that wait for a disk or a source.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the process owns while it runs.
///
/// Built bottom-up by [`App::build`], which binds the listeners last; torn down by [`App::run`] in the opposite order: data and admin listener
/// drain, then the telemetry listener, then the tasks, and with the last reference to a keyspace its journal.
pub struct App {
    /// Handlers' view of everything below.
    context: Arc<HttpContext>,
    data: Bound,
    telemetry: Bound,
    admin: Bound,
    limits: ConnectionLimits,
    connections: Connections,
    drain_timeout: Duration,
    /// Who goes by settings that can change, until somebody reads the configuration again.
    reload: Option<reload::Parts>,
    /// Rebuild runners, watches over states and marks. Ended when the process stops; none of them has anything to finish.
    tasks: JoinSet<()>,
    /// The connections to Redis, where one is configured; they reconnect by themselves.
    _redis: Option<RedisLinks>,
    /// Held while the process lives: two processes must not write the same journals.
    _data_dir: File,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}

impl App {
    /// Builds every part and binds the listeners. Waits neither for the database nor (for longer than a second) for Redis.
    ///
    /// # Errors
    /// What keeps the process from serving: a data folder that can't be used, an address that is taken.
    pub async fn build(config: &Config) -> anyhow::Result<Self> {
        let data_dir = lock_data_dir(&config.server.data_dir)?;
        let metrics = Arc::new(Metrics::new());
        let redis_until = Instant::now() + links::REDIS_AT_START;
        let redis = connect_redis(config, &metrics).await?;
        let announces = config.server.max_announce_bytes;
        let caches: u64 =
            config.keyspaces.values().map(|keyspace| cache_bytes(keyspace, redis.is_some()) + announces).sum();
        // Without a limit, a quarter of the machine is as much as a process may take for this beside others.
        let limit = memory_limit();
        let (least, most) = config.server.buffered_bytes(limit.or_else(machine_memory));
        let buffers = Buffers::new(most, metrics.buffers.clone());
        let memory = Arc::new(MemoryBudget::new(limit, caches).with_buffers(&buffers, least, most));
        let mut tasks = JoinSet::new();
        let mut keyspaces = BTreeMap::new();
        let patience = Patience { read_until: Instant::now() + start::LONGEST_READS, redis_until };
        for (name, settings) in &config.keyspaces {
            let parts = parts(name, settings, config, redis.as_ref(), &metrics, &memory, patience)
                .await
                .with_context(|| format!("keyspaces.{name}"))?;
            let recorders = Arc::clone(&parts.metrics);
            let keyspace = Keyspace::new(parts);
            let link = redis.as_ref().and_then(|links| links.of(name)).map(|links| &links.main);
            if let Some(link) = link {
                tasks.spawn(agree_on_secret(Arc::clone(&keyspace), Arc::clone(link)));
            }
            let source = source(settings, config).with_context(|| format!("keyspaces.{name}"))?;
            let (runner, rebuild) =
                Runner::new(Arc::clone(&keyspace), source, Arc::clone(&memory), settings, Arc::clone(&recorders))
                    .map_err(|e| anyhow::anyhow!("keyspaces.{name}.rebuild.schedule: {e}"))?;
            tasks.spawn(runner.taking_turns(scan_permit(name, link)).run());
            if let Some(poller) =
                poller(&keyspace, settings, &recorders).with_context(|| format!("keyspaces.{name}"))?
            {
                tasks.spawn(poller.run());
            }
            tasks.spawn(Arc::clone(&keyspace).run());
            keyspaces.insert(name.clone(), ServedKeyspace { keyspace, rebuild, metrics: recorders });
        }
        let mode = config.server.socket_mode().unwrap_or(0o660);
        let mut settings = HttpSettings::new(&config.server);
        // A backstop behind the keyspaces' own deadlines, which alone end a lookup.
        let longest = config.keyspaces.values().map(|k| k.deadline).max().unwrap_or_default();
        settings.data_deadline = settings.data_deadline.max(longest * 2);
        let (reload, desk) = reloads::parts(config, &keyspaces, &metrics, &settings.tokens);
        let context = Arc::new(HttpContext::new(keyspaces, metrics, settings).with_buffers(buffers).with_config(desk));
        Ok(Self {
            context,
            data: Bound::bind(&config.server.listen, mode).await.context("server.listen")?,
            telemetry: Bound::bind(&config.server.telemetry_listen, mode).await.context("server.telemetry_listen")?,
            admin: Bound::bind(&config.server.admin_listen, mode).await.context("server.admin_listen")?,
            limits: ConnectionLimits::from(&config.server),
            connections: Connections::within_limit(config),
            drain_timeout: config.server.drain_timeout,
            reload: Some(reload),
            tasks,
            _redis: redis,
            _data_dir: data_dir,
        })
    }

    /// Where the data, telemetry and admin listeners are.
    #[must_use]
    pub fn addresses(&self) -> [LocalAddr; 3] {
        [&self.data, &self.telemetry, &self.admin].map(|bound| bound.local_addr().clone())
    }

    /// The keyspace of a keyspace.
    #[must_use]
    pub fn keyspace(&self, keyspace: &str) -> Option<Arc<Keyspace>> {
        self.context.keyspaces.get(keyspace).map(|k| Arc::clone(&k.keyspace))
    }

    /// Serves until `shutdown`, then finishes the requests in flight. The telemetry listener answers to the end, so that probes see the drain.
    pub async fn run(mut self, shutdown: CancellationToken) {
        // Whoever asks for a reload that nobody will do is told so.
        drop(self.reload.take());
        let [data, telemetry, admin] = self.addresses();
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %data, %telemetry, %admin, keyspaces = self.context.keyspaces.len(), "serving");
        let drained = CancellationToken::new();
        let (context, connections) = (|| Arc::clone(&self.context), self.connections);
        let limits = |max_connections| ConnectionLimits { max_connections, ..self.limits };
        let counted = |listener| self.context.metrics.connections(listener);
        let at_once = Arc::new(AtOnce::new(context()));
        let data = http::serve_at_once(
            self.data,
            http::data_service(context()),
            at_once,
            limits(connections.data),
            counted(Listener::Data),
            shutdown.clone(),
        );
        let admin = http::serve(
            self.admin,
            http::admin_router(context()),
            limits(connections.admin),
            counted(Listener::Admin),
            shutdown.clone(),
        );
        // The drain timeout is over by then: whoever reads slowly must not get another.
        let last =
            ConnectionLimits { drain_timeout: LAST_WORDS.min(self.drain_timeout), ..limits(connections.telemetry) };
        let telemetry = http::serve(
            self.telemetry,
            http::telemetry_router(context()),
            last,
            counted(Listener::Telemetry),
            drained.clone(),
        );
        let work = async {
            let ((data, admin), told) =
                tokio::join!(async { tokio::join!(data, admin) }, announce_drain(&self.context, &shutdown));
            // After the last announce, and while probes still see the drain.
            let deadline = (told + self.drain_timeout).max(Instant::now() + LAST_SNAPSHOT);
            let last_snapshots =
                self.context.keyspaces.values().map(|served| Arc::clone(&served.keyspace).last_snapshot(deadline));
            futures_util::future::join_all(last_snapshots).await;
            drained.cancel();
            data.forced + admin.forced
        };
        let (forced, _) = tokio::join!(work, telemetry);
        self.tasks.shutdown().await;
        if forced == 0 {
            tracing::info!("stopped: every request was answered");
        } else {
            tracing::warn!(forced, "stopped at server.drain_timeout: connections were cut");
        }
    }
}

/// `/readyz` says from the first moment of the drain that no more requests should come.
async fn announce_drain(context: &HttpContext, shutdown: &CancellationToken) -> Instant {
    shutdown.cancelled().await;
    context.begin_drain();
    Instant::now()
}

fn lock_data_dir(dir: &Path) -> anyhow::Result<File> {
    fs::create_dir_all(dir).with_context(|| format!("server.data_dir: {} can't be made", dir.display()))?;
    let lock = File::create(dir.join("lock"))
        .with_context(|| format!("server.data_dir: {} can't be written to", dir.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("server.data_dir: {} is in use by another bloomguard; give each its own", dir.display())
        }
        Err(fs::TryLockError::Error(e)) => {
            Err(e).with_context(|| format!("server.data_dir: {} can't be locked", dir.display()))
        }
    }
}

/// Until when a start waits, at most.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For snapshots to be read.
    read_until: Instant,
    /// For Redis.
    redis_until: Instant,
}

/// Fingerprint of what a key is here, as far as the configuration says: never 0 or 1, which journals keep for themselves.
fn meaning_of_keys(keyspace: &KeyspaceConfig) -> u64 {
    let terms = Terms::new(keyspace.key, keyspace.data_fingerprint(), Duration::ZERO, Duration::ZERO);
    (terms.data ^ (u64::from(terms.form) << 32)) | 2
}

async fn parts(
    name: &str,
    keyspace: &KeyspaceConfig,
    config: &Config,
    redis: Option<&RedisLinks>,
    metrics: &Metrics,
    memory: &Arc<MemoryBudget>,
    patience: Patience,
) -> anyhow::Result<KeyspaceParts> {
    let form = Arc::new(keyspace.key.map_or_else(OnceLock::new, OnceLock::from));
    let log = delta_log(name, keyspace, config, redis);
    let backend: Arc<dyn Backend> = match keyspace.backend.kind {
        BackendKind::Sql => Arc::new(SqlBackend::new(&keyspace.backend, Arc::clone(&form)).context("backend")?),
        BackendKind::Http => Arc::new(HttpBackend::new(&keyspace.backend).context("backend")?),
        BackendKind::Set => {
            Arc::new(SetBackend::new(Members::new(Arc::clone(&form), keyspace.commit_window + keyspace.deadline)))
        }
    };
    let (links, replicas) = (redis.and_then(|links| links.of(name)), redis.and_then(|links| links.replicas));
    let announces = AnnounceLimits::new(&config.server, links.is_some() || keyspace.backend.kind == BackendKind::Set);
    let shared: Arc<dyn SharedCache> = match links {
        _ if keyspace.backend.kind == BackendKind::Set => Arc::new(NoCache::default()),
        Some(links) => {
            // A mark that was not there yet when an entry was looked for lives for window and deadline. Of a clock that is set, half a window is borne
            // either way.
            let patience = keyspace.deadline + keyspace.commit_window / 2;
            let cache = RedisCache::new(Arc::clone(&links.main), name, backend.fingerprint()).storing_within(patience);
            // Where a log follows, its wait is for the marks too.
            let cache = cache.marking_over(Arc::clone(&links.announces), replicas.filter(|_| log.is_none()));
            Arc::new(
                cache.telling_expiries(keyspace.cache.refresh_ahead > 0.0).keeping_stale(keyspace.cache.stale_if_error),
            )
        }
        None => Arc::new(
            MemoryCache::new(keyspace.cache.hot_capacity, announces.marks())
                .keeping_stale(keyspace.cache.stale_if_error),
        ),
    };
    let (window, deadline) = (keyspace.commit_window, keyspace.deadline);
    let (journal, mut replayed) =
        Journal::open_of(&config.server.data_dir, name, window, deadline, meaning_of_keys(keyspace))
            .context("the announce journal in server.data_dir")?;
    let start = Start { name, keyspace, config, has_redis: redis.is_some(), replayed: &replayed };
    let found = start.find(memory, patience.read_until).await;
    replayed.damaged |= found.shows_lost_announces();
    let secret = secret(name, links.map(|links| &links.main), found.secret(), patience.redis_until).await;
    let recorders = metrics.keyspace(name);
    Ok(KeyspaceParts {
        name: name.to_owned(),
        config: keyspace.clone(),
        log,
        snapshot: found.under(secret.as_ref(), &recorders),
        secret,
        form,
        shared,
        backend,
        announces,
        journal,
        replayed,
        metrics: recorders,
    })
}

/// What a keyspace remembers beside its filter and its keys, at the most.
pub(crate) fn cache_bytes(keyspace: &KeyspaceConfig, with_redis: bool) -> u64 {
    match keyspace.backend.kind {
        BackendKind::Set => Members::NOTES_BYTES,
        BackendKind::Sql | BackendKind::Http if with_redis => keyspace.cache.hot_capacity,
        // The cache that stands in for Redis is as large as the hot tier.
        BackendKind::Sql | BackendKind::Http => keyspace.cache.hot_capacity * 2,
    }
}

/// The keyspace's one source, or the union of several.
pub(crate) fn source(keyspace: &KeyspaceConfig, config: &Config) -> anyhow::Result<Arc<dyn KeySource>> {
    let build = |source: &SourceConfig| -> Result<Arc<dyn KeySource>, SourceError> {
        Ok(match source.kind {
            SourceKind::Sql => Arc::new(SqlSource::new(source, &keyspace.backend.url)?),
            SourceKind::Http => Arc::new(HttpSource::new(source, config.server.max_key_bytes)?),
            SourceKind::File => Arc::new(FileSource::new(source, config.server.max_key_bytes)),
            SourceKind::Redis => Arc::new(RedisSource::new(source, config.redis.as_ref().map(|redis| &redis.url))?),
        })
    };
    let mut members = Vec::new();
    for (index, table) in keyspace.source.iter().enumerate() {
        let source = build(table).with_context(|| keyspace.source.key(index))?;
        members.push(Member { source, allow_empty: table.allow_empty });
    }
    // One that was not written as a list has no number to be called by.
    match members.pop_if(|_| !keyspace.source.is_list()) {
        Some(only) => Ok(only.source),
        None => Ok(Arc::new(Union::new(members))),
    }
}

/// What polls the keyspace's sources, where they are to be polled.
fn poller(
    keyspace: &Arc<Keyspace>,
    config: &KeyspaceConfig,
    metrics: &Arc<KeyspaceMetrics>,
) -> anyhow::Result<Option<Poller>> {
    let mut sources: Vec<(Arc<dyn Incremental>, IncrementalConfig)> = Vec::new();
    for (index, table) in config.source.iter().enumerate() {
        let polls = SqlPolls::new(table, &config.backend.url).with_context(|| config.source.key(index))?;
        if let (Some(polls), Some(settings)) = (polls, &table.incremental) {
            sources.push((Arc::new(polls), settings.clone()));
        }
    }
    Ok((!sources.is_empty()).then(|| Poller::new(Arc::clone(keyspace), sources, config, Arc::clone(metrics))))
}

/// A key set that never changes gives instances nothing to tell.
fn has_log(keyspace: &KeyspaceConfig, has_redis: bool) -> bool {
    has_redis && keyspace.freshness != Freshness::Static
}

/// What instances tell each other of this keyspace, where there can be several.
fn delta_log(name: &str, keyspace: &KeyspaceConfig, config: &Config, redis: Option<&RedisLinks>) -> Option<LogParts> {
    let (links, settings) = (redis?, config.redis.as_ref()?);
    if !has_log(keyspace, true) {
        return None;
    }
    let (links, replicas) = (links.of(name)?, links.replicas);
    let (writer, retention) =
        (WriterId::random(), Retention { time: settings.log.retention, bytes: settings.log.max_bytes });
    let log = RedisDeltaLog::new(Arc::clone(&links.main), name, writer, retention);
    let log = log.appending_over(Arc::clone(&links.announces), replicas);
    // Only where the promise rests on announces does it matter who else takes them.
    let is_announced = keyspace.freshness == Freshness::Announced;
    let log = Arc::new(if is_announced { log.looking_for_others_over(keyspace.place_fingerprint()) } else { log });
    Some(LogParts { log, writer, max_lag: settings.max_lag })
}

/// What keeps the instances from scanning all at once, where there can be several.
fn scan_permit(name: &str, redis: Option<&Arc<RedisLink>>) -> Option<Arc<dyn ScanPermit>> {
    redis.map(|link| Arc::new(RedisScanPermit::new(Arc::clone(link), name)) as _)
}

/// Builds the runtime and serves `config` until SIGTERM or SIGINT, reading it again from `source`. The quickstart makes its demo database first and greets at the end of its build.
///
/// # Errors
/// As [`App::build`].
pub fn serve(config: Config, source: ConfigSource, log: LogLevel, quickstart: bool) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers(config.server.workers))
        .enable_all()
        .build()?;
    let served = runtime.block_on(async {
        let (shutdown, hangups) = (shutdown::on_signal()?, shutdown::hangups()?);
        if quickstart {
            quickstart::prepare(&config.server.data_dir).await?;
        }
        let mut app = App::build(&config).await?;
        app.reload_on(Triggers { source, hangups, log }, config);
        if let (true, Some(keyspace)) = (quickstart, app.keyspace(quickstart::KEYSPACE)) {
            let address = app.data.local_addr().to_string();
            app.tasks.spawn(async move { quickstart::greet(keyspace, &address).await });
        }
        app.run(shutdown).await;
        Ok(())
    });
    // Dropping the runtime would wait for threads that a dead disk holds, for as long as that takes.
    runtime.shutdown_timeout(LAST_WORDS);
    served
}

/// 0 = what the control group allows, at most 4: more threads than that only fight for the caches.
fn workers(configured: usize) -> usize {
    if configured > 0 { configured } else { std::thread::available_parallelism().map_or(1, usize::from).min(4) }
}

/// Each connection is a file: the soft limit is often 1024.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}
