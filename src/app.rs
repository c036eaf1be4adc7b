//! The composition root: the only place that creates components and connects them.

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
use self::secret::{agree_on_secret, proposal_delay};
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
/// [`App::build`] composes it bottom-up and binds the listeners last. [`App::run`] stops it in the opposite order: data
/// and admin listener, telemetry listener, tasks. A keyspace's journal closes with the last reference to the keyspace.
pub struct App {
    /// What the handlers share.
    context: Arc<HttpContext>,
    data: BoundListener,
    telemetry: BoundListener,
    admin: BoundListener,
    limits: ConnectionLimits,
    connections: ConnectionCaps,
    drain_timeout: Duration,
    /// What a reload changes, until the reloader takes it.
    reload: Option<ReloadParts>,
    /// Background tasks of the keyspaces. Aborted at the end of the process, because none of them has work to finish.
    tasks: JoinSet<()>,
    /// Connections to Redis, if configured; they reconnect by themselves.
    _redis: Option<RedisLinks>,
    /// Locked for the process lifetime: two processes must not write the same journals.
    _data_dir: File,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}

impl App {
    /// Builds every component and binds the listeners. Does not wait for the database, and waits at most a second for
    /// Redis.
    ///
    /// # Errors
    /// An unusable data folder, an address that is taken, and anything else that prevents serving.
    pub async fn build(config: &Config) -> anyhow::Result<Self> {
        let data_dir = lock_data_dir(&config.server.data_dir)?;
        let metrics = Arc::new(Metrics::new());
        let redis_until = Instant::now() + links::REDIS_AT_START;
        let redis = connect_redis(config, &metrics).await?;
        let (buffers, memory) = memory_budgets(config, redis.is_some(), &metrics);
        let mut tasks = JoinSet::new();
        let mut keyspaces = BTreeMap::new();
        let deadlines = StartDeadlines { read_until: Instant::now() + snapshot::MAX_READ_TIME, redis_until };
        for (name, settings) in &config.keyspaces {
            let parts = keyspace_parts(name, settings, config, redis.as_ref(), &metrics, &memory, deadlines)
                .await
                .with_context(|| format!("keyspaces.{name}"))?;
            let (recorders, has_log) = (Arc::clone(&parts.metrics), parts.log.is_some());
            let keyspace = Keyspace::new(parts);
            let link = redis.as_ref().and_then(|links| links.of(name)).map(|links| &links.main);
            // Without announces and log, no other instance reads what is hashed here.
            let shares_secret = settings.takes_announces() || has_log;
            if let (Some(link), Some(redis)) = (link.filter(|_| shares_secret), &config.redis) {
                let delay = proposal_delay(settings.takes_announces(), redis.max_lag);
                tasks.spawn(agree_on_secret(Arc::clone(&keyspace), Arc::clone(link), delay));
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
        // A backstop: the keyspace's own deadline ends a lookup.
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

    /// The addresses of the data, telemetry and admin listener.
    #[must_use]
    pub fn addresses(&self) -> [LocalAddr; 3] {
        [&self.data, &self.telemetry, &self.admin].map(|bound| bound.local_addr().clone())
    }

    /// The keyspace of this name.
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

/// The budget of buffered bytes, and the memory budget that it is a part of.
fn memory_budgets(config: &Config, has_redis: bool, metrics: &Metrics) -> (Arc<Buffers>, Arc<MemoryBudget>) {
    let announces = config.server.max_announce_bytes;
    let caches = config.keyspaces.values().map(|keyspace| cache_bytes(keyspace, has_redis) + announces).sum();
    // Without a memory limit the buffers may use a quarter of the machine.
    let limit = memory_limit();
    let (least, most) = config.server.buffered_bytes(limit.or_else(machine_memory));
    let buffers = Buffers::new(most, metrics.buffers.clone());
    let memory = Arc::new(MemoryBudget::new(limit, caches).with_buffers(&buffers, least, most));
    (buffers, memory)
}

/// Upper bound of what a keyspace keeps in memory besides its filter and its keys.
pub(crate) fn cache_bytes(keyspace: &KeyspaceConfig, with_redis: bool) -> u64 {
    match keyspace.backend.kind {
        BackendKind::Set => Members::NOTES_BYTES,
        BackendKind::Sql | BackendKind::Http if with_redis => keyspace.cache.hot_capacity,
        // The cache that replaces Redis is as large as the hot tier.
        BackendKind::Sql | BackendKind::Http => keyspace.cache.hot_capacity * 2,
    }
}
