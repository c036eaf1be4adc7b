//! Builds: what they must pass, and that a failure keeps the active filter.

use std::sync::Arc;

use bloomguard::backend::BackendError;
use bloomguard::config::{KeyspaceFilterKind, SourceConfig};
use bloomguard::filter::{self, Active, Filter, FilterSpec};
use bloomguard::key::KeySecret;
use bloomguard::labels::{RebuildOutcome, Verdict};
use bloomguard::rebuild::RebuildRequest;
use bloomguard::source::SourceError;

use crate::support::keyspace::{TestKeyspace, config};
use crate::support::scripted::key;
use crate::support::{assert_eventually, eventually};

/// Invariant: builds-touch-no-active-filter
#[test]
fn lookup_hashed_before_a_swap_finds_its_key_after() {
    let (secret, active) = (KeySecret::random(), Arc::new(Active::default()));
    let hashed_before = secret.hash(&key("user:1"));
    for generation in 1..=3 {
        let spec = FilterSpec { kind: filter::FilterKind::Bloom, capacity: 1000, rate: 0.001 };
        let candidate = active.begin(Filter::new(spec).unwrap()).unwrap();
        candidate.fill(&[secret.hash(&key("user:1")).get()]);
        assert_eq!(candidate.swap(), generation);
        assert_eq!(active.probe(hashed_before.get()), Some((true, generation)));
    }
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread")]
async fn no_present_or_announced_key_is_missed_while_filters_are_swapped() {
    let ks = Arc::new(TestKeyspace::enforcing(config()).await);
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let ks = Arc::clone(&ks);
            tokio::spawn(async move {
                for i in 0..2000 {
                    let present = format!("user:{}", (i * 7 + reader) % 1000);
                    assert!(ks.get(&present).await.starts_with("200"), "{present}");
                    if i % 10 == reader {
                        let new = format!("new:{reader}:{i}");
                        ks.keyspace.announce(&[key(&new)]).await.unwrap();
                        ks.backend.commit(&new);
                        assert!(ks.get(&new).await.starts_with("200"), "{new}");
                    }
                }
            })
        })
        .collect();
    let mut swaps = 0;
    while !readers.iter().all(tokio::task::JoinHandle::is_finished) {
        assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped);
        swaps += 1;
    }
    for reader in readers {
        reader.await.unwrap();
    }
    assert!(swaps > 3, "{swaps}");
    assert_eq!(ks.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_scan_keeps_the_old_filter() {
    let ks = TestKeyspace::enforcing(config()).await;
    let absent = ks.absent();
    *ks.source.failure.lock() = Some(SourceError::Unavailable("the connection broke".into()));
    assert_eq!(ks.rebuild().await, RebuildOutcome::SourceFailed);
    assert_eq!(ks.keyspace.status().generation, 1);
    assert_eq!(ks.get(&absent).await, "404 filter");
    assert!(ks.rebuild.progress().last_error.unwrap().contains("the connection broke"));
    *ks.source.failure.lock() = None;
    eventually("it is tried again by itself", || ks.keyspace.status().generation == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collapsed_key_set_is_refused_unless_an_operator_accepts_it() {
    let ks = TestKeyspace::enforcing(config()).await;
    ks.source.keys.lock().truncate(899);
    assert_eq!(ks.rebuild().await, RebuildOutcome::Collapsed);
    let error = ks.rebuild.progress().last_error.unwrap();
    assert!(error.contains("899") && error.contains("1000") && error.contains("accept_fewer"), "{error}");
    assert_eq!(ks.keyspace.status().generation, 1);
    assert_eventually!(
        ks.rebuild.request(RebuildRequest { accept_fewer: true }).is_ok(),
        "the running build does not end"
    );
    assert_eq!(ks.rebuilt().await, RebuildOutcome::Swapped);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_source_is_refused_unless_allowed() {
    for (allowed, outcome) in [(false, RebuildOutcome::Empty), (true, RebuildOutcome::Swapped)] {
        let mut config = config();
        config.source = SourceConfig { allow_empty: allowed, ..SourceConfig::default() }.into();
        let ks = TestKeyspace::cold(config);
        ks.source.keys.lock().clear();
        assert_eq!(ks.rebuild().await, outcome);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_lacks_keys_which_the_backend_answered_is_refused() {
    let ks = TestKeyspace::enforcing(config()).await;
    for i in 0..20 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "200 backend");
    }
    ks.source.keys.lock().retain(|k| k != "user:7");
    assert_eq!(ks.rebuild().await, RebuildOutcome::MissingKeys);
    assert!(ks.rebuild.progress().last_error.unwrap().contains("user:7"));
    // Gone from the backend too, without a drop: later builds must not fail because of it.
    ks.backend.remove("user:7");
    eventually("the next build goes through", || ks.keyspace.status().generation == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn source_and_backend_that_mean_different_columns_are_refused() {
    let ks = TestKeyspace::cold(config());
    for i in 0..1000 {
        ks.backend.remove(&format!("user:{i}"));
    }
    assert_eq!(ks.rebuild().await, RebuildOutcome::Mismatch);
    assert_eq!(ks.keyspace.state().as_str(), "cold");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_the_backend_can_not_be_asked_for_do_not_end_a_build() {
    let ks = TestKeyspace::cold(config());
    // So few that each of them is tried.
    ks.source.keys.lock().truncate(16);
    ks.backend.refuse("user:7");
    assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped, "{:?}", ks.rebuild.progress().last_error);
    assert_eq!(ks.get("user:7").await, "503");
    (0..16).for_each(|i| ks.backend.refuse(&format!("user:{i}")));
    assert_eq!(ks.rebuild().await, RebuildOutcome::BackendFailed, "no key at all was found");
    ks.backend.fail_with(Some(BackendError::Unavailable("down".into())));
    assert_eq!(ks.rebuild().await, RebuildOutcome::BackendFailed);
    ks.backend.fail_with(None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_key_that_can_no_longer_be_asked_for_is_not_called_absent() {
    let ks = TestKeyspace::enforcing(config()).await;
    assert_eq!(ks.get("user:7").await, "200 backend");
    ks.source.keys.lock().retain(|k| k != "user:7");
    ks.backend.refuse("user:7");
    assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped, "{:?}", ks.rebuild.progress().last_error);
    assert_eq!(ks.keyspace.peek(&key("user:7")).verdict, Verdict::Maybe);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_ignores_case_never_rejects() {
    let ks = TestKeyspace::cold(config());
    // What a case-insensitive collation does.
    (0..1000).for_each(|i| ks.backend.commit(&format!("USER:{i}")));
    let ks = ks.built().await;
    assert_eq!(ks.keyspace.state().as_str(), "degraded");
    assert!(ks.keyspace.status().reason.contains("text-ci"), "{}", ks.keyspace.status().reason);
    assert_eq!(ks.get("USER:1").await, "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_build_at_a_time_and_its_progress_is_told() {
    let ks = TestKeyspace::enforcing(config()).await;
    let turnstile = ks.source.hold_after_scan();
    let job = ks.begin_rebuild();
    turnstile.reached().await;
    assert_eq!(ks.rebuild.request(RebuildRequest::default()).unwrap_err().0, job);
    eventually("every key has been read", || ks.rebuild.progress().running.is_some_and(|r| r.keys_read == 1000)).await;
    let running = ks.rebuild.progress().running.unwrap();
    assert_eq!((running.job, running.keys_expected, running.percent), (job, Some(1000), Some(100.0)));
    turnstile.release();
    assert_eq!(ks.rebuilt().await, RebuildOutcome::Swapped);
    let last = ks.rebuild.progress().last.unwrap();
    assert_eq!((last.outcome, last.keys), (RebuildOutcome::Swapped, 1000));
    assert_eq!(ks.metric("bloomguard_rebuilds_total{keyspace=\"users\",outcome=\"swapped\"}"), 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schedule_builds_by_itself() {
    let mut config = config();
    config.rebuild.schedule = "* * * * * *".into();
    config.rebuild.jitter = std::time::Duration::ZERO;
    let ks = TestKeyspace::cold(config);
    eventually("two scheduled builds", || ks.keyspace.status().generation >= 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pace_of_a_scan_is_kept() {
    let mut config = config();
    config.rebuild.max_keys_per_second = 2000;
    let ks = TestKeyspace::enforcing(config).await;
    let last = ks.rebuild.progress().last.unwrap();
    assert!(
        (0.5..=last.duration_seconds).contains(&last.scan_seconds),
        "of {} s the scan took {}",
        last.duration_seconds,
        last.scan_seconds
    );
    assert!(last.duration_seconds >= 0.5, "1000 keys at 2000 a second took {}", last.duration_seconds);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_a_count_is_sized_by_expectation_and_last_scan() {
    let uncounted = |expected_keys| {
        let mut config = config();
        config.filter.expected_keys = expected_keys;
        let ks = TestKeyspace::cold(config);
        ks.source.uncounted.store(true, std::sync::atomic::Ordering::SeqCst);
        ks
    };
    let grow = |ks: &TestKeyspace, count: u32| {
        let keys: Vec<String> = (0..count).map(|i| format!("user:{i}")).collect();
        keys.iter().for_each(|key| ks.backend.commit(key));
        *ks.source.keys.lock() = keys;
    };
    let ks = uncounted(Some(1000));
    grow(&ks, 1250);
    assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped);
    assert_eq!(ks.keyspace.status().capacity, 1300);
    grow(&ks, 1550);
    assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped);
    // What the filter holds is an estimate, and may be a little more than the last scan brought.
    let capacity = ks.keyspace.status().capacity;
    assert!((1625..1800).contains(&capacity), "{capacity}");

    let ks = uncounted(None);
    assert_eq!(ks.rebuild().await, RebuildOutcome::SourceFailed);
    assert!(ks.rebuild.progress().last_error.unwrap().contains("set filter.expected_keys"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scalable_filter_needs_to_know_no_number_of_keys() {
    let mut config = config();
    config.filter.kind = KeyspaceFilterKind::Scalable;
    let ks = TestKeyspace::cold(config);
    ks.source.uncounted.store(true, std::sync::atomic::Ordering::SeqCst);
    let ks = ks.built().await;
    assert_eq!(ks.keyspace.status().capacity, 130_000, "nothing is known yet");
    assert_eq!(ks.get("user:7").await, "200 backend");
    assert_eq!(ks.get(&ks.absent()).await, "404 filter");
    assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped);
    assert!((1300..1500).contains(&ks.keyspace.status().capacity), "the last scan tells");
    ks.builds_no_more();
    let new: Vec<_> = (0..3000).map(|n| key(format!("new:{n}"))).collect();
    ks.keyspace.announce(&new).await.unwrap();
    let status = ks.keyspace.status();
    assert!(status.layers > 1 && status.capacity > 3900 && status.estimated_fpr <= 0.0001, "{status:?}");
    assert!(new.iter().all(|key| ks.keyspace.peek(key).verdict == Verdict::Maybe));
}

/// Invariant: rate-is-kept
#[tokio::test(flavor = "multi_thread")]
async fn a_filter_past_its_capacity_keeps_its_rate_then_warns() {
    for kind in [KeyspaceFilterKind::Bloom, KeyspaceFilterKind::Classic] {
        let mut config = config();
        config.filter.kind = kind;
        let ks = TestKeyspace::enforcing(config).await;
        ks.builds_no_more();
        let announce = async |range: std::ops::Range<u32>| {
            let keys: Vec<_> = range.map(|n| key(format!("new:{n}"))).collect();
            ks.keyspace.announce(&keys).await.unwrap();
            assert!(keys.iter().all(|key| ks.keyspace.peek(key).verdict == Verdict::Maybe));
            ks.keyspace.status()
        };
        let grown = announce(0..800).await;
        assert!(
            grown.layers == 2 && grown.estimated_fpr <= 0.0001 && (1.3..1.5).contains(&grown.load_ratio),
            "{grown:?}"
        );
        assert!(grown.warnings.is_empty() && grown.bytes > grown.capacity * 2, "{grown:?}");
        let full = announce(800..4000).await;
        assert!(full.estimated_fpr > 0.0001 && full.warnings[0].contains("it has grown as far as it can"), "{full:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_grows_within_the_memory_limit_only() {
    // Room for the filter and its base, and for nothing else.
    let ks = TestKeyspace::with_memory(config(), Some((32 << 20) + 5000)).built().await;
    ks.builds_no_more();
    let new: Vec<_> = (0..2000).map(|n| key(format!("new:{n}"))).collect();
    ks.keyspace.announce(&new).await.unwrap();
    let status = ks.keyspace.status();
    assert!(status.layers == 1 && status.warnings[0].contains("the memory limit leaves no room"), "{status:?}");
    assert!(
        new.iter().all(|key| ks.keyspace.peek(key).verdict == Verdict::Maybe),
        "the rate rises, and no key is missed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_that_the_backend_answered_is_looked_for() {
    let mut config = config();
    config.rebuild.min_keys_ratio = 0.0;
    let ks = TestKeyspace::enforcing(config).await;
    for i in 0..800 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "200 backend");
    }
    // Most have vanished, one has not.
    ks.source.keys.lock().retain(|k| k.ends_with('9') && k.len() == 8);
    (0..800).filter(|i| *i != 400).for_each(|i| ks.backend.remove(&format!("user:{i}")));
    assert_eq!(ks.rebuild().await, RebuildOutcome::MissingKeys);
    assert!(ks.rebuild.progress().last_error.unwrap().contains("user:400"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_may_be_empty_may_not_lose_its_keys() {
    let mut config = config();
    config.source = SourceConfig { allow_empty: true, ..SourceConfig::default() }.into();
    let ks = TestKeyspace::enforcing(config).await;
    ks.source.keys.lock().clear();
    assert_eq!(ks.rebuild().await, RebuildOutcome::Collapsed);
    assert_eq!(ks.keyspace.status().generation, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_build_is_a_failed_build() {
    let ks = TestKeyspace::enforcing(config()).await;
    ks.source.panic_once();
    assert_eq!(ks.rebuild().await, RebuildOutcome::Cancelled);
    eventually("the next build goes through", || ks.keyspace.status().generation == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_can_not_count_is_sized_by_what_the_filter_holds() {
    let mut grown = config();
    grown.filter.expected_keys = Some(1000);
    let ks = TestKeyspace::cold(grown);
    ks.source.uncounted.store(true, std::sync::atomic::Ordering::SeqCst);
    let ks = ks.built().await;
    assert_eq!(ks.keyspace.status().capacity, 1300);
    for n in 0..500 {
        ks.keyspace.announce(&[key(format!("new:{n}"))]).await.unwrap();
        ks.source.keys.lock().push(format!("new:{n}"));
        ks.backend.commit(&format!("new:{n}"));
    }
    assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped, "{:?}", ks.rebuild.progress().last_error);
    let capacity = ks.keyspace.status().capacity;
    assert!((1800..2100).contains(&capacity), "{capacity}");
}
