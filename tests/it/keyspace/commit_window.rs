//! Announces: a key whose announce was acknowledged is never answered 404 once its row is committed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomguard::cache::CacheError;
use bloomguard::keyspace::AnnounceError;
use bloomguard::labels::{RebuildOutcome, Verdict};

use crate::support::assert_eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::scripted::key;

/// Invariant: announced-never-cached-absent
#[tokio::test(flavor = "multi_thread")]
async fn absence_read_inside_the_commit_window_is_never_cached() {
    let ks = Arc::new(TestKeyspace::enforcing(config()).await);
    // A load reads the backend before the commit and ends after it.
    ks.keyspace.announce(&[key("new")]).await.unwrap();
    let turnstile = ks.backend.hold_after_read();
    let early = tokio::spawn({
        let ks = Arc::clone(&ks);
        async move { ks.get("new").await }
    });
    turnstile.reached().await;
    ks.backend.hold_no_more();
    ks.backend.commit("new");
    turnstile.release();
    assert_eq!(early.await.unwrap(), "404 backend", "it began before the commit");
    assert_eq!(ks.get("new").await, "200 backend", "and left nothing behind");
}

/// Reads absences before an announce and within its window; `None` where the machine stood still meanwhile, else what
/// is answered after the window.
async fn after_the_window() -> Option<Vec<String>> {
    let mut short = config();
    short.commit_window = Duration::from_secs(1);
    short.deadline = Duration::from_secs(1);
    short.cache.hot_ttl = Duration::from_secs(60);
    let window = short.commit_window;
    let ks = TestKeyspace::enforcing(short).await;
    // Cached before the announce, and read within the window: neither may come back once the memory has forgotten the
    // key.
    let stranger = ks.false_positive();
    let cached = ks.get(&stranger).await;
    for announced in [stranger.as_str(), "new"] {
        let sent = Instant::now();
        let durable = ks.keyspace.announce(&[key(announced)]).await.is_ok();
        let told = ks.get(announced).await;
        if cached != "404 backend" || !durable || sent.elapsed() >= window {
            return None;
        }
        assert_eq!(told, "404 backend");
        ks.backend.commit(announced);
    }
    // The time itself is tested: the filter is older than its bound by then, see `max_staleness`.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let told = vec![ks.get(&stranger).await, ks.get("new").await];
    (!told.contains(&"503".to_owned())).then_some(told)
}

/// Invariant: announced-never-cached-absent
#[tokio::test(flavor = "multi_thread")]
async fn no_absence_of_the_window_is_left_when_it_closes() {
    for _ in 0..10 {
        if let Some(told) = after_the_window().await {
            assert_eq!(told, ["200 backend", "200 backend"]);
            return;
        }
    }
    panic!("the machine stood still each time");
}

/// Invariant: announced-never-cached-absent
#[tokio::test(flavor = "multi_thread")]
async fn absence_read_before_the_announce_is_not_cached_after_it() {
    let ks = Arc::new(TestKeyspace::enforcing(config()).await);
    let stranger = ks.false_positive();
    let turnstile = ks.backend.hold_after_read();
    let early = tokio::spawn({
        let (ks, stranger) = (Arc::clone(&ks), stranger.clone());
        async move { ks.get(&stranger).await }
    });
    turnstile.reached().await;
    ks.backend.hold_no_more();
    ks.keyspace.announce(&[key(&stranger)]).await.unwrap();
    ks.backend.commit(&stranger);
    // The old flight still runs: no lookup may join it any more.
    assert_eq!(ks.get(&stranger).await, "200 backend");
    turnstile.release();
    assert_eq!(early.await.unwrap(), "404 backend");
    assert_eq!(ks.get(&stranger).await, "200 hot");
}

/// Invariant: announced-never-cached-absent
#[tokio::test(flavor = "multi_thread")]
async fn announce_drops_an_absence_that_was_cached_before_it() {
    let ks = TestKeyspace::enforcing(config()).await;
    let stranger = ks.false_positive();
    assert_eq!(ks.get(&stranger).await, "404 backend");
    assert_eq!(ks.get(&stranger).await, "404 hot");
    ks.keyspace.announce(&[key(&stranger)]).await.unwrap();
    assert_eq!(ks.get(&stranger).await, "404 backend", "no cached absence is served within the window");
    ks.backend.commit(&stranger);
    assert_eq!(ks.get(&stranger).await, "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absence_is_not_shared_with_callers_that_joined_after_the_read() {
    let ks = Arc::new(TestKeyspace::enforcing(config()).await);
    let stranger = ks.false_positive();
    let turnstile = ks.backend.hold_after_read();
    let spawn = |ks: &Arc<TestKeyspace>| {
        let (ks, stranger) = (Arc::clone(ks), stranger.clone());
        tokio::spawn(async move { ks.get(&stranger).await })
    };
    let early = spawn(&ks);
    turnstile.reached().await;
    // Without an announce: a `rebuilt` keyspace's row may come at any time, and this one passes the filter.
    ks.backend.commit(&stranger);
    let late = spawn(&ks);
    crate::support::eventually("the late one has joined", || {
        ks.metric("bloomguard_coalesced_lookups_total{keyspace=\"users\"}") >= 1.0
    })
    .await;
    ks.backend.hold_no_more();
    turnstile.release();
    assert_eq!(early.await.unwrap(), "404 backend");
    let late = late.await.unwrap();
    assert!(late == "404 hot" || late == "200 backend", "it looked once more, as a new request would: {late}");
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread")]
async fn row_committed_after_the_scan_survives_the_swap() {
    let ks = TestKeyspace::enforcing(config()).await;
    // Announced before the build begins, committed after its scan has passed.
    ks.keyspace.announce(&[key("before")]).await.unwrap();
    let turnstile = ks.source.hold_after_scan();
    ks.begin_rebuild();
    turnstile.reached().await;
    // Announced and committed while the build runs, after its scan has passed.
    ks.keyspace.announce(&[key("during")]).await.unwrap();
    ks.backend.commit("before");
    ks.backend.commit("during");
    turnstile.release();
    assert_eq!(ks.rebuilt().await, RebuildOutcome::Swapped);
    assert_eq!(ks.keyspace.status().generation, 2);
    for committed in ["before", "during"] {
        assert_eq!(ks.get(committed).await, "200 backend");
    }
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_announce_survives_a_crash() {
    let ks = TestKeyspace::enforcing(config()).await;
    ks.keyspace.announce(&[key("new")]).await.unwrap();
    let next = ks.restarted(config()).built().await;
    assert_eq!(next.keyspace.peek(&key("new")).verdict, Verdict::Maybe);
    next.backend.commit("new");
    assert_eq!(next.get("new").await, "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_degrades_until_a_scan_after_the_window() {
    let mut short = config();
    short.commit_window = Duration::from_secs(2);
    let ks = TestKeyspace::enforcing(short.clone()).await;
    ks.keyspace.announce(&[key("lost")]).await.unwrap();
    // A machine that stands still for the whole window builds a filter that is right already.
    let next = loop {
        std::fs::write(ks.dir().join("users.journal"), [0xa5; 100]).unwrap();
        let (next, start) = (ks.restarted(short.clone()), Instant::now());
        next.rebuild().await;
        let state = next.keyspace.state();
        if start.elapsed() < short.commit_window {
            assert_eq!(state.as_str(), "degraded");
            break next;
        }
    };
    // A fault that is seen meanwhile must not shorten the quarantine. The later scan may come at any time.
    let absent = next.absent();
    next.source.keys.lock().push(absent.clone());
    next.source.keys.lock().push("lost".into());
    next.backend.commit(&absent);
    assert_eq!(next.get(&absent).await, "200 backend");
    next.backend.commit("lost");
    assert_eq!(next.get("lost").await, "200 backend");
    crate::support::eventually("a later scan mends it by itself", || next.keyspace.state().as_str() == "enforcing")
        .await;
    assert_eq!(next.get("lost").await.split(' ').next(), Some("200"));
}

/// Invariant: acknowledged-is-durable
#[tokio::test(flavor = "multi_thread")]
async fn an_announce_without_a_marker_is_not_acknowledged() {
    let ks = TestKeyspace::with_cache(config(), Arc::new(crate::support::scripted::DeadCache::default())).built().await;
    let error = ks.keyspace.announce(&[key("new")]).await.unwrap_err();
    assert!(matches!(error, AnnounceError::Marker(CacheError::Unavailable(_))), "{error}");
    assert_eq!(ks.keyspace.peek(&key("new")).verdict, Verdict::Maybe, "but its bits are set all the same");
    assert_eq!(ks.get("user:1").await, "200 backend", "and lookups go on without the cache");
}

/// Invariant: removed-rows-stay-removed
#[tokio::test(flavor = "multi_thread")]
async fn late_fill_does_not_bring_a_deleted_row_back() {
    let ks = Arc::new(TestKeyspace::enforcing(config()).await);
    let turnstile = ks.backend.hold_after_read();
    let early = tokio::spawn({
        let ks = Arc::clone(&ks);
        async move { ks.get("user:1").await }
    });
    turnstile.reached().await;
    ks.backend.hold_no_more();
    ks.backend.remove("user:1");
    ks.keyspace.delete(&key("user:1")).await.unwrap();
    assert_eq!(ks.get("user:1").await, "404 backend", "the old load is not joined");
    turnstile.release();
    assert_eq!(early.await.unwrap(), "200 backend", "it began before the delete");
    assert!(ks.get("user:1").await.starts_with("404"), "and stored nothing");
    assert_eq!(
        ks.metric("bloomguard_filter_false_positives_total{keyspace=\"users\"}"),
        0.0,
        "a deleted key is no false positive"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_deletes_start_a_rebuild() {
    let ks = TestKeyspace::enforcing(config()).await;
    // Well over a tenth, for the number of keys is an estimate.
    for i in 0..150 {
        ks.backend.remove(&format!("user:{i}"));
        ks.source.keys.lock().retain(|k| *k != format!("user:{i}"));
        ks.keyspace.delete(&key(format!("user:{i}"))).await.unwrap();
    }
    crate::support::eventually("a rebuild has begun by itself", || {
        ks.rebuild.progress().running.is_some() || ks.rebuild.progress().last.is_some_and(|last| last.keys < 1000)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_has_closed_lets_absences_be_cached_again() {
    let mut short = config();
    short.commit_window = Duration::from_millis(50);
    short.deadline = Duration::from_secs(2);
    let ks = TestKeyspace::enforcing(short.clone()).await;
    let start = Instant::now();
    let mut sent = start;
    while ks.keyspace.announce(&[key("aborted")]).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "no announce is durable within the deadline");
        sent = Instant::now();
    }
    let told = [ks.get("aborted").await, ks.get("aborted").await];
    if sent.elapsed() < short.deadline {
        assert_eq!(told, ["404 backend", "404 backend"], "nothing was cached within the window");
    }
    assert_eventually!(ks.get("aborted").await == "404 hot", "the absence of an aborted announce is never cached");
}
