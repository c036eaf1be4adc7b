//! The composition root: the only place that builds and connects parts.

mod data_dir;
mod delta_log;
mod descriptors;
mod keyspace_parts;
mod links;
mod process;
mod reloads;
mod run;
mod secret;
mod snapshot;
mod sources;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinSet;

pub use self::process::serve;
pub(crate) use self::sources::source;

use self::data_dir::lock_data_dir;
use self::delta_log::scan_permit;
use self::descriptors::ConnectionCaps;
use self::keyspace_parts::{StartDeadlines, keyspace_parts};
use self::links::{RedisLinks, connect_redis};
use self::secret::agree_on_secret;
use self::sources::poller;
use crate::backend::Members;
use crate::buffers::Buffers;
use crate::config::{BackendKind, Config, KeyspaceConfig};
use crate::http::{BoundListener, ConnectionLimits, HttpContext, HttpSettings, LocalAddr, ServedKeyspace};
use crate::keyspace::Keyspace;
use crate::metrics::Metrics;
use crate::rebuild::{MemoryBudget, Runner, machine_memory, memory_limit};
use crate::reload::{ReloadParts, ReloadTriggers, Reloader};

/// What the process owns while it runs.
///
/// Built bottom-up by [`App::build`], which binds the listeners last; torn down by [`App::run`] in the opposite order: data and admin listener
/// drain, then the telemetry listener, then the tasks, and with the last reference to a keyspace its journal.
pub struct App {
    /// Handlers' view of everything below.
    context: Arc<HttpContext>,
    data: BoundListener,
    telemetry: BoundListener,
    admin: BoundListener,
    limits: ConnectionLimits,
    connections: ConnectionCaps,
    drain_timeout: Duration,
    /// Who goes by settings that can change, until somebody reads the configuration again.
    reload: Option<ReloadParts>,
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
        let deadlines = StartDeadlines { read_until: Instant::now() + snapshot::MAX_READ_TIME, redis_until };
        for (name, settings) in &config.keyspaces {
            let parts = keyspace_parts(name, settings, config, redis.as_ref(), &metrics, &memory, deadlines)
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
            tasks.spawn(Arc::clone(&keyspace).keep_marks());
            tasks.spawn(Arc::clone(&keyspace).follow_log());
            tasks.spawn(Arc::clone(&keyspace).keep_watch());
            tasks.spawn(Arc::clone(&keyspace).keep_snapshots());
            tasks.spawn(Arc::clone(&keyspace).run_canary());
            tasks.spawn(Arc::clone(&keyspace).judge_found_rows());
            keyspaces.insert(name.clone(), ServedKeyspace { keyspace, rebuild, metrics: recorders });
        }
        let mode = config.server.socket_mode().unwrap_or(0o660);
        let mut settings = HttpSettings::new(&config.server);
        // A backstop behind the keyspaces' own deadlines, which alone end a lookup.
        let longest = config.keyspaces.values().map(|k| k.deadline).max().unwrap_or_default();
        settings.data_deadline = settings.data_deadline.max(longest * 2);
        let (reload, reload_handle) = reloads::connect(config, &keyspaces, &metrics, &settings.tokens);
        let context =
            Arc::new(HttpContext::new(keyspaces, metrics, settings).with_buffers(buffers).with_config(reload_handle));
        Ok(Self {
            context,
            data: BoundListener::bind(&config.server.listen, mode).await.context("server.listen")?,
            telemetry: BoundListener::bind(&config.server.telemetry_listen, mode)
                .await
                .context("server.telemetry_listen")?,
            admin: BoundListener::bind(&config.server.admin_listen, mode).await.context("server.admin_listen")?,
            limits: ConnectionLimits::from(&config.server),
            connections: ConnectionCaps::within_limit(config),
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

    /// Starts the task that reloads the configuration. `config` is the one that the process was built with.
    pub(crate) fn reload_on(&mut self, triggers: ReloadTriggers, config: Config) {
        if let Some(parts) = self.reload.take() {
            self.tasks.spawn(Reloader::new(config, parts, triggers).run());
        }
    }
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
