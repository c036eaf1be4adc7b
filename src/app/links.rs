//! The process's connections to Redis.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::config::Config;
use crate::metrics::Metrics;
use crate::redis::{RedisLink, Replicas};
use crate::words::Dependency;

/// How long start-up waits for Redis before it goes on without.
const REDIS_AT_START: Duration = Duration::from_secs(1);

/// The process's connections to Redis.
pub(super) struct RedisLinks {
    /// For everything but announces and drops.
    pub(super) main: Arc<RedisLink>,
    /// For announces and drops where these wait for replicas: one a keyspace, for `WAIT` holds up whatever comes behind it.
    announces: BTreeMap<String, Arc<RedisLink>>,
    pub(super) replicas: Option<Replicas>,
}

impl RedisLinks {
    /// For announces and drops of a keyspace.
    pub(super) fn announces(&self, keyspace: &str) -> Arc<RedisLink> {
        Arc::clone(self.announces.get(keyspace).unwrap_or(&self.main))
    }
}

pub(super) async fn connect_redis(config: &Config, metrics: &Arc<Metrics>) -> anyhow::Result<Option<RedisLinks>> {
    let Some(redis) = &config.redis else { return Ok(None) };
    let (breakers, replicas) = (Arc::clone(&metrics.breakers), Replicas::of(redis));
    let main = RedisLink::connect(redis, move |state| breakers.set(Dependency::Redis, "", state)).context("redis.url")?;
    let mut announces = BTreeMap::new();
    if replicas.is_some() {
        let settings = Replicas::connection(redis);
        for name in config.keyspaces.keys() {
            let (breakers, keyspace) = (Arc::clone(&metrics.breakers), name.clone());
            let tell = move |state| breakers.set(Dependency::RedisAnnounces, &keyspace, state);
            announces.insert(name.clone(), RedisLink::connect(&settings, tell).context("redis.url")?);
        }
    }
    if !main.wait_connected(REDIS_AT_START).await {
        tracing::warn!(url = %redis.url, "Redis can't be reached: serving without it until it can");
    }
    Ok(Some(RedisLinks { main, announces, replicas }))
}
