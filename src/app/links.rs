//! The process's connections to Redis.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::config::{Config, RedisConfig, RedisPlace};
use crate::labels::Dependency;
use crate::metrics::Metrics;
use crate::redis::{RedisLink, Replicas};

/// Startup waits this long for Redis.
pub(super) const REDIS_AT_START: Duration = Duration::from_secs(1);

/// The process's connections to Redis.
pub(super) struct RedisLinks {
    by_keyspace: BTreeMap<String, KeyspaceLinks>,
    pub(super) replicas: Option<Replicas>,
}

/// The connections of one keyspace.
pub(super) struct KeyspaceLinks {
    /// For everything but announces and drops. All keyspaces share it, except in a cluster.
    pub(super) main: Arc<RedisLink>,
    /// For announces and drops. A connection of its own if these wait for replicas, because `WAIT` blocks all later
    /// commands.
    pub(super) announces: Arc<RedisLink>,
}

impl RedisLinks {
    /// The connections of a configured keyspace.
    pub(super) fn of(&self, keyspace: &str) -> Option<&KeyspaceLinks> {
        self.by_keyspace.get(keyspace)
    }
}

pub(super) async fn connect_redis(config: &Config, metrics: &Arc<Metrics>) -> anyhow::Result<Option<RedisLinks>> {
    let Some(redis) = &config.redis else { return Ok(None) };
    let main = if RedisPlace::is_cluster(&redis.url) {
        connect_each(config, redis, Dependency::Redis, metrics)?
    } else {
        let breakers = Arc::clone(&metrics.breakers);
        let link =
            RedisLink::connect(redis, move |state| breakers.set(Dependency::Redis, "", state)).context("redis.url")?;
        config.keyspaces.keys().map(|name| (name.clone(), Arc::clone(&link))).collect()
    };
    let replicas = Replicas::of(redis);
    let mut announces = match replicas {
        Some(_) => connect_each(config, &Replicas::connection(redis), Dependency::RedisAnnounces, metrics)?,
        None => main.clone(),
    };
    let connected = futures_util::future::join_all(main.values().map(|link| link.wait_connected(REDIS_AT_START))).await;
    if connected.contains(&false) {
        // Why is in the warning of the link.
        tracing::info!(url = %redis.url, "starting without Redis");
    }
    let links = main.into_iter().filter_map(|(name, main)| {
        let announces = announces.remove(&name)?;
        Some((name, KeyspaceLinks { main, announces }))
    });
    Ok(Some(RedisLinks { by_keyspace: links.collect(), replicas }))
}

/// Connects once per keyspace. The breakers share one metric.
fn connect_each(
    config: &Config,
    redis: &RedisConfig,
    dependency: Dependency,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<BTreeMap<String, Arc<RedisLink>>> {
    let connect = |name: &String| {
        let (breakers, keyspace) = (Arc::clone(&metrics.breakers), name.clone());
        let report = move |state| breakers.set(dependency, &keyspace, state);
        Ok((name.clone(), RedisLink::connect_keyspace(redis, name, report).context("redis.url")?))
    };
    config.keyspaces.keys().map(connect).collect()
}
