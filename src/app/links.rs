//! The process's connections to Redis, and how its breakers are shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;

use crate::config::Config;
use crate::metrics::Metrics;
use crate::redis::{RedisLink, Replicas};
use crate::words::{BreakerState, Dependency};

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
    let (told, replicas) = (Arc::clone(metrics), Replicas::of(redis));
    let main = RedisLink::connect(redis, move |state| told.set_breaker(Dependency::Redis, state)).context("redis.url")?;
    let mut announces = BTreeMap::new();
    if replicas.is_some() {
        let (settings, states) = (Replicas::connection(redis), Arc::new(Mutex::new(BTreeMap::new())));
        for name in config.keyspaces.keys() {
            let (metrics, states, keyspace) = (Arc::clone(metrics), Arc::clone(&states), name.clone());
            let tell = move |state| {
                let mut states = states.lock();
                states.insert(keyspace.clone(), state);
                // Under the lock, so that the last one told is the last one shown.
                metrics.set_breaker(Dependency::RedisAnnounces, worst(&states));
            };
            announces.insert(name.clone(), RedisLink::connect(&settings, tell).context("redis.url")?);
        }
    }
    if !main.wait_connected(REDIS_AT_START).await {
        tracing::warn!(url = %redis.url, "Redis can't be reached: serving without it until it can");
    }
    Ok(Some(RedisLinks { main, announces, replicas }))
}

/// What is shown of several connections: open if one is.
fn worst(states: &BTreeMap<String, BreakerState>) -> BreakerState {
    let any = |state| states.values().any(|s| *s == state);
    [BreakerState::Open, BreakerState::HalfOpen].into_iter().find(|state| any(*state)).unwrap_or(BreakerState::Closed)
}
