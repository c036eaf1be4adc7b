//! Expired values in place of errors, and what never takes their place.

use std::sync::Arc;
use std::time::Duration;

use bloomguard::backend::BackendError;
use bloomguard::cache::{Entry, MemoryCache, RedisCache, SharedCache};
use bloomguard::config::KeyspaceConfig;
use bloomguard::keyspace::{Lookup, LookupOptions};

use crate::cache::contract::Linked;
use crate::support::keyspace::{TestKeyspace, config, told, unlimited};
use crate::support::redis::RedisServer;
use crate::support::scripted::key;
use crate::support::{assert_eventually, eventually};

const HOUR: Duration = Duration::from_secs(3600);
const STALE: &str = "bloomguard_stale_answers_total{keyspace=\"users\"}";

/// Values expire at once.
fn fleeting() -> KeyspaceConfig {
    let mut fleeting = config();
    (fleeting.cache.ttl, fleeting.cache.absent_ttl, fleeting.cache.hot_ttl) =
        (Duration::from_millis(1), HOUR, Duration::from_millis(1));
    fleeting.cache.stale_if_error = HOUR;
    fleeting.cache.hot_capacity = 0;
    fleeting
}

async fn keyspace(config: KeyspaceConfig) -> TestKeyspace {
    let shared = Arc::new(MemoryCache::new(64 << 20, 1 << 20).keeping_stale(HOUR));
    TestKeyspace::with_cache(config, shared).built().await
}

fn down(ks: &TestKeyspace) {
    ks.backend.fail_with(Some(BackendError::Unavailable("connection refused".into())));
}

async fn loaded_and_expired(ks: &TestKeyspace, name: &str) {
    assert_eventually!(ks.get(name).await.starts_with("200"), "it is not loaded");
    assert_eventually!(
        matches!(ks.shared.get(&key(name)).await.unwrap().entry, Entry::Stale { .. }),
        "it does not expire"
    );
}

fn is_stale(lookup: &Lookup) -> bool {
    lookup.answer.as_ref().is_ok_and(|answer| answer.stale.is_some())
}

async fn serves_the_last_value(shared: Arc<dyn SharedCache>) {
    let ks = TestKeyspace::with_cache(fleeting(), shared).built().await;
    loaded_and_expired(&ks, "user:1").await;
    ks.backend.change("user:1", "changed");
    assert_eq!(
        ks.lookup("user:1").await.answer.unwrap().value.unwrap().body,
        "changed",
        "while the backend answers nothing expired is served"
    );
    loaded_and_expired(&ks, "user:1").await;
    down(&ks);
    let (mut forwarded, mut kept_off) = (0, 0);
    while forwarded == 0 || kept_off == 0 {
        let lookup = ks.lookup("user:1").await;
        assert_eq!(told(&lookup), "200 redis");
        let answer = lookup.answer.unwrap();
        let stale = answer.stale.expect("it has expired, also for later lookups: it enters no other tier");
        assert_eq!(answer.value.unwrap().body, "changed");
        *if stale.forwarded { &mut forwarded } else { &mut kept_off } += 1;
    }
    assert_eq!(ks.metric(STALE), f64::from(forwarded + kept_off));
    let lookups = ks
        .keyspace
        .lookup_all(vec![key("user:1"), key("user:2")], LookupOptions::default(), u64::MAX, &mut unlimited())
        .await;
    assert!(is_stale(&lookups[0]), "{:?}", lookups[0]);
    assert_eq!(told(&lookups[1]), "503", "no lookup has ever read it");
    ks.backend.fail_with(None);
    assert_eventually!(ks.get("user:1").await == "200 backend", "the backend is not asked again");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_value_of_this_process_stands_in_for_a_backend_that_is_down() {
    serves_the_last_value(Arc::new(MemoryCache::new(64 << 20, 1 << 20).keeping_stale(HOUR))).await;
}

/// Invariant: expired-values-only-in-outages
#[tokio::test(flavor = "multi_thread")]
async fn the_last_value_of_redis_stands_in_for_a_backend_that_is_down() {
    let linked = Linked::to(RedisServer::start()).await;
    let cache: RedisCache = linked.cache().keeping_stale(HOUR);
    serves_the_last_value(Arc::new(cache)).await;
    let left: i64 =
        redis::cmd("PTTL").arg("bloomguard:entry:users:user:1").query(&mut linked.server.connection()).unwrap();
    assert!(left > 0 && left <= 3_600_002, "it is gone for good {left} ms later");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_backend_is_stood_in_for_within_the_deadline() {
    let mut hasty = fleeting();
    hasty.deadline = Duration::from_secs(1);
    let ks = keyspace(hasty).await;
    loaded_and_expired(&ks, "user:1").await;
    let _turnstile = ks.backend.hold_after_read();
    let lookup = ks.lookup("user:1").await;
    assert!(is_stale(&lookup), "{lookup:?}");
    let lookups =
        ks.keyspace.lookup_all(vec![key("user:1")], LookupOptions::default(), u64::MAX, &mut unlimited()).await;
    assert!(is_stale(&lookups[0]), "{:?}", lookups[0]);
}

/// Invariant: expired-values-only-in-outages
#[tokio::test(flavor = "multi_thread")]
async fn an_absence_is_never_served_past_its_life() {
    let mut brief = fleeting();
    brief.cache.absent_ttl = Duration::from_millis(1);
    let ks = keyspace(brief).await;
    let stranger = ks.false_positive();
    assert_eq!(ks.get(&stranger).await, "404 backend");
    down(&ks);
    assert_eventually!(ks.get(&stranger).await == "503", "the absence does not end");
    for _ in 0..10 {
        assert_eq!(ks.get(&stranger).await, "503");
    }
    assert_eq!(ks.metric(STALE), 0.0);
}

/// Invariant: expired-values-only-in-outages
#[tokio::test(flavor = "multi_thread")]
async fn what_was_dropped_or_announced_anew_is_not_served_expired() {
    let ks = Arc::new(keyspace(fleeting()).await);
    for name in ["user:1", "user:2", "user:3", "user:4"] {
        loaded_and_expired(&ks, name).await;
    }
    let turnstile = ks.backend.hold_after_read();
    let under_way = tokio::spawn({
        let ks = Arc::clone(&ks);
        async move { ks.get("user:4").await }
    });
    turnstile.reached().await;
    ks.keyspace.delete(&key("user:1")).await.unwrap();
    ks.keyspace.invalidate(&[key("user:2"), key("user:4")]).await.unwrap();
    ks.keyspace.announce(&[key("user:3")]).await.unwrap();
    down(&ks);
    ks.backend.hold_no_more();
    turnstile.release();
    assert_eq!(under_way.await.unwrap(), "503", "also where the load had begun before");
    for name in ["user:1", "user:2", "user:3", "user:4"] {
        assert_eq!(ks.get(name).await, "503", "{name}");
    }
    assert_eq!(ks.metric(STALE), 0.0);
}

/// Invariant: expired-values-only-in-outages
#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_or_a_later_version_gets_no_expired_value() {
    let ks = keyspace(fleeting()).await;
    loaded_and_expired(&ks, "user:1").await;
    down(&ks);
    let bypass = LookupOptions { bypass: true, ..LookupOptions::default() };
    let ahead = LookupOptions { unapplied_version: true, ..LookupOptions::default() };
    for options in [bypass, ahead] {
        assert_eq!(told(&ks.keyspace.lookup(key("user:1"), options.clone()).await), "503", "{options:?}");
        assert_eq!(
            told(&ks.keyspace.lookup_all(vec![key("user:1")], options, u64::MAX, &mut unlimited()).await[0]),
            "503"
        );
    }
    assert_eq!(ks.get("user:1").await, "200 redis");
}

/// Invariant: expired-values-only-in-outages
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_longer_than_configured_or_where_nothing_is() {
    for configured in [Duration::ZERO, Duration::from_millis(1)] {
        let mut brief = fleeting();
        brief.cache.stale_if_error = configured;
        let ks = keyspace(brief).await;
        loaded_and_expired(&ks, "user:1").await;
        // The time itself is tested: longer than `stale_if_error`.
        tokio::time::sleep(Duration::from_millis(5)).await;
        down(&ks);
        assert_eq!(ks.get("user:1").await, "503", "another instance keeps it for longer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_gone_takes_its_expired_value_along() {
    let ks = keyspace(fleeting()).await;
    loaded_and_expired(&ks, "user:1").await;
    ks.backend.remove("user:1");
    assert_eq!(ks.get("user:1").await, "404 backend");
    down(&ks);
    assert_eq!(ks.get("user:1").await.split(' ').next(), Some("503"));
    eventually("nothing expired was served", || ks.metric(STALE) == 0.0).await;
}
