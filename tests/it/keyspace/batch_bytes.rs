//! What a batch holds is bounded, and lookups that share its loads do not notice.

use std::sync::Arc;

use bloomguard::keyspace::{Lookup, LookupError, LookupOptions};

use crate::support::eventually;
use crate::support::keyspace::{TestKeyspace, config, told, unlimited};
use crate::support::scripted::key;

/// A thousand rows of 1000 bytes each.
async fn heavy() -> Arc<TestKeyspace> {
    let ks = TestKeyspace::enforcing(config()).await;
    (0..1000).for_each(|i| ks.backend.change(&format!("user:{i}"), &format!("\"{}\"", "x".repeat(998))));
    Arc::new(ks)
}

async fn all(ks: &TestKeyspace, ids: &[usize], max_bytes: u64) -> Vec<Lookup> {
    let keys = ids.iter().map(|i| key(format!("user:{i}"))).collect();
    ks.keyspace.lookup_all(keys, LookupOptions::default(), max_bytes, &mut unlimited()).await
}

fn refused(lookup: &Lookup) -> bool {
    matches!(lookup.answer, Err(LookupError::BatchFull(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_beyond_a_batchs_bytes_fail_alone_and_are_not_asked_for() {
    let ks = heavy().await;
    let mut open: Vec<usize> = (0..1000).collect();
    let (mut rounds, before) = (0, ks.backend.calls());
    while !open.is_empty() {
        let lookups = all(&ks, &open, 100_000).await;
        let found = lookups.iter().filter(|lookup| told(lookup).starts_with("200")).count();
        let failed = lookups.iter().filter(|lookup| refused(lookup)).count();
        assert_eq!(found + failed, open.len(), "none is absent");
        assert!((1..=100).contains(&found), "{found}");
        open = open.into_iter().zip(&lookups).filter(|(_, lookup)| refused(lookup)).map(|(id, _)| id).collect();
        rounds += 1;
        let calls = ks.backend.calls() - before;
        // One that did not fit, and those that were under way.
        assert!(rounds > 1 || calls <= 105, "{calls} for {found} that fit");
    }
    assert!(rounds >= 10, "{rounds}");
    // Those under way when a batch was full are not lost: the next one finds them hot.
    assert_eq!(ks.backend.calls() - before, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_larger_than_any_batch_fails_alone() {
    let ks = heavy().await;
    ks.backend.change("user:3", &format!("\"{}\"", "x".repeat(200_000)));
    let lookups = all(&ks, &(0..50).collect::<Vec<_>>(), 100_000).await;
    for (id, lookup) in lookups.iter().enumerate() {
        assert_eq!(refused(lookup), id == 3, "{id}: {lookup:?}");
    }
    // Nor does what needs no loading take more than the bound, each time that it is asked for.
    let lookups = all(&ks, &[7; 200], 100_000).await;
    assert_eq!(lookups.iter().filter(|lookup| refused(lookup)).count(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_joined_the_loads_of_a_full_batch_is_answered_all_the_same() {
    let ks = heavy().await;
    let turnstile = ks.backend.hold_after_read();
    let batch = tokio::spawn({
        let ks = Arc::clone(&ks);
        async move { all(&ks, &(0..100).collect::<Vec<_>>(), 1500).await }
    });
    turnstile.reached().await;
    let coalesced = "bloomguard_coalesced_lookups_total{keyspace=\"users\"}";
    let (single, other) = (
        (0..100).map(|i| {
            let ks = Arc::clone(&ks);
            tokio::spawn(async move { ks.get(&format!("user:{i}")).await })
        }),
        {
            let ks = Arc::clone(&ks);
            tokio::spawn(async move { all(&ks, &(0..100).collect::<Vec<_>>(), u64::MAX).await })
        },
    );
    let single: Vec<_> = single.collect();
    eventually("all have joined", || ks.metric(coalesced) >= 200.0).await;
    ks.backend.hold_no_more();
    (0..1000).for_each(|_| turnstile.release());
    assert!(batch.await.unwrap().iter().filter(|lookup| refused(lookup)).count() >= 99);
    for lookup in single {
        assert!(lookup.await.unwrap().starts_with("200"));
    }
    assert!(other.await.unwrap().iter().all(|lookup| told(lookup).starts_with("200")));
}
