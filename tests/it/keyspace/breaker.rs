//! A backend that gives no answer gets one call at a time, and a disconnect cancels its load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bloomguard::backend::BackendError;
use bloomguard::keyspace::{LookupError, LookupOptions};

use crate::support::keyspace::{TestKeyspace, config, told, unlimited};
use crate::support::scripted::key;
use crate::support::{assert_eventually, eventually};

const REJECTED: &str = "bloomguard_shed_total{keyspace=\"users\",reason=\"breaker_open\"}";
const CLOSED: &str = "bloomguard_breaker_state{dependency=\"backend\",state=\"closed\"}";
const INFLIGHT: &str = "bloomguard_backend_inflight_requests{keyspace=\"users\"}";

/// Only a test's own doing ends a load, however slow the machine is.
fn patient() -> bloomguard::config::KeyspaceConfig {
    let mut patient = config();
    patient.deadline = Duration::from_secs(240);
    patient.backend.timeout = Duration::from_secs(240);
    patient
}

/// Invariant: backend-outage-one-call
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_is_down_gets_one_call_at_a_time() {
    let ks = TestKeyspace::enforcing(config()).await;
    ks.backend.fail_with(Some(BackendError::Unavailable("connection refused".into())));
    let (before, start, mut lookups) = (ks.backend.calls(), Instant::now(), 0);
    while ks.metric(REJECTED) < 20.0 {
        assert!(start.elapsed() < Duration::from_secs(60), "every lookup reaches the backend");
        let lookup = ks.lookup(&format!("user:{}", lookups % 1000)).await;
        lookups += 1;
        match lookup.answer.unwrap_err() {
            LookupError::BreakerOpen(retry_in) => assert!(!retry_in.is_zero()),
            LookupError::Backend(_) => {}
            other => panic!("{other}"),
        }
    }
    assert!(ks.backend.calls() - before <= lookups - 20, "a rejected lookup makes no call");
    assert_eq!(ks.metric(CLOSED), 0.0);
    assert_eq!(ks.get(&ks.absent()).await, "404 filter", "the filter needs no backend");
    ks.backend.fail_with(None);
    assert_eventually!(!ks.get("user:1").await.starts_with("503"), "the backend is not asked again");
    assert_eq!(ks.metric(CLOSED), 1.0);
}

/// Invariant: backend-outage-one-call
#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_does_not_fit_is_no_outage() {
    let ks = TestKeyspace::enforcing(config()).await;
    ks.backend.fail_with(Some(BackendError::Invalid("SQL state 22P02".into())));
    let before = ks.backend.calls();
    for i in 0..50 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "503");
    }
    assert_eq!(ks.backend.calls(), before + 50);
    assert_eq!((ks.metric(CLOSED), ks.metric(REJECTED)), (1.0, 0.0));
}

/// Invariant: backend-outage-one-call
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_hangs_opens_the_breaker_though_callers_leave_early() {
    let mut hasty = config();
    hasty.deadline = Duration::from_millis(100);
    hasty.backend.timeout = Duration::from_secs(240);
    let ks = TestKeyspace::enforcing(hasty).await;
    let _turnstile = ks.backend.hold_after_read();
    let short = LookupOptions { timeout: Some(Duration::from_millis(1)), ..LookupOptions::default() };
    assert_eventually!(
        {
            let user = key(format!("user:{}", rand::random_range(0..1000)));
            assert_eq!(told(&ks.keyspace.lookup(user, short.clone()).await), "503");
            ks.metric(REJECTED) > 0.0
        },
        "a backend that hangs is asked for ever"
    );
    ks.backend.hold_no_more();
}

/// A scripted backend has no timeout of its own: only the deadline or a disconnect ends a call.
fn hung(deadline: Duration) -> bloomguard::config::KeyspaceConfig {
    let mut config = config();
    config.deadline = deadline;
    config.backend.timeout = Duration::from_millis(100);
    config.backend.max_concurrency = 1;
    config
}

/// Has a lookup begun by one asker after another, as far apart as `pause`, until one is rejected; `leave` is what
/// becomes of each asker then.
async fn asked_until_one_is_rejected(deadline: Duration, pause: Duration, leave: fn(tokio::task::JoinHandle<String>)) {
    let ks = Arc::new(TestKeyspace::enforcing(hung(deadline)).await);
    let _turnstile = ks.backend.hold_after_read();
    let mut asked = 0;
    assert_eventually!(
        {
            asked += 1;
            let asker = hangs_up_while_loading(&ks, &[&format!("user:{}", asked % 1000)]).await.remove(0);
            // The time itself is tested: how far apart the askers are.
            tokio::time::sleep(pause).await;
            leave(asker);
            ks.metric(REJECTED) > 0.0
        },
        "a backend that hangs is asked for ever"
    );
    ks.backend.hold_no_more();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_hangs_opens_the_breaker_though_callers_hang_up() {
    asked_until_one_is_rejected(Duration::from_secs(240), Duration::from_millis(100), |asker| asker.abort()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_hangs_under_overload_opens_the_breaker() {
    asked_until_one_is_rejected(Duration::from_millis(200), Duration::from_millis(5), drop).await;
}

async fn hangs_up_while_loading(ks: &Arc<TestKeyspace>, keys: &[&str]) -> Vec<tokio::task::JoinHandle<String>> {
    let ask = |name: &str| {
        let (ks, name) = (Arc::clone(ks), name.to_owned());
        tokio::spawn(async move { ks.get(&name).await })
    };
    keys.iter().map(|name| ask(name)).collect()
}

/// Invariant: deadline-ends-a-lookup
#[tokio::test(flavor = "multi_thread")]
async fn a_disconnect_cancels_a_load_without_other_waiters() {
    let mut narrow = patient();
    narrow.backend.max_concurrency = 1;
    let ks = Arc::new(TestKeyspace::enforcing(narrow).await);
    let (turnstile, before) = (ks.backend.hold_after_read(), ks.backend.calls());
    let loading = hangs_up_while_loading(&ks, &["user:1"]).await;
    turnstile.reached().await;
    let queued = hangs_up_while_loading(&ks, &["user:2", "user:3"]).await;
    for asker in &loading {
        asker.abort();
    }
    // The next lookup of the queue has the backend now; no call was answered.
    turnstile.reached().await;
    for asker in &queued {
        asker.abort();
    }
    eventually("nothing is under way", || ks.metric(INFLIGHT) == 0.0).await;
    assert!(ks.backend.calls() <= before + 3);
    ks.backend.hold_no_more();
    assert_eq!(ks.get("user:4").await, "200 backend", "the backend is free again");
    assert_eq!((ks.metric(CLOSED), ks.metric(REJECTED)), (1.0, 0.0), "a load without waiters is no outage");
}

/// Invariant: deadline-ends-a-lookup
#[tokio::test(flavor = "multi_thread")]
async fn a_load_goes_on_for_waiters_and_after_a_timeout() {
    let ks = Arc::new(TestKeyspace::enforcing(patient()).await);
    let (turnstile, before) = (ks.backend.hold_after_read(), ks.backend.calls());
    let first = hangs_up_while_loading(&ks, &["user:1"]).await.remove(0);
    turnstile.reached().await;
    let second = hangs_up_while_loading(&ks, &["user:1"]).await.remove(0);
    eventually("the second has joined", || ks.metric("bloomguard_coalesced_lookups_total{keyspace=\"users\"}") >= 1.0)
        .await;
    first.abort();
    turnstile.release();
    assert_eq!(second.await.unwrap(), "200 backend");
    assert_eq!(ks.backend.calls(), before + 1);

    let short = LookupOptions { timeout: Some(Duration::from_millis(20)), ..LookupOptions::default() };
    let late = ks.keyspace.lookup(key("user:2"), short).await;
    assert!(matches!(late.answer, Err(LookupError::Deadline(_))));
    turnstile.reached().await;
    turnstile.release();
    eventually("the load has ended", || ks.metric(INFLIGHT) == 0.0).await;
    ks.backend.hold_no_more();
    let again = ks.get("user:2").await;
    assert!(again.starts_with("200"), "{again}");
    assert_eq!(ks.backend.calls(), before + 2, "it was not loaded in vain");
}

/// Invariant: deadline-ends-a-lookup
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_without_waiters_ends_with_its_calls_in_flight() {
    let mut narrow = patient();
    narrow.backend.max_concurrency = 4;
    let ks = Arc::new(TestKeyspace::enforcing(narrow).await);
    let (turnstile, before) = (ks.backend.hold_after_read(), ks.backend.calls());
    let batch = tokio::spawn({
        let ks = Arc::clone(&ks);
        async move {
            ks.keyspace
                .lookup_all(
                    (0..100).map(|i| key(format!("user:{i}"))).collect(),
                    LookupOptions::default(),
                    u64::MAX,
                    &mut unlimited(),
                )
                .await
                .len()
        }
    });
    turnstile.reached().await;
    batch.abort();
    assert!(batch.await.unwrap_err().is_cancelled());
    (0..100).for_each(|_| turnstile.release());
    eventually("nothing is under way", || ks.metric(INFLIGHT) == 0.0).await;
    assert_eq!(ks.get("user:999").await, "200 backend");
    assert_eq!(ks.backend.calls(), before + 2, "a quarter of the cap is one call");
}
