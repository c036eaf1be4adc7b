//! What a polled row does to what is cached.

use bloomguard::cache::{Entry, Mark};
use bloomguard::clock::Moment;
use bloomguard::keyspace::PollCoverage;
use bloomguard::source::PolledKey;

use crate::support::keyspace::{TestKeyspace, config};
use crate::support::scripted::key;

/// Invariant: polled-rows-outlive-builds
#[tokio::test]
async fn a_polled_row_ends_cached_absences_for_good_and_leaves_values_alone() {
    let keyspace = TestKeyspace::enforcing(bloomguard::config::KeyspaceConfig {
        filter: bloomguard::config::FilterConfig { false_positive_rate: 0.05, ..config().filter },
        ..config()
    })
    .await;
    let absent = keyspace.false_positive();
    assert_eq!((keyspace.get(&absent).await, keyspace.get(&absent).await), ("404 backend".into(), "404 hot".into()));
    assert_eq!(keyspace.get("user:1").await, "200 backend");
    let rows = [&absent, "user:1"].map(|text| PolledKey { key: key(text), stamp: 7 });
    keyspace.keyspace.polls().begin(Moment::now());
    assert_eq!(keyspace.keyspace.polls().learn(&rows).await.unwrap(), 2);
    // Not only while the key is remembered: the entry would outlive that.
    assert_eq!(keyspace.shared.get(&key(&absent)).await.unwrap().entry, Entry::Mark(Mark::Announced));
    assert!(matches!(keyspace.shared.get(&key("user:1")).await.unwrap().entry, Entry::Value(_)));
    assert_eq!(
        keyspace.get(&absent).await,
        "404 backend",
        "a backend that lags may not have the row yet, and nobody caches that"
    );
    assert_eq!(keyspace.get(&absent).await, "404 backend");
    keyspace.backend.commit(&absent);
    assert_eq!(keyspace.get(&absent).await, "200 backend");
    keyspace.keyspace.polls().completed(Moment::now(), PollCoverage { covers: None, hidden: None });
    keyspace.keyspace.polls().begin(Moment::now());
    assert_eq!(keyspace.keyspace.polls().learn(&rows).await.unwrap(), 0, "the next poll reads them again");
}
