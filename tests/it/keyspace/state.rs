//! Only a keyspace that can show its promise rejects.

use std::time::Duration;

use bloomguard::config::{Enforcement, Freshness};

use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config};

/// Invariant: only-enforcing-rejects
/// Invariant: no-absence-while-not-enforcing
#[tokio::test(flavor = "multi_thread")]
async fn a_cold_keyspace_rejects_no_key_and_caches_no_absence() {
    let ks = TestKeyspace::cold(config());
    for _ in 0..3 {
        assert_eq!(ks.get("stranger").await, "404 backend");
        assert_eq!(ks.get("user:1").await.split(' ').next(), Some("200"));
    }
    assert_eq!(ks.keyspace.state().as_str(), "cold");
    assert_eq!(ks.metric("bloomguard_filter_false_positives_total{keyspace=\"users\"}"), 0.0);
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_keyspace_rejects_no_key_and_counts_what_it_would_have() {
    let mut shadow = config();
    shadow.enforcement = Enforcement::Shadow;
    let ks = TestKeyspace::enforcing(shadow).await;
    assert_eq!(ks.keyspace.state().as_str(), "shadow");
    let absent = ks.absent();
    assert_eq!(ks.get(&absent).await, "404 backend");
    assert_eq!(ks.get(&absent).await, "404 backend", "an absence is cached only where the filter said maybe");
    assert_eq!(ks.metric("bloomguard_filter_checks_total{keyspace=\"users\",verdict=\"absent\"}"), 2.0);
    let stranger = ks.false_positive();
    assert_eq!(ks.get(&stranger).await, "404 backend");
    assert_eq!(ks.get(&stranger).await, "404 hot");
}

/// Invariant: only-enforcing-rejects
/// Invariant: no-absence-while-not-enforcing
#[tokio::test(flavor = "multi_thread")]
async fn an_aged_filter_stops_rejecting_and_serves_no_cached_absence() {
    let mut aging = config();
    aging.freshness = Freshness::Rebuilt;
    aging.max_staleness = Duration::from_secs(4);
    let ks = TestKeyspace::enforcing(aging).await;
    let (absent, stranger) = (ks.absent(), ks.false_positive());
    assert_eq!(ks.get(&absent).await, "404 filter");
    assert_eq!(ks.get(&stranger).await, "404 backend");
    eventually("it has aged", || ks.keyspace.state().as_str() == "degraded").await;
    assert!(ks.keyspace.status().reason.contains("max_staleness = 4s"), "{}", ks.keyspace.status().reason);
    for _ in 0..2 {
        assert_eq!(ks.get(&absent).await, "404 backend");
        assert_eq!(ks.get(&stranger).await, "404 backend");
    }
    ks.rebuild().await;
    assert_eq!(ks.get(&ks.absent()).await, "404 filter", "a new scan fixes it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_or_announced_filter_does_not_age() {
    for freshness in [Freshness::Static, Freshness::Announced] {
        let mut lasting = config();
        lasting.freshness = freshness;
        lasting.max_staleness = Duration::from_millis(1);
        let ks = TestKeyspace::enforcing(lasting).await;
        // The time itself is tested: longer than `max_staleness`.
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(ks.get(&ks.absent()).await, "404 filter");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absence_that_a_cold_keyspace_began_to_read_is_not_cached() {
    let ks = std::sync::Arc::new(TestKeyspace::cold(config()));
    let turnstile = ks.backend.hold_after_read();
    let early = tokio::spawn({
        let ks = std::sync::Arc::clone(&ks);
        async move { ks.get("stranger").await }
    });
    turnstile.reached().await;
    ks.backend.hold_no_more();
    ks.source.keys.lock().push("stranger".into());
    assert_eq!(ks.rebuild().await.as_str(), "swapped");
    turnstile.release();
    assert_eq!(early.await.unwrap(), "404 backend");
    ks.backend.commit("stranger");
    assert_eq!(
        ks.get("stranger").await,
        "200 backend",
        "the filter that is there now did not say maybe when the read began"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_does_not_fit_the_memory_limit_is_refused() {
    // What the process itself is reckoned with, and 64 KiB.
    let limit = (32u64 << 20) + (64 << 10);
    let ks = TestKeyspace::with_memory(config(), Some(limit)).built().await;
    assert_eq!(ks.keyspace.status().last_rebuild.unwrap().reason, None);
    let active = ks.keyspace.status().bytes;
    // It would fit alone, but not beside the active filter.
    ks.source.keys.lock().extend((0..22_000).map(|i| format!("later:{i}")));
    assert_eq!(ks.rebuild().await.as_str(), "no_memory");
    let (error, told) = (ks.rebuild.progress().last_error.unwrap(), ks.keyspace.status().last_rebuild.unwrap().reason);
    assert_eq!(told.as_deref(), Some(error.as_str()), "the sum is no secret");
    for part in [
        format!("active filter or set of this keyspace ({active} bytes)"),
        format!("over the memory limit of {limit} bytes"),
    ] {
        assert!(error.contains(&part), "no {part:?} in {error}");
    }
    assert_eq!(ks.metric("bloomguard_rebuilds_total{keyspace=\"users\",outcome=\"no_memory\"}"), 1.0);
    assert_eq!((ks.keyspace.state().as_str(), ks.keyspace.generation()), ("enforcing", 1), "the active filter stays");
    assert_eq!(ks.get("user:1").await, "200 backend");
}
