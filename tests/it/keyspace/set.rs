//! A keyspace whose backend is the set of the source's keys: exact, and never sure of more than it can show.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bloomguard::config::{BackendKind, Enforcement, Freshness, KeyspaceConfig};
use bloomguard::keyspace::LookupOptions;
use bloomguard::labels::{RebuildOutcome, Verdict};
use bloomguard::source::SourceError;

use crate::support::keyspace::{TestKeyspace, config, told, unlimited};
use crate::support::scripted::key;
use crate::support::{assert_eventually, eventually};

async fn enforcing() -> TestKeyspace {
    TestKeyspace::of_set(config()).built().await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_found_and_strangers_absent_without_any_cache_or_backend() {
    let ks = enforcing().await;
    let (absent, stranger) = (ks.absent(), ks.false_positive());
    for _ in 0..2 {
        assert_eq!(ks.get("user:7").await, "200 backend");
        assert_eq!(ks.get(&absent).await, "404 filter");
        assert_eq!(ks.get(&stranger).await, "404 backend", "and nothing remembers it");
    }
    assert_eq!(ks.lookup("user:7").await.answer.unwrap().value.unwrap().body, "{\"key\":\"user:7\"}");
    assert_eq!(ks.backend.calls(), 0);
    assert_eq!(ks.metric("bloomguard_lookups_total{keyspace=\"users\",source=\"backend\",result=\"found\"}"), 3.0);
    assert_eq!(ks.metric("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"found\"}"), 3.0);
    assert_eq!(ks.metric("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"absent\"}"), 2.0);
    assert_eq!(ks.metric("bloomguard_filter_false_positives_total{keyspace=\"users\"}"), 2.0);
    assert_eq!(ks.metric("bloomguard_cache_requests_total{keyspace=\"users\",tier=\"hot\",result=\"miss\"}"), 0.0);
    let set = ks.keyspace.status().set.unwrap();
    assert_eq!((set.keys, set.announced, set.removed), (1000, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_answered_from_the_set_each_key_for_itself() {
    let ks = enforcing().await;
    let keys = ["user:1", &ks.absent(), &ks.false_positive(), "user:999"].map(key).to_vec();
    let lookups = ks.keyspace.lookup_all(keys, LookupOptions::default(), u64::MAX, &mut unlimited()).await;
    assert_eq!(
        lookups.iter().map(told).collect::<Vec<_>>(),
        ["200 backend", "404 filter", "404 backend", "200 backend"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_first_scan_no_key_is_absent() {
    let ks = TestKeyspace::of_set(config());
    *ks.source.failure.lock() = Some(SourceError::Unavailable("connection refused".into()));
    assert_eq!(ks.get("user:1").await, "503");
    assert_eq!(ks.rebuild().await, RebuildOutcome::SourceFailed);
    for unknown in ["user:1", "stranger"] {
        assert_eq!(ks.get(unknown).await, "503");
        assert_eq!(ks.get_bypassing(unknown).await, "503");
    }
    ks.keyspace.announce(&[key("new")]).await.unwrap();
    assert_eq!(ks.get("new").await, "200 backend");
    assert_eq!(ks.metric("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"unavailable\"}"), 5.0);
    *ks.source.failure.lock() = None;
    eventually("it is tried again by itself", || ks.keyspace.state().as_str() == "enforcing").await;
    assert_eq!((ks.get("user:1").await.as_str(), ks.get("new").await.as_str()), ("200 backend", "200 backend"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_is_too_old_calls_no_key_absent() {
    let aged = KeyspaceConfig { freshness: Freshness::Rebuilt, max_staleness: Duration::from_millis(1), ..config() };
    let ks = TestKeyspace::of_set(aged).built().await;
    eventually("it has aged", || ks.keyspace.state().as_str() == "degraded").await;
    for stranger in [ks.absent(), ks.false_positive()] {
        assert_eq!(ks.get(&stranger).await, "503");
        assert_eq!(ks.get_bypassing(&stranger).await, "503");
    }
    assert_eq!(ks.get("user:1").await, "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_shadow_the_set_answers_and_the_filter_does_not() {
    let ks = TestKeyspace::of_set(KeyspaceConfig { enforcement: Enforcement::Shadow, ..config() }).built().await;
    assert_eq!(ks.get(&ks.absent()).await, "404 backend");
    assert_eq!(ks.get("user:1").await, "200 backend");
    let aged = KeyspaceConfig { freshness: Freshness::Rebuilt, max_staleness: Duration::from_millis(1), ..config() };
    let ks = TestKeyspace::of_set(KeyspaceConfig { enforcement: Enforcement::Shadow, ..aged }).built().await;
    let absent = ks.absent();
    assert_eventually!(ks.get(&absent).await == "503", "too old, and still sure");
    assert_eq!(ks.get("user:1").await, "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_seen_more_than_this_instance_is_not_told_of_an_absence() {
    let ks = enforcing().await;
    let unapplied = LookupOptions { unapplied_version: true, ..LookupOptions::default() };
    for stranger in [ks.absent(), ks.false_positive()] {
        assert_eq!(told(&ks.keyspace.lookup(key(&stranger), unapplied.clone()).await), "503");
        assert_eq!(ks.get_bypassing(&stranger).await, "404 backend", "a bypass asks for no more than the set knows");
    }
    assert_eq!(told(&ks.keyspace.lookup(key("user:1"), unapplied).await), "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_key_is_a_member_through_a_scan_that_has_passed_it() {
    let ks = enforcing().await;
    ks.keyspace.announce(&[key("before")]).await.unwrap();
    let turnstile = ks.source.hold_after_scan();
    ks.begin_rebuild();
    turnstile.reached().await;
    ks.keyspace.announce(&[key("during")]).await.unwrap();
    for announced in ["before", "during"] {
        assert_eq!(ks.get(announced).await, "200 backend");
    }
    turnstile.release();
    assert_eq!(ks.rebuilt().await, RebuildOutcome::Swapped);
    for announced in ["before", "during"] {
        assert_eq!(ks.get(announced).await, "200 backend", "{announced}");
        assert_eq!(ks.get_bypassing(announced).await, "200 backend", "{announced}");
    }
    assert_eq!(ks.keyspace.status().false_negatives, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announce_without_a_row_is_forgotten_by_a_later_scan() {
    let short =
        KeyspaceConfig { commit_window: Duration::from_millis(10), deadline: Duration::from_millis(500), ..config() };
    let ks = TestKeyspace::of_set(short).built().await;
    assert_eventually!(
        ks.keyspace.announce(&[key("aborted")]).await.is_ok(),
        "no announce is durable within the deadline"
    );
    assert_eq!(ks.get("aborted").await, "200 backend");
    assert_eventually!(
        {
            ks.rebuild().await;
            ks.get("aborted").await.starts_with("404")
        },
        "it stays for ever"
    );
    assert_eq!(ks.keyspace.state().as_str(), "enforcing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_key_is_gone_until_a_scan_sees_it_again() {
    let ks = enforcing().await;
    ks.keyspace.delete(&key("user:1")).await.unwrap();
    assert_eq!(ks.get("user:1").await, "404 backend");
    assert_eq!(
        ks.metric("bloomguard_filter_false_positives_total{keyspace=\"users\"}"),
        0.0,
        "it is in the filter by right"
    );
    ks.rebuild().await;
    assert_eq!(ks.get("user:1").await, "200 backend", "the source still has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_deleted_while_a_scan_has_read_it_is_gone_after_the_swap() {
    let ks = enforcing().await;
    let turnstile = ks.source.hold_after_scan();
    ks.begin_rebuild();
    turnstile.reached().await;
    ks.keyspace.delete(&key("user:1")).await.unwrap();
    assert_eq!(ks.get("user:1").await, "404 backend");
    turnstile.release();
    assert_eq!(ks.rebuilt().await, RebuildOutcome::Swapped);
    assert_eq!(ks.get("user:1").await, "404 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_delete_does_not_hide_a_row_announced_again() {
    let ks = enforcing().await;
    ks.keyspace.announce(&[key("user:1")]).await.unwrap();
    // Of the row before, which had the same key: its request took a while.
    ks.keyspace.delete(&key("user:1")).await.unwrap();
    assert_eq!(ks.get("user:1").await, "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_scan_keeps_the_old_set_and_what_came_since() {
    let ks = enforcing().await;
    ks.keyspace.announce(&[key("new")]).await.unwrap();
    ks.keyspace.delete(&key("user:1")).await.unwrap();
    ks.source.keys.lock().push("unannounced".into());
    *ks.source.failure.lock() = Some(SourceError::Unavailable("connection reset".into()));
    assert_eq!(ks.rebuild().await, RebuildOutcome::SourceFailed);
    let told = [
        ks.get_bypassing("user:1").await,
        ks.get("user:2").await,
        ks.get("new").await,
        ks.get_bypassing("unannounced").await,
    ];
    assert_eq!(told, ["404 backend", "200 backend", "200 backend", "404 backend"]);
    assert_eq!(ks.keyspace.status().set.unwrap().keys, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_announce_survives_a_crash_as_a_member() {
    let ks = enforcing().await;
    ks.keyspace.announce(&[key("new")]).await.unwrap();
    let next = ks.restarted(KeyspaceConfig { backend: set_backend(), ..config() });
    assert_eq!(next.get("new").await, "200 backend", "before the first scan");
    let next = next.built().await;
    assert_eq!(next.get("new").await, "200 backend", "and after one that began within its window");
    assert_eq!(next.backend.calls(), 0);
}

fn set_backend() -> bloomguard::config::BackendConfig {
    bloomguard::config::BackendConfig { kind: BackendKind::Set, ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_do_not_fit_the_memory_limit_are_refused_with_the_sum() {
    let small = KeyspaceConfig { backend: set_backend(), ..config() };
    // The base and the filter fit, and no more.
    let limit = (32 << 20) + (8 << 10);
    let ks = TestKeyspace::with_memory(small, Some(limit));
    assert_eq!(ks.rebuild().await, RebuildOutcome::NoMemory);
    let error = ks.rebuild.progress().last_error.unwrap();
    assert!(error.contains(&limit.to_string()), "{error}");
    assert_eq!(ks.get("user:1").await, "503");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_missed_while_sets_are_swapped_under_load() {
    let ks = Arc::new(enforcing().await);
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients = (0..3).map(|client| {
        let (ks, stop, answered) = (Arc::clone(&ks), Arc::clone(&stop), Arc::clone(&answered));
        tokio::spawn(async move {
            for round in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let scanned = format!("user:{}", (round * 7 + client) % 1000);
                assert_eq!(ks.get(&scanned).await, "200 backend", "{scanned}");
                if round % 50 == 0 {
                    let new = format!("new:{client}:{round}");
                    ks.keyspace.announce(&[key(&new)]).await.unwrap();
                    assert_eq!(ks.get_bypassing(&new).await, "200 backend", "{new}");
                    // Committed now; the next scan may or may not see it.
                    ks.source.keys.lock().push(new.clone());
                    assert_eq!(ks.get(&new).await, "200 backend", "{new}");
                }
                answered.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    for generation in 2..6 {
        let goal = answered.load(Ordering::Relaxed) + 100;
        assert_eq!(ks.rebuild().await, RebuildOutcome::Swapped);
        assert_eq!(ks.keyspace.status().generation, generation);
        eventually("lookups go on", || {
            answered.load(Ordering::Relaxed) >= goal || clients.iter().any(|c| c.is_finished())
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let announced = ks.source.keys.lock().iter().skip(1000).cloned().collect::<Vec<_>>();
    assert!(!announced.is_empty());
    for new in announced {
        assert_eq!(ks.get(&new).await, "200 backend", "{new}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_announces_for_the_set_answer_no_absence_until_a_scan() {
    let short = KeyspaceConfig { commit_window: Duration::from_secs(1), deadline: Duration::from_secs(10), ..config() };
    let ks = TestKeyspace::of_set(short).built().await;
    let turnstile = ks.source.hold_after_scan();
    let announce = async |batch: u32| {
        let keys: Vec<_> = (0..10_000).map(|i| key(format!("new:{batch}:{i}"))).collect();
        // On a slow machine so many are not durable by the deadline.
        assert_eventually!(ks.keyspace.announce(&keys).await.is_ok(), "no announce is durable within the deadline");
        ks.keyspace.status().warnings.iter().any(|warning| warning.contains("than are held"))
    };
    let mut batches = 0..50;
    for batch in batches.by_ref().take(36) {
        assert!(!announce(batch).await);
    }
    // The crowd calls for a scan by itself, which holds the same announces; it ends after further ones are lost to
    // both.
    turnstile.reached().await;
    let mut lost = false;
    while !lost {
        lost = announce(batches.next().unwrap()).await;
    }
    let stranger =
        (0..).map(|i| format!("stranger:{i}")).find(|k| ks.keyspace.peek(&key(k)).verdict == Verdict::Maybe).unwrap();
    assert_eq!(ks.get(&stranger).await, "503");
    assert_eq!((ks.get("user:1").await.as_str(), ks.get("new:0:0").await.as_str()), ("200 backend", "200 backend"));
    (0..10).for_each(|_| turnstile.release());
    assert_eventually!(
        within Duration::from_secs(300) => ks.get(&stranger).await.starts_with("404"),
        "no later scan mends it by itself: {:?}", ks.keyspace.status()
    );
    // The new set is active a moment before its filter; between the two the old notes are freed.
    assert_eventually!(
        within Duration::from_secs(600) => ks.keyspace.status().warnings.is_empty(),
        "the crowded filter is not replaced: {:?}", ks.keyspace.status()
    );
}
