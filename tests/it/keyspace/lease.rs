//! One instance of the fleet loads a key; the others wait for it, and are never worse off for that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomguard::config::KeyspaceConfig;
use tokio::task::JoinHandle;

use super::marks::redis_cache;
use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::redis::RedisServer;
use crate::support::scripted::key;

const LEASE: &str = "bloomguard:lease:users:user:1";

/// Instances that share a Redis, each with a backend of its own that holds the same rows.
struct Fleet {
    redis: RedisServer,
    instances: Vec<Arc<TestKeyspace>>,
    /// Backend calls that the builds made.
    before: u64,
}

/// Leases outlive any pause of a busy machine, and so does everybody's patience.
fn patient() -> KeyspaceConfig {
    let mut patient = config();
    patient.deadline = Duration::from_secs(240);
    patient.backend.timeout = Duration::from_secs(90);
    patient
}

impl Fleet {
    async fn of(count: usize, config: &KeyspaceConfig) -> Self {
        let redis = RedisServer::start();
        let mut instances = Vec::new();
        for _ in 0..count {
            instances.push(Arc::new(TestKeyspace::with_cache(config.clone(), redis_cache(&redis).await).built().await));
        }
        let before = instances.iter().map(|ks| ks.backend.calls()).sum();
        Self { redis, instances, before }
    }

    fn calls(&self) -> u64 {
        self.instances.iter().map(|ks| ks.backend.calls()).sum::<u64>() - self.before
    }

    fn asks(&self, instance: usize) -> JoinHandle<(String, String)> {
        let ks = Arc::clone(&self.instances[instance]);
        tokio::spawn(async move {
            let lookup = ks.lookup("user:1").await;
            let body = lookup
                .answer
                .as_ref()
                .ok()
                .and_then(|a| a.value.as_ref())
                .map(|v| String::from_utf8(v.body.to_vec()).unwrap());
            (crate::support::keyspace::told(&lookup), body.unwrap_or_default())
        })
    }

    fn command<T: redis::FromRedisValue>(&self, command: &str, arguments: &[&str]) -> T {
        redis::cmd(command).arg(arguments).query(&mut self.redis.connection()).unwrap()
    }

    /// A lease that none of the instances holds.
    fn held_by_another(&self, millis: &str) {
        let _: () = self.command("SET", &[LEASE, "another", "PX", millis]);
    }

    /// Claims so far: each is a SET, and so are few other commands.
    fn claims(&self) -> u64 {
        let stats: String = self.command("INFO", &["commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls="));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// Waits until somebody has looked again and again for what another is to store.
    async fn waits(&self) {
        let before = self.claims();
        eventually("somebody waits", || self.claims() > before + 5).await;
    }

    fn waited(&self, outcome: &str) -> f64 {
        let line = format!("bloomguard_cache_lease_waits_total{{keyspace=\"users\",outcome=\"{outcome}\"}}");
        self.instances.iter().map(|ks| ks.metric(&line)).sum()
    }
}

/// Invariant: one-call-a-key
#[tokio::test(flavor = "multi_thread")]
async fn one_instance_loads_for_the_whole_fleet() {
    let fleet = Fleet::of(3, &patient()).await;
    let turnstiles: Vec<_> = fleet.instances.iter().map(|ks| ks.backend.hold_after_read()).collect();
    let askers: Vec<_> = (0..30).map(|i| fleet.asks(i % 3)).collect();
    eventually("one has begun to load", || fleet.calls() == 1).await;
    fleet.waits().await;
    fleet.instances.iter().for_each(|ks| ks.backend.hold_no_more());
    turnstiles.iter().for_each(|turnstile| turnstile.release());
    for asker in askers {
        let (told, body) = asker.await.unwrap();
        assert!(told.starts_with("200") && body == "user:1", "{told} {body}");
    }
    assert_eq!(fleet.calls(), 1);
    assert!(fleet.waited("filled") >= 1.0);
    eventually("the lease was given back", || !fleet.command::<bool>("EXISTS", &[LEASE])).await;
}

/// Invariant: one-call-a-key
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_died_is_replaced_within_the_deadline() {
    let fleet = Fleet::of(2, &patient()).await;
    fleet.held_by_another("600000");
    let askers: Vec<_> = (0..10).map(|i| fleet.asks(i % 2)).collect();
    fleet.waits().await;
    assert_eq!(fleet.calls(), 0, "they wait");
    let _: () = fleet.command("PEXPIRE", &[LEASE, "1"]);
    for asker in askers {
        assert!(asker.await.unwrap().0.starts_with("200"));
    }
    assert_eq!(fleet.calls(), 1, "one takes over, the others go on waiting");
    assert_eq!(fleet.waited("taken_over"), 1.0);
}

/// Invariant: one-call-a-key
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_hangs_is_not_waited_for_longer_than_its_lease() {
    let mut quick = patient();
    quick.backend.timeout = Duration::from_millis(200);
    let fleet = Fleet::of(2, &quick).await;
    let turnstile = fleet.instances[0].backend.hold_after_read();
    let hangs = fleet.asks(0);
    turnstile.reached().await;
    let start = Instant::now();
    assert_eq!(fleet.asks(1).await.unwrap().0, "200 backend");
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}: as long as its patience, not as the lease",
        start.elapsed()
    );
    assert!(!hangs.is_finished());
    turnstile.release();
    assert_eq!(hangs.await.unwrap().0, "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_waited_too_long_loads_while_there_is_time() {
    let mut short = patient();
    short.deadline = Duration::from_secs(3);
    let fleet = Fleet::of(1, &short).await;
    // A machine that stands still for the quarter that is left to load may try again.
    for _ in 0..10 {
        fleet.held_by_another("600000");
        if fleet.asks(0).await.unwrap().0 == "200 backend" {
            assert!(fleet.waited("timed_out") >= 1.0);
            return;
        }
    }
    panic!("each time the deadline was over");
}

/// Invariant: one-call-a-key
#[tokio::test(flavor = "multi_thread")]
async fn redis_killed_while_waiting_makes_everybody_load() {
    let mut fleet = Fleet::of(3, &patient()).await;
    fleet.held_by_another("600000");
    let askers: Vec<_> = (0..30).map(|i| fleet.asks(i % 3)).collect();
    fleet.waits().await;
    fleet.redis.kill();
    for asker in askers {
        assert_eq!(asker.await.unwrap().0, "200 backend");
    }
    assert_eq!(fleet.calls(), 3, "one call an instance");
    assert!(fleet.waited("error") >= 1.0);
}

/// Invariant: one-call-a-key
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_stored_is_loaded_by_all_at_once_and_not_in_turn() {
    let mut small = patient();
    small.cache.max_value_bytes = 3;
    let fleet = Fleet::of(3, &small).await;
    let turnstiles: Vec<_> = fleet.instances.iter().map(|ks| ks.backend.hold_after_read()).collect();
    let first = fleet.asks(0);
    turnstiles[0].reached().await;
    let others = [fleet.asks(1), fleet.asks(2)];
    fleet.waits().await;
    assert_eq!(fleet.calls(), 1);
    turnstiles[0].release();
    assert_eq!(first.await.unwrap().0, "200 backend");
    // Both stand at their backends before either goes on.
    let both = async { tokio::join!(turnstiles[1].reached(), turnstiles[2].reached()) };
    tokio::time::timeout(Duration::from_secs(20), both).await.expect("the second waits for the first");
    turnstiles.iter().for_each(|turnstile| turnstile.release());
    for other in others {
        assert_eq!(other.await.unwrap().0, "200 backend");
    }
    assert!(fleet.waited("freed") >= 1.0);
}

/// Invariant: waiting-serves-nothing-old
#[tokio::test(flavor = "multi_thread")]
async fn a_value_changed_while_waiting_is_not_served_old() {
    let fleet = Fleet::of(3, &patient()).await;
    let turnstile = fleet.instances[0].backend.hold_after_read();
    let first = fleet.asks(0);
    turnstile.reached().await;
    let waiting = fleet.asks(1);
    fleet.waits().await;
    fleet.instances.iter().for_each(|ks| ks.backend.change("user:1", "changed"));
    fleet.instances[2].keyspace.invalidate(&[key("user:1")]).await.unwrap();
    turnstile.release();
    assert_eq!(first.await.unwrap().1, "user:1", "it began before the change");
    assert_eq!(
        waiting.await.unwrap(),
        ("200 backend".into(), "changed".into()),
        "the tombstone kept the old value out"
    );
    let stored = fleet.asks(2).await.unwrap();
    assert_eq!(stored, ("200 redis".into(), "changed".into()), "in the tombstone's place, which the wait had seen");
}

/// Invariant: waiting-serves-nothing-old
#[tokio::test(flavor = "multi_thread")]
async fn a_key_announced_while_waiting_is_not_served_absent() {
    let fleet = Fleet::of(3, &patient()).await;
    fleet.instances.iter().for_each(|ks| ks.backend.remove("user:1"));
    let turnstile = fleet.instances[0].backend.hold_after_read();
    let first = fleet.asks(0);
    turnstile.reached().await;
    let waiting = fleet.asks(1);
    fleet.waits().await;
    // At an instance that neither loads nor waits: only Redis can tell the others.
    fleet.instances[2].keyspace.announce(&[key("user:1")]).await.unwrap();
    fleet.instances.iter().for_each(|ks| ks.backend.commit("user:1"));
    turnstile.release();
    assert_eq!(first.await.unwrap().0, "404 backend", "it began before the commit");
    assert_eq!(waiting.await.unwrap().0, "200 backend", "the marker kept the absence out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_waits_for_no_lease() {
    let fleet = Fleet::of(1, &patient()).await;
    fleet.held_by_another("600000");
    assert_eq!(fleet.instances[0].get_bypassing("user:1").await, "200 backend");
}
