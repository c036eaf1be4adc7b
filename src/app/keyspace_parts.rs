//! Composes one keyspace: backend, caches, log, journal and the snapshot that it starts from.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::delta_log::delta_log;
use super::links::{KeyspaceLinks, RedisLinks};
use super::secret::{fleet_secret, own_secret};
use super::snapshot::SnapshotFinder;
use crate::backend::{Backend, HttpBackend, Members, SetBackend, SqlBackend};
use crate::cache::{MemoryCache, NoCache, RedisCache, SharedCache};
use crate::config::{BackendKind, Config, KeyspaceConfig};
use crate::fleet::Terms;
use crate::key::KeyForm;
use crate::keyspace::{AnnounceLimits, Journal, KeyspaceParts, Replayed};
use crate::metrics::Metrics;
use crate::rebuild::MemoryBudget;
use crate::redis::Replicas;

/// Until when a start waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartDeadlines {
    /// Deadline for reading snapshots.
    pub(super) read_until: Instant,
    /// Deadline for Redis.
    pub(super) redis_until: Instant,
}

pub(super) async fn keyspace_parts(
    name: &str,
    keyspace: &KeyspaceConfig,
    config: &Config,
    redis: Option<&RedisLinks>,
    metrics: &Metrics,
    memory: &Arc<MemoryBudget>,
    deadlines: StartDeadlines,
) -> anyhow::Result<KeyspaceParts> {
    let form = Arc::new(keyspace.key.map_or_else(OnceLock::new, OnceLock::from));
    let log = delta_log(name, keyspace, config, redis);
    let backend = backend(keyspace, &form)?;
    let (links, replicas) = (redis.and_then(|links| links.of(name)), redis.and_then(|links| links.replicas));
    let announces = AnnounceLimits::new(&config.server, links.is_some() || keyspace.backend.kind == BackendKind::Set);
    let shared = shared_cache(name, keyspace, links, replicas.filter(|_| log.is_none()), &backend, announces);
    let (journal, mut replayed) =
        journal(name, keyspace, &config.server.data_dir).context("the announce journal in server.data_dir")?;
    let finder = SnapshotFinder { name, keyspace, config, has_redis: redis.is_some(), replayed: &replayed };
    let found = finder.find(memory, deadlines.read_until).await;
    replayed.damaged |= found.shows_lost_announces();
    let main = links.map(|links| &links.main);
    let secret = if keyspace.takes_announces() {
        let is_first_start = config.redis.as_ref().is_some_and(|redis| redis.first_start);
        fleet_secret(name, main, found.secret(), is_first_start, deadlines.redis_until).await
    } else {
        Some(own_secret(name, main, found.secret()).await)
    };
    let recorders = metrics.keyspace(name);
    Ok(KeyspaceParts {
        name: name.to_owned(),
        config: keyspace.clone(),
        log,
        snapshot: found.restored_under(secret.as_ref(), &recorders),
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

/// The journal of announces. Without them one that an earlier configuration left: its announces were acknowledged.
fn journal(name: &str, keyspace: &KeyspaceConfig, dir: &Path) -> io::Result<(Journal, Replayed)> {
    if !keyspace.takes_announces() && !Journal::exists(dir, name)? {
        return Ok(Journal::off());
    }
    Journal::open_of(dir, name, keyspace.commit_window, keyspace.deadline, meaning_of_keys(keyspace))
}

/// Creates the configured backend.
fn backend(keyspace: &KeyspaceConfig, form: &Arc<OnceLock<KeyForm>>) -> anyhow::Result<Arc<dyn Backend>> {
    Ok(match keyspace.backend.kind {
        BackendKind::Sql => Arc::new(SqlBackend::new(&keyspace.backend, Arc::clone(form)).context("backend")?),
        BackendKind::Http => Arc::new(HttpBackend::new(&keyspace.backend).context("backend")?),
        BackendKind::Set => {
            Arc::new(SetBackend::new(Members::new(Arc::clone(form), keyspace.commit_window + keyspace.deadline)))
        }
    })
}

/// The cache that instances share: Redis, or its stand-in in this process. `replicas`: how many must acknowledge a
/// marker, if no log append follows that waits for them.
fn shared_cache(
    name: &str,
    keyspace: &KeyspaceConfig,
    links: Option<&KeyspaceLinks>,
    replicas: Option<Replicas>,
    backend: &Arc<dyn Backend>,
    announces: AnnounceLimits,
) -> Arc<dyn SharedCache> {
    match links {
        _ if keyspace.backend.kind == BackendKind::Set => Arc::new(NoCache::default()),
        Some(links) => {
            // A marker that is set after an entry was looked up lives for window and deadline. Half a window is
            // tolerated for a clock that is set.
            let store_window = keyspace.deadline + keyspace.commit_window / 2;
            let cache =
                RedisCache::new(Arc::clone(&links.main), name, backend.fingerprint()).storing_within(store_window);
            // The log append waits for the replicas, and so covers the markers.
            let cache = cache.marking_over(Arc::clone(&links.announces), replicas);
            Arc::new(
                cache.telling_expiries(keyspace.cache.refresh_ahead > 0.0).keeping_stale(keyspace.cache.stale_if_error),
            )
        }
        None => Arc::new(
            MemoryCache::new(keyspace.cache.hot_capacity, announces.marks())
                .keeping_stale(keyspace.cache.stale_if_error),
        ),
    }
}

/// Fingerprint of what a key means here, as far as the configuration says. Never 0 or 1, which journals reserve.
fn meaning_of_keys(keyspace: &KeyspaceConfig) -> u64 {
    let terms = Terms::new(keyspace.key, keyspace.data_fingerprint(), Duration::ZERO, Duration::ZERO);
    (terms.data ^ (u64::from(terms.form) << 32)) | 2
}
