//! The seven steps of a lookup.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomguard::backend::BackendError;
use bloomguard::keyspace::LookupOptions;
use bloomguard::labels::Verdict;

use crate::support::keyspace::{TestKeyspace, config, told};
use crate::support::scripted::key;
use crate::support::{assert_eventually, eventually};

/// Invariant: flood-leaves-nothing
#[tokio::test(flavor = "multi_thread")]
async fn absent_key_never_reaches_cache_or_backend() {
    let ks = TestKeyspace::enforcing(config()).await;
    let (absent, before) = (ks.absent(), ks.backend.calls());
    for _ in 0..100 {
        assert_eq!(ks.get(&absent).await, "404 filter");
    }
    assert_eq!(ks.backend.calls(), before);
    for result in ["hit", "absent", "miss", "error"] {
        for tier in ["hot", "redis"] {
            assert_eq!(
                ks.metric(&format!(
                    "bloomguard_cache_requests_total{{keyspace=\"users\",tier=\"{tier}\",result=\"{result}\"}}"
                )),
                0.0
            );
        }
    }
    assert_eq!(ks.metric("bloomguard_lookups_total{keyspace=\"users\",source=\"filter\",result=\"absent\"}"), 100.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn found_key_fills_both_caches() {
    let ks = TestKeyspace::enforcing(config()).await;
    let before = ks.backend.calls();
    assert_eq!(ks.get("user:1").await, "200 backend");
    assert_eq!(ks.get("user:1").await, "200 hot");
    assert_eq!(ks.backend.calls(), before + 1);
    let mut short = config();
    short.cache.hot_ttl = Duration::from_millis(1);
    let ks = TestKeyspace::enforcing(short).await;
    assert_eq!(ks.get("user:1").await, "200 backend");
    assert_eventually!(ks.get("user:1").await == "200 redis", "the hot entry does not expire");
}

#[tokio::test(flavor = "multi_thread")]
async fn false_positive_costs_one_query_and_its_absence_is_cached() {
    let ks = TestKeyspace::enforcing(config()).await;
    let (stranger, before) = (ks.false_positive(), ks.backend.calls());
    assert_eq!(ks.get(&stranger).await, "404 backend");
    for _ in 0..10 {
        assert_eq!(ks.get(&stranger).await, "404 hot");
    }
    assert_eq!(ks.backend.calls(), before + 1);
    assert_eq!(ks.metric("bloomguard_filter_false_positives_total{keyspace=\"users\"}"), 1.0);
}

/// Invariant: one-call-a-key
#[tokio::test(flavor = "multi_thread")]
async fn one_backend_call_however_many_ask_at_once() {
    let ks = Arc::new(TestKeyspace::enforcing(config()).await);
    for (asked, expected) in [("user:1".to_owned(), "200"), (ks.false_positive(), "404")] {
        let before = ks.backend.calls();
        let turnstile = ks.backend.hold_after_read();
        let askers: Vec<_> = (0..50)
            .map(|_| {
                let (ks, asked) = (Arc::clone(&ks), asked.clone());
                tokio::spawn(async move { ks.get(&asked).await })
            })
            .collect();
        turnstile.reached().await;
        ks.backend.hold_no_more();
        let coalesced = "bloomguard_coalesced_lookups_total{keyspace=\"users\"}";
        let joined = if expected == "200" { 49.0 } else { 98.0 };
        eventually("everybody has joined", || ks.metric(coalesced) >= joined).await;
        turnstile.release();
        for asker in askers {
            let answer = asker.await.unwrap();
            assert!(answer.starts_with(expected), "{answer}");
        }
        assert_eq!(ks.backend.calls(), before + 1, "{asked}");
    }
}

/// Invariant: one-call-a-key
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_leader_hands_over() {
    let ks = Arc::new(TestKeyspace::enforcing(config()).await);
    let before = ks.backend.calls();
    let turnstile = ks.backend.hold_after_read();
    let first = tokio::spawn({
        let ks = Arc::clone(&ks);
        async move { ks.get("user:1").await }
    });
    turnstile.reached().await;
    let second = tokio::spawn({
        let ks = Arc::clone(&ks);
        async move { ks.get("user:1").await }
    });
    eventually("the second has joined", || ks.metric("bloomguard_coalesced_lookups_total{keyspace=\"users\"}") >= 1.0)
        .await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    turnstile.release();
    assert_eq!(second.await.unwrap(), "200 backend");
    assert_eq!(ks.backend.calls(), before + 1);
}

/// Invariant: failure-is-no-absence
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_never_an_absence_and_never_cached() {
    let ks = TestKeyspace::enforcing(config()).await;
    let failures = [
        BackendError::Timeout(Duration::from_millis(1)),
        BackendError::Unavailable("connection refused".into()),
        BackendError::Invalid("SQL state 42P01".into()),
    ];
    for failure in failures {
        ks.backend.fail_with(Some(failure));
        assert_eq!(ks.get("user:1").await, "503");
    }
    ks.backend.fail_with(None);
    assert_eq!(ks.get("user:1").await, "200 backend");
}

/// Invariant: deadline-ends-a-lookup
#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_ends_by_its_deadline_and_by_the_shorter_one_of_the_request() {
    let mut short = config();
    short.deadline = Duration::from_millis(200);
    let ks = TestKeyspace::enforcing(short).await;
    let turnstile = ks.backend.hold_after_read();
    let start = Instant::now();
    let options = LookupOptions { timeout: Some(Duration::from_millis(20)), ..LookupOptions::default() };
    let (shortened, whole) = tokio::join!(
        ks.keyspace.lookup(key("user:1"), options),
        ks.keyspace.lookup(key("user:2"), LookupOptions::default())
    );
    assert_eq!(told(&shortened), "503");
    assert!(shortened.answer.unwrap_err().to_string().contains("20ms"));
    assert_eq!(told(&whole), "503");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    drop(turnstile);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backends_cap_holds_and_the_rest_is_shed_at_once() {
    let mut capped = config();
    capped.backend.max_concurrency = 2;
    capped.backend.max_queue = 3;
    let ks = Arc::new(TestKeyspace::enforcing(capped).await);
    let before = ks.backend.calls();
    let turnstile = ks.backend.hold_after_read();
    let waiting: Vec<_> = (0..5)
        .map(|i| {
            let ks = Arc::clone(&ks);
            tokio::spawn(async move { ks.get(&format!("user:{i}")).await })
        })
        .collect();
    turnstile.reached().await;
    turnstile.reached().await;
    eventually("two are served, three wait, the next is shed", || ks.backend.calls() == before + 2).await;
    let shed = "bloomguard_shed_total{keyspace=\"users\",reason=\"queue_full\"}";
    for i in 5.. {
        // A lookup that comes before the three takes a place in the queue and waits: it has a short deadline.
        let options = LookupOptions { timeout: Some(Duration::from_millis(20)), ..LookupOptions::default() };
        let lookup = ks.keyspace.lookup(key(format!("user:{i}")), options).await;
        assert_eq!(told(&lookup), "503");
        if ks.metric(shed) > 0.0 {
            break;
        }
    }
    assert_eq!(ks.backend.calls(), before + 2);
    ks.backend.hold_no_more();
    (0..2).for_each(|_| turnstile.release());
    for lookup in waiting {
        let answer = lookup.await.unwrap();
        assert!(answer == "200 backend" || answer == "503", "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_skips_filter_and_caches_and_refills_them() {
    let ks = TestKeyspace::enforcing(config()).await;
    assert_eq!(ks.get("user:1").await, "200 backend");
    let before = ks.backend.calls();
    assert_eq!(ks.get_bypassing("user:1").await, "200 backend");
    assert_eq!(ks.backend.calls(), before + 1);
    let absent = ks.absent();
    assert_eq!(ks.get_bypassing(&absent).await, "404 backend");
    assert_eq!(ks.backend.calls(), before + 2);
    assert_eq!(ks.get("user:1").await, "200 hot");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_that_finds_no_row_takes_the_value_from_both_caches() {
    let ks = TestKeyspace::enforcing(config()).await;
    assert_eq!(ks.get("user:1").await, "200 backend");
    ks.backend.remove("user:1");
    assert_eq!(ks.get("user:1").await, "200 hot", "no drop of the row was sent");
    assert_eq!(ks.get_bypassing("user:1").await, "404 backend");
    assert_eq!(ks.get("user:1").await.split(' ').next(), Some("404"));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_over_the_limit_are_answered_but_not_cached() {
    let mut small = config();
    small.cache.max_value_bytes = 3;
    let ks = TestKeyspace::enforcing(small).await;
    assert_eq!(ks.get("user:1").await, "200 backend");
    assert_eq!(ks.get("user:1").await, "200 backend");
}

/// Invariant: wrong-404-is-noticed
#[tokio::test(flavor = "multi_thread")]
async fn a_false_negative_is_answered_200_counted_and_degrades() {
    let ks = TestKeyspace::enforcing(config()).await;
    let absent = ks.absent();
    ks.backend.commit(&absent);
    assert_eq!(ks.get_bypassing(&absent).await, "200 backend");
    eventually("it is judged", || ks.keyspace.state().as_str() == "degraded").await;
    assert_eq!(ks.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}"), 1.0);
    assert_eq!(ks.keyspace.peek(&key(&absent)).verdict, Verdict::Maybe, "the key was put into the filter");
    assert_eq!(ks.get(&ks.absent()).await, "404 backend", "a broken promise rejects no key");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absence_lives_no_longer_than_the_filter_may_be_old() {
    let redis = crate::support::redis::RedisServer::start();
    let mut long = config();
    long.max_staleness = Duration::from_secs(20);
    long.cache.absent_ttl = Duration::from_secs(3600);
    let ks = TestKeyspace::with_cache(long, super::marks::redis_cache(&redis).await).built().await;
    let stranger = ks.false_positive();
    assert_eq!(ks.get(&stranger).await, "404 backend");
    let left: i64 =
        redis::cmd("PTTL").arg(format!("bloomguard:entry:users:{stranger}")).query(&mut redis.connection()).unwrap();
    assert!(left > 0 && left <= 10_000, "half in Redis, half in the process: {left} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_after_the_deadline() {
    let mut short = config();
    short.deadline = Duration::from_millis(100);
    let ks = TestKeyspace::enforcing(short).await;
    ks.backend.block_for(Duration::from_millis(400));
    // The whole process stands still past the deadline, so nothing but a look at the clock can keep the fill back.
    assert!(ks.get("user:1").await == "503" || ks.get("user:1").await.starts_with("200"));
    eventually("the load has ended", || ks.metric("bloomguard_backend_inflight_requests{keyspace=\"users\"}") == 0.0)
        .await;
    ks.backend.block_for(Duration::ZERO);
    let shared = ks.shared.get(&key("user:1")).await.unwrap();
    assert_eq!(shared.entry, bloomguard::cache::Entry::Nothing);
}

/// Invariant: announced-never-cached-absent
#[tokio::test(flavor = "multi_thread")]
async fn an_absence_from_before_a_pause_is_not_cached_after_it() {
    let mut short = config();
    (short.commit_window, short.deadline) = (Duration::from_millis(50), Duration::from_millis(100));
    let ks = TestKeyspace::enforcing(short).await;
    for attempt in 0..50 {
        let late = format!("late:{attempt}");
        let announced = Instant::now();
        // On a slow disk it may not be durable by the deadline.
        let durable = ks.keyspace.announce(&[key(&late)]).await.is_ok();
        // The backend says absent, and then the whole process stands still until the memory of the announce has
        // expired.
        ks.backend.block_for(Duration::from_millis(400));
        ks.get(&late).await;
        eventually("the load has ended", || {
            ks.metric("bloomguard_backend_inflight_requests{keyspace=\"users\"}") == 0.0
        })
        .await;
        ks.backend.block_for(Duration::ZERO);
        ks.backend.commit(&late);
        // An absence that the backend told after the window may be cached: then another time.
        let in_window = ks
            .backend
            .last_read()
            .is_some_and(|read| (announced..announced + Duration::from_millis(50)).contains(&read));
        if !durable || !in_window {
            continue;
        }
        for _ in 0..20 {
            let answer = ks.get(&late).await;
            assert!(!answer.starts_with("404"), "{answer}");
            // The time itself is tested: for 20 ms no answer may be a 404.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        return;
    }
    panic!("no read of the backend came within the window");
}
