//! The log that is followed, and what may be built, stored and served before it has been read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bloomguard::cache::{RedisCache, SharedCache, Stored};
use bloomguard::config::EnforcementSetting;
use bloomguard::fleet::{Delta, DeltaLog, EntryId, LogError, LogPage, RedisDeltaLog, Retention, Switch, WriterId};
use bloomguard::keyspace::LogParts;
use bloomguard::labels::{RebuildOutcome, State};
use bloomguard::redis::LogIdentity;
use tokio::sync::watch;

use super::marks::{redis_cache, redis_link};
use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::redis::RedisServer;
use crate::support::scripted::key;

/// A log whose answers come when the test lets them.
struct Withheld {
    log: RedisDeltaLog,
    open: watch::Receiver<bool>,
}

#[async_trait]
impl DeltaLog for Withheld {
    fn retention(&self) -> Duration {
        self.log.retention()
    }

    async fn append(&self, deltas: &[Delta], epoch: Option<u64>) -> Result<(LogIdentity, EntryId), LogError> {
        self.log.append(deltas, epoch).await
    }

    async fn read(&self, after: EntryId) -> Result<LogPage, LogError> {
        let _ = self.open.clone().wait_for(|open| *open).await;
        self.log.read(after).await
    }

    async fn switch(&self, setting: Option<EnforcementSetting>, known: u64) -> Result<Switch, LogError> {
        self.log.switch(setting, known).await
    }

    async fn restore_switch(&self, switch: Switch) -> Result<(), LogError> {
        self.log.restore_switch(switch).await
    }
}

/// An instance whose log is read while the test lets it, and its cache.
async fn instance(
    redis: &RedisServer,
    max_lag: Duration,
    open: bool,
) -> (TestKeyspace, Arc<RedisCache>, watch::Sender<bool>) {
    let (cache, (gate, opened), writer) = (redis_cache(redis).await, watch::channel(open), WriterId::random());
    let retention = Retention { time: Duration::from_secs(3600), bytes: 64 << 20 };
    let log = Arc::new(Withheld {
        log: RedisDeltaLog::new(redis_link(redis).await, "users", writer, retention),
        open: opened,
    });
    let ks = TestKeyspace::with_log(config(), cache.clone(), LogParts { log, writer, max_lag, is_first_start: false });
    (ks, cache, gate)
}

/// Invariant: announced-found-by-fleet
#[tokio::test(flavor = "multi_thread")]
async fn no_build_begins_before_the_first_page_of_the_log_was_read() {
    let redis = RedisServer::start();
    let (ks, _, gate) = instance(&redis, Duration::from_millis(200), false).await;
    // A scan of now would pass keys that are announced after it, and that a first page of much later does not reach
    // back to.
    assert_eq!(ks.rebuild().await, RebuildOutcome::NoLog);
    assert_eq!(ks.keyspace.generation(), 0);
    gate.send_replace(true);
    eventually("a build that may begin", || {
        ks.rebuild.progress().last.is_some_and(|last| last.outcome == RebuildOutcome::Swapped)
    })
    .await;
}

/// Invariant: announced-never-cached-absent
/// Invariant: no-absence-while-not-enforcing
#[tokio::test(flavor = "multi_thread")]
async fn no_absence_is_stored_or_served_under_a_log_that_has_not_been_read_yet() {
    let mut redis = RedisServer::start();
    // Longer than the test: only what the log says ends the rejecting.
    let (ks, cache, gate) = instance(&redis, Duration::from_secs(600), true).await;
    let ks = ks.built().await;
    eventually("it rejects", || ks.keyspace.state() == State::Enforcing).await;
    let entry = |name: &str| format!("bloomguard:entry:users:{name}");
    let stored = |redis: &RedisServer, name: &str| {
        redis::cmd("EXISTS").arg(entry(name)).query::<bool>(&mut redis.connection()).unwrap()
    };
    let passing = ks.false_positive();
    assert_eq!(ks.get(&passing).await, "404 backend");
    assert!(stored(&redis, &passing), "an absence of the log that is followed is stored");

    // The server comes back with nothing: the marks of announces are gone that this instance has not read of yet.
    gate.send_replace(false);
    let before = *cache.epochs().borrow();
    redis.kill();
    redis.restart();
    eventually("the connection is there again", || *cache.epochs().borrow() > before).await;
    let other: String = (0..).map(|i| format!("other:{i}")).find(|name| ks.maybe(name)).unwrap();
    assert_eq!(ks.get(&other).await, "404 backend");
    assert!(!stored(&redis, &other), "under the new log, whose announces this instance has not read");
    assert_eq!(ks.keyspace.state(), State::Enforcing, "nothing but the log could have told");

    // Nor does one count that another instance has stored there.
    let served: String = (0..).map(|i| format!("served:{i}")).find(|name| ks.maybe(name)).unwrap();
    let stamp = cache.get(&key(&served)).await.unwrap().stamp;
    assert_eq!(cache.put_absence(&key(&served), Duration::from_secs(600), &stamp).await.unwrap(), Stored::Yes);
    let asked = ks.backend.calls();
    assert_eq!((ks.get(&served).await.as_str(), ks.backend.calls()), ("404 backend", asked + 1));
}
