//! What a backend's answers prove: floods, empty backends, sources that lack keys.

use std::sync::Arc;

use bloomguard::keyspace::LookupOptions;
use bloomguard::labels::Verdict;

use crate::product::process::enforces;
use crate::product::users;
use crate::support::app::{Http, TestApp};
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::keyspace::{TestKeyspace, config, told, unlimited};
use crate::support::process::Process;
use crate::support::scripted::{key, value};
use crate::support::{assert_eventually, eventually};

const STORMS: &str = "bloomguard_backend_absence_storms_total{keyspace=\"users\"}";
const FALSE_POSITIVES: &str = "bloomguard_filter_false_positives_total{keyspace=\"users\"}";

/// Random keys of a flood, so many at once, and between them keys that the filter is known to let pass. Returns the
/// latter.
async fn flood(ks: &TestKeyspace, keys: u64, replayed: usize) -> Vec<String> {
    let positives: Vec<String> = (0..)
        .map(|n| format!("replayed:{n}"))
        .filter(|text| ks.keyspace.peek(&key(text)).verdict == Verdict::Maybe)
        .take(replayed)
        .collect();
    for first in (0..keys).step_by(1000) {
        let batch =
            (first..first + 1000).map(|n| key(format!("random:{n}"))).chain(positives.iter().map(key)).collect();
        let lookups = ks.keyspace.lookup_all(batch, LookupOptions::default(), u64::MAX, &mut unlimited()).await;
        assert!(lookups.iter().all(|lookup| told(lookup).starts_with("404")));
    }
    positives
}

/// 40 rounds of the replayed keys beside 40,000 random ones: what 20,000 absent keys a second bring in two seconds.
async fn a_flood_leaves_the_caches_as_they_are(rate: f64) {
    let mut large = config();
    (large.filter.false_positive_rate, large.filter.headroom) = (rate, 1.0);
    let ks = TestKeyspace::enforcing(large).await;
    for i in 0..50 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "200 backend");
    }
    let before = ks.backend.calls();
    let positives = flood(&ks, 40_000, 20).await;
    let (calls, passed) = (ks.backend.calls() - before, ks.metric(FALSE_POSITIVES));
    assert!(passed >= 20.0 + 20_000.0 * rate, "{passed} passed");
    assert_eq!(calls as f64, passed, "a key that passes costs one call while its absence is cached");
    for positive in &positives {
        assert_eq!(ks.get(positive).await, "404 hot");
    }
    assert_eq!(ks.metric(STORMS), 0.0);
}

/// Invariant: empty-backend-is-doubted
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_and_a_replay_at_a_tenth_of_a_percent_are_no_storm() {
    a_flood_leaves_the_caches_as_they_are(0.001).await;
}

/// Invariant: empty-backend-is-doubted
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_and_a_replay_at_one_percent_are_no_storm() {
    a_flood_leaves_the_caches_as_they_are(0.01).await;
}

/// Invariant: empty-backend-is-doubted
#[tokio::test(flavor = "multi_thread")]
async fn collected_false_positives_asked_at_once_are_no_storm() {
    let mut large = config();
    large.filter.false_positive_rate = 0.01;
    let ks = TestKeyspace::enforcing(large).await;
    let collected: Vec<String> = (0..)
        .map(|n| format!("c:{n}"))
        .filter(|text| ks.keyspace.peek(&key(text)).verdict == Verdict::Maybe)
        .take(150)
        .collect();
    for positive in &collected {
        assert_eq!(ks.get(positive).await, "404 backend");
    }
    // Nothing but the backend itself can tell: it is asked for rows that the build had seen.
    eventually("absences are cached again", || {
        let keyspace = Arc::clone(&ks.keyspace);
        let text = &collected[149];
        keyspace.lookup_at_once(key(text), LookupOptions::default()).is_some() || {
            let text = text.clone();
            drop(tokio::spawn(async move { keyspace.lookup(key(text), LookupOptions::default()).await }));
            false
        }
    })
    .await;
    assert_eq!(ks.metric(STORMS), 0.0);
}

/// Invariant: empty-backend-is-doubted
#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_backend_is_noticed_within_a_hundred_answers_of_known_rows() {
    let mut short = config();
    // Values that expire at once, so that each lookup asks the backend.
    short.cache.max_value_bytes = 0;
    let ks = TestKeyspace::enforcing(short).await;
    for i in 0..200 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "200 backend");
    }
    let _ = flood(&ks, 20_000, 5).await;
    assert_eq!(ks.metric(STORMS), 0.0);
    (0..1000).for_each(|i| ks.backend.remove(&format!("user:{i}")));
    for i in 0..100 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "404 backend");
    }
    assert_eq!(ks.metric(STORMS), 1.0);
    // Restored: no absence of the storm outlives it.
    (0..1000).for_each(|i| ks.backend.commit(&format!("user:{i}")));
    for i in 0..100 {
        let text = format!("user:{i}");
        assert_eventually!(ks.get(&text).await == "200 backend", "{text} is still absent");
    }
}

/// Invariant: empty-backend-is-doubted
#[tokio::test(flavor = "multi_thread")]
async fn deleted_rows_are_no_evidence_against_the_backend() {
    let ks = TestKeyspace::enforcing(config()).await;
    for i in 0..200 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "200 backend");
        ks.backend.remove(&format!("user:{i}"));
        ks.keyspace.delete(&key(format!("user:{i}"))).await.unwrap();
    }
    for i in 0..200 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "404 backend");
    }
    assert_eq!(ks.metric(STORMS), 0.0);
}

/// 900 of 1,000 rows are in the source.
async fn source_that_lacks_rows() -> TestKeyspace {
    let mut proving = config();
    proving.canary.proof = 300;
    let ks = TestKeyspace::cold(proving);
    ks.source.keys.lock().truncate(900);
    ks
}

/// Invariant: proved-before-enforcing
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_lists_too_few_keys_gives_no_wrong_404() {
    let ks = source_that_lacks_rows().await.built().await;
    let mut found = 0;
    for i in 0..2_000 {
        // One in ten of the absences is a row.
        let text = if i % 10 == 0 { format!("user:{}", 900 + i / 10 % 100) } else { format!("stranger:{i}") };
        let told = ks.get(&text).await;
        assert!(told.starts_with(if i % 10 == 0 { "200" } else { "404 backend" }), "{text}: {told}");
        found += u32::from(i % 10 == 0);
    }
    assert_eq!(found, 200);
    eventually("the proof fails", || ks.keyspace.status().state.as_str() == "degraded").await;
    let reason = ks.keyspace.status().reason;
    assert!(reason.starts_with("the proof failed: the backend has a row that the filter called absent"), "{reason}");
}

/// Invariant: proved-before-enforcing
#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_without_history_proves_its_filter_before_it_rejects() {
    let mut proving = config();
    proving.canary.proof = 300;
    let ks = TestKeyspace::cold(proving).built().await;
    for i in 0..300 {
        if i == 120 {
            let status = ks.keyspace.status();
            assert_eq!(status.state.as_str(), "shadow");
            assert_eq!(status.reason, "proving: 120 of 300 absences of the filter were compared with the backend");
        }
        assert_eq!(ks.get(&format!("stranger:{i}")).await, "404 backend");
    }
    assert_eq!(ks.keyspace.status().state.as_str(), "enforcing");
    assert_eq!(ks.get("stranger:0").await, "404 filter");
    assert_eq!(ks.rebuild().await, bloomguard::labels::RebuildOutcome::Swapped);
    assert_eq!(ks.get("stranger:1").await, "404 filter", "a rebuild needs no further proof");
}

/// Invariant: proved-before-enforcing
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_gives_no_answer_neither_proves_nor_refutes() {
    let mut proving = config();
    proving.canary.proof = 10;
    let ks = TestKeyspace::cold(proving).built().await;
    ks.backend.fail_with(Some(bloomguard::backend::BackendError::Unavailable("connection refused".into())));
    for i in 0..20 {
        assert_eq!(ks.get(&format!("stranger:{i}")).await, "503");
    }
    let status = ks.keyspace.status();
    assert_eq!((status.state.as_str(), status.enforcement.proof.unwrap().compared), ("shadow", 0));
}

/// Invariant: proved-before-enforcing
#[tokio::test(flavor = "multi_thread")]
async fn a_scan_after_a_failed_proof_begins_a_new_one() {
    let mut proving = config();
    proving.canary.proof = 50;
    proving.canary.hold = std::time::Duration::ZERO;
    let ks = TestKeyspace::cold(proving);
    ks.source.keys.lock().truncate(900);
    let ks = ks.built().await;
    for i in 0..49 {
        assert_eq!(ks.get(&format!("stranger:{i}")).await, "404 backend");
    }
    assert_eq!(ks.get("user:950").await, "200 backend");
    eventually("the proof fails", || ks.keyspace.status().state.as_str() == "degraded").await;
    ks.source.keys.lock().extend((900..1000).map(|i| format!("user:{i}")));
    assert_eventually!(ks.rebuild().await == bloomguard::labels::RebuildOutcome::Swapped, "no build succeeds");
    eventually("it proves again", || ks.keyspace.status().state.as_str() == "shadow").await;
    for i in 0..50 {
        assert_eq!(ks.get(&format!("stranger:{i}")).await, "404 backend");
    }
    assert_eq!(ks.get("stranger:0").await, "404 filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_sampled_keys_without_rows_are_warned_of() {
    let ks = TestKeyspace::cold(config());
    (0..1000).filter(|i| i % 2 == 0).for_each(|i| ks.backend.remove(&format!("user:{i}")));
    let ks = ks.built().await;
    let status = ks.keyspace.status();
    let ratio = status.source_sample_absent_ratio.unwrap();
    // Half of 16 keys: fewer than a quarter are drawn once in a hundred times.
    let warned = status.warnings.iter().any(|warning| warning.contains("that were sampled from the source"));
    assert_eq!(warned, ratio >= 0.25, "{ratio}: {:?}", status.warnings);
    assert!(ratio > 0.0);
}

fn proving(url: &str) -> Config {
    users::config(url).users(|k| k.set("canary.proof", 30))
}

async fn state(http: &Http, telemetry: &str) -> String {
    let status = http.get(&format!("http://{telemetry}/status")).await.json();
    status["keyspaces"]["users"]["state"].as_str().unwrap().to_owned()
}

/// Invariant: proved-before-enforcing
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_from_a_snapshot_needs_no_second_proof() {
    let (dir, site) = (tempfile::TempDir::new().unwrap(), users::site(Site::sqlite()).await);
    let file = proving(&site.url()).write(dir.path());
    let http = Http::default();
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (data, telemetry) = process.addresses();
    assert_eventually!(state(&http, &telemetry).await != "cold", "it stays cold");
    assert_eq!(state(&http, &telemetry).await, "shadow");
    for id in 7_000_000..7_000_030 {
        assert_eq!(http.get(&format!("http://{data}/v1/keys/users/{id}")).await.told(), "404 backend");
    }
    assert_eq!(http.get(&format!("http://{data}/v1/keys/users/7000000")).await.told(), "404 filter");
    process.signal("TERM");
    assert!(process.ended().success(), "{}", process.log());
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (data, telemetry) = process.addresses();
    enforces(&http, &telemetry).await;
    assert_eq!(http.get(&format!("http://{data}/v1/keys/users/7000000")).await.told(), "404 filter");
    process.signal("TERM");
    process.ended();
    // Another query of the backend: nothing is known of it.
    let other = proving(&site.url()).users(|k| k.set("backend.query", "SELECT name FROM users WHERE id = $1"));
    let mut process = Process::start(dir.path(), &["serve", "--config", &other.write(dir.path())]);
    let (data, telemetry) = process.addresses();
    assert_eventually!(state(&http, &telemetry).await != "cold", "it stays cold");
    assert_eq!(http.get(&format!("http://{data}/v1/keys/users/7000000")).await.told(), "404 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_alone_prove_a_filter_at_the_pace_of_the_canary() {
    let site = users::site(Site::sqlite()).await;
    let app = TestApp::start(&proving(&site.url()).users(|k| k.set("canary.max_per_second", 1000))).await;
    app.wait_for("shadow").await;
    let ids: Vec<u32> = (7_000_000..7_000_040).collect();
    let check = async || {
        let told = app
            .http
            .send("POST", &app.url("/v1/check/users"), &[("content-type", "application/json")], &format!("{ids:?}"))
            .await;
        told.json()["absent"].as_array().unwrap().len()
    };
    assert_eq!(check().await, 0, "it rejects no key yet");
    let start = std::time::Instant::now();
    let mut id = 8_000_000;
    while app.keyspace("users").state().as_str() != "enforcing" {
        assert!(start.elapsed().as_secs() < 60, "{}", app.status("users").await);
        let _ = app.get(&format!("/v1/check/users/{id}")).await;
        id += 1;
    }
    assert!(check().await > 30);
    assert_eq!(app.metric("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"absent\"}").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_backend_that_comes_back_changed_is_no_storm() {
    let ks = TestKeyspace::enforcing(config()).await;
    for i in 0..300 {
        assert_eq!(ks.get(&format!("user:{i}")).await, "200 backend");
    }
    // Rows that change are rows.
    (0..300).for_each(|i| ks.backend.change(&format!("user:{i}"), "changed"));
    for i in 0..300 {
        let lookup = ks
            .keyspace
            .lookup(key(format!("user:{i}")), LookupOptions { bypass: true, ..LookupOptions::default() })
            .await;
        assert_eq!(lookup.answer.unwrap().value, Some(value("changed")));
    }
    assert_eq!(ks.metric(STORMS), 0.0);
}
