//! The canary yields to lookups.

use std::sync::Arc;
use std::time::Duration;

use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::scripted::key;

/// Lets the canary take all its samples, one a millisecond. Whether a sample is not checked is told by time alone.
/// On a runtime of one thread each pause ends after the canary's own, which began earlier.
async fn samples_are_taken() {
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn samples_whose_turn_comes_while_the_backend_is_busy_are_not_checked() {
    let mut eager = config();
    (eager.canary.sample_rate, eager.canary.max_per_second) = (1.0, 1000);
    eager.backend.max_concurrency = 1;
    let ks = TestKeyspace::enforcing(eager).await;
    let checks = || ks.metric("bloomguard_filter_canary_checks_total{keyspace=\"users\",result=\"absent\"}");
    let turnstile = ks.backend.hold_after_read();
    let busy = tokio::spawn({
        let keyspace = Arc::clone(&ks.keyspace);
        async move { keyspace.lookup(key("user:1"), bloomguard::keyspace::LookupOptions::default()).await }
    });
    turnstile.reached().await;
    let absent = ks.absent();
    for _ in 0..10 {
        assert_eq!(ks.get(&absent).await, "404 filter");
    }
    samples_are_taken().await;
    ks.backend.hold_no_more();
    turnstile.release();
    assert!(busy.await.unwrap().answer.is_ok());
    assert_eq!(ks.get(&absent).await, "404 filter");
    eventually("the backend is free again", || checks() > 0.0).await;
    samples_are_taken().await;
    assert_eq!(checks(), 1.0);
}
