//! Values that are loaded again before they expire.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomguard::backend::BackendError;
use bloomguard::cache::RedisCache;
use bloomguard::config::KeyspaceConfig;

use crate::cache::contract::Linked;
use crate::support::app::TestApp;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::redis::RedisServer;

const FALSE_POSITIVES: &str = "bloomguard_filter_false_positives_total{keyspace=\"users\"}";

/// The window is the whole life of each entry, and every read gets past the hot tier.
fn eager() -> KeyspaceConfig {
    let mut eager = config();
    eager.cache.refresh_ahead = 1.0;
    eager.cache.jitter = 0.0;
    eager.cache.hot_ttl = Duration::from_millis(1);
    eager.deadline = Duration::from_secs(60);
    eager.backend.timeout = Duration::from_secs(30);
    eager
}

fn telling(linked: &Linked) -> Arc<RedisCache> {
    Arc::new(linked.cache().telling_expiries(true))
}

fn refreshes(ks: &TestKeyspace, outcome: &str) -> f64 {
    ks.metric(&format!("bloomguard_cache_refreshes_total{{keyspace=\"users\",outcome=\"{outcome}\"}}"))
}

/// Reads a cached key until `done`; meanwhile no read may wait for the backend.
async fn read_until(what: &str, ks: &TestKeyspace, asked: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "read in vain: {what}");
        let told = ks.get(asked).await;
        assert!(told == "200 redis" || told == "200 hot", "{what}: {told}");
    }
}

/// Reads a key for three of its lives; whether it was loaded in each of them, and none of the reads but the first had
/// to wait for that.
async fn never_expires(ks: &TestKeyspace, asked: &str) -> bool {
    let before = ks.backend.calls();
    assert_eq!(ks.get(asked).await, "200 backend");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        if ks.get(asked).await == "200 backend" {
            return false;
        }
        // The time itself is tested: reads at a steady rate, for as long as three lifetimes.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ks.backend.calls() >= before + 3
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_key_never_expires_under_its_readers() {
    let linked = Linked::to(RedisServer::start()).await;
    let mut short = eager();
    short.cache.ttl = Duration::from_secs(1);
    short.cache.refresh_ahead = 0.75;
    let ks = TestKeyspace::with_cache(short, telling(&linked)).built().await;
    // A machine that stands still for most of a second loses any such race: it may try again. Without refreshes no try
    // succeeds.
    for attempt in 0..10 {
        if never_expires(&ks, &format!("user:{attempt}")).await {
            assert!(refreshes(&ks, "refreshed") >= 2.0);
            return;
        }
    }
    panic!("it expired under its readers each time");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_instance_refreshes_for_the_whole_fleet() {
    let linked = Linked::to(RedisServer::start()).await;
    let (one, two) = (
        TestKeyspace::with_cache(eager(), telling(&linked)).built().await,
        TestKeyspace::with_cache(eager(), telling(&linked)).built().await,
    );
    assert_eq!(one.get("user:1").await, "200 backend");
    let before = one.backend.calls() + two.backend.calls();
    let calls = || one.backend.calls() + two.backend.calls() - before;
    let turnstile = one.backend.hold_after_read();
    one.backend.change("user:1", "changed");
    read_until("the first refreshes", &one, "user:1", || calls() == 1).await;
    read_until("the second would", &two, "user:1", || refreshes(&two, "skipped") >= 1.0).await;
    assert_eq!(calls(), 1);
    one.backend.hold_no_more();
    turnstile.release();
    eventually("it is refreshed", || refreshes(&one, "refreshed") == 1.0).await;
    let lookup = two.lookup("user:1").await;
    assert_eq!(lookup.answer.unwrap().value.unwrap().body, "changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_fails_leaves_the_value_as_it_is() {
    let ks = TestKeyspace::enforcing(eager()).await;
    assert_eq!(ks.get("user:1").await, "200 backend");
    ks.backend.fail_with(Some(BackendError::Unavailable("connection refused".into())));
    read_until("a refresh fails", &ks, "user:1", || refreshes(&ks, "error") >= 3.0).await;
    ks.backend.fail_with(None);
    read_until("one succeeds", &ks, "user:1", || refreshes(&ks, "refreshed") >= 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_that_finds_no_row_removes_the_value() {
    let ks = TestKeyspace::enforcing(eager()).await;
    assert_eq!(ks.get("user:1").await, "200 backend");
    ks.backend.remove("user:1");
    let (turnstile, before) = (ks.backend.hold_after_read(), ks.backend.calls());
    read_until("it refreshes", &ks, "user:1", || ks.backend.calls() == before + 1).await;
    ks.backend.hold_no_more();
    turnstile.release();
    eventually("it is gone", || refreshes(&ks, "absent") == 1.0).await;
    assert_eq!(ks.metric(FALSE_POSITIVES), 0.0, "no lookup asked the filter");
    assert_eq!(ks.get("user:1").await, "404 backend");
    assert_eq!(ks.metric(FALSE_POSITIVES), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_takes_no_value_away_by_refreshes() {
    let ks = TestKeyspace::enforcing(eager()).await;
    assert_eq!(ks.get("user:999").await, "200 backend");
    (0..1000).for_each(|i| ks.backend.remove(&format!("user:{i}")));
    let storm = async || {
        for i in 0..101 {
            assert_eq!(ks.get(&format!("user:{i}")).await.split(' ').next(), Some("404"));
        }
    };
    storm().await;
    eventually("the storm is seen", || ks.metric("bloomguard_backend_absence_storms_total{keyspace=\"users\"}") == 1.0)
        .await;
    let start = Instant::now();
    while refreshes(&ks, "absent") < 3.0 {
        assert!(start.elapsed() < Duration::from_secs(60), "no read refreshes");
        // A storm ends without further absences.
        storm().await;
        for _ in 0..20 {
            let told = ks.get("user:999").await;
            assert!(told.starts_with("200"), "{told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_backend_is_not_asked_for_refreshes() {
    let mut narrow = eager();
    narrow.backend.max_concurrency = 1;
    let ks = Arc::new(TestKeyspace::enforcing(narrow).await);
    assert_eq!(ks.get("user:1").await, "200 backend");
    let turnstile = ks.backend.hold_after_read();
    let busy = tokio::spawn({
        let ks = Arc::clone(&ks);
        async move { ks.get("user:2").await }
    });
    turnstile.reached().await;
    let before = ks.backend.calls();
    read_until("no call is free", &ks, "user:1", || refreshes(&ks, "skipped") >= 3.0).await;
    assert_eq!(ks.backend.calls(), before);
    assert_eq!(ks.metric("bloomguard_shed_total{keyspace=\"users\",reason=\"queue_full\"}"), 0.0);
    turnstile.release();
    assert_eq!(busy.await.unwrap(), "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_dropped_while_it_is_refreshed_does_not_come_back() {
    let linked = Linked::to(RedisServer::start()).await;
    let ks = TestKeyspace::with_cache(eager(), telling(&linked)).built().await;
    assert_eq!(ks.get("user:1").await, "200 backend");
    let (turnstile, before) = (ks.backend.hold_after_read(), ks.backend.calls());
    read_until("it refreshes", &ks, "user:1", || ks.backend.calls() == before + 1).await;
    // One that found the first load's lease not given back yet.
    let skipped = refreshes(&ks, "skipped");
    ks.backend.hold_no_more();
    ks.backend.change("user:1", "changed");
    ks.keyspace.invalidate(&[crate::support::scripted::key("user:1")]).await.unwrap();
    turnstile.release();
    eventually("the refresh has ended", || refreshes(&ks, "skipped") == skipped + 1.0).await;
    for _ in 0..3 {
        assert_eq!(ks.lookup("user:1").await.answer.unwrap().value.unwrap().body, "changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_reaches_redis() {
    let (site, redis) = (Site::sqlite(), RedisServer::start());
    site.run("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users VALUES (1, 'one')").await;
    let config = Config::new().redis(&redis).users(|k| {
        k.set("freshness", "static")
            .set("deadline", "30s")
            .set("cache.refresh_ahead", 1.0)
            .set("cache.jitter", 0.0)
            .set("cache.hot_ttl", "1ms")
            .backend(&site.url(), "SELECT name FROM users WHERE id = $1")
            .set("backend.timeout", "10s")
            .source_sql("SELECT id FROM users")
    });
    let app = TestApp::enforcing(&config).await;
    let start = Instant::now();
    while app.metric("bloomguard_cache_refreshes_total{keyspace=\"users\",outcome=\"refreshed\"}").await == 0.0 {
        assert!(start.elapsed() < Duration::from_secs(60), "no read ever refreshes");
        for _ in 0..20 {
            assert_eq!(app.get("/v1/keys/users/1").await.status, 200);
        }
        app.http.send("POST", &app.url("/v1/lookup/users"), &[("content-type", "application/json")], "[1]").await;
    }
}
