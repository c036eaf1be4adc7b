//! A row without announce that no scan has seen is noticed while the filter answers; a filter that is too small is
//! built anew.

use std::time::{Duration, Instant};

use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

/// Every answer of the filter is checked.
fn eager(url: &str, hold: &str) -> Config {
    config(url).users(|k| k.set("canary.sample_rate", 1).set("canary.max_per_second", 1000).set("canary.hold", hold))
}

/// Polled by this query.
fn polled(url: &str, query: &str) -> Config {
    eager(url, "1m")
        .users(|k| k.set("freshness", "polled").set("max_staleness", "2h").set("source.incremental.query", query))
}

async fn checks(app: &TestApp, result: &str) -> f64 {
    app.metric(&format!("bloomguard_filter_canary_checks_total{{keyspace=\"users\",result=\"{result}\"}}")).await
}

/// Waits for this number of checks with this result.
async fn checked(app: &TestApp, result: &str, count: f64) {
    assert_eventually!(checks(app, result).await >= count, "no {result} in a minute");
}

async fn insert(site: &Site, id: u32) {
    site.run(&format!("INSERT INTO users VALUES ({id}, 'behind the keyspace')")).await;
}

/// A row comes unannounced, is answered 404, and the canary finds it.
async fn a_wrong_404_ends_the_rejecting(app: &TestApp, site: &Site) {
    let id = absent(app);
    insert(site, id).await;
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
    checked(app, "false_negative", 1.0).await;
    app.wait_for("degraded").await;
}

/// Invariant: wrong-404-is-noticed
#[tokio::test(flavor = "multi_thread")]
async fn the_canary_finds_an_unannounced_row_and_degrades_for_its_hold() {
    let site = site(Site::postgres()).await;
    let app = TestApp::enforcing(&eager(&site.url(), "4s")).await;
    let id = absent(&app);
    let path = format!("/v1/keys/users/{id}");
    assert_eq!(app.get(&path).await.told(), "404 filter");
    checked(&app, "absent", 1.0).await;
    insert(&site, id).await;
    let asked = Instant::now();
    assert_eq!(app.get(&path).await.told(), "404 filter", "no instance could know");
    checked(&app, "false_negative", 1.0).await;
    assert_eq!(app.get(&path).await.told(), "200 backend");
    assert_eq!(app.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}").await, 1.0);
    assert_eq!(
        app.metric("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"found\"}").await,
        1.0,
        "checks are no guarded reads"
    );
    let told = app.admin("GET", "/admin/keyspaces/users/mismatches", "").await.json();
    assert_eq!(told["false_negatives"][0]["found_by"], "canary");
    assert_eq!(app.rebuild("users").await, "swapped", "which fixes the filter at once");
    let other = format!("/v1/keys/users/{}", absent(&app));
    assert_eventually!(app.get(&other).await.told() == "404 filter", "{}", app.status("users").await);
    assert!(asked.elapsed() >= Duration::from_secs(4), "{:?}", asked.elapsed());
    app.wait_for("enforcing").await;
    assert_eq!(app.metric("bloomguard_keyspace_state_changes_total{keyspace=\"users\",state=\"degraded\"}").await, 1.0);
    assert!(app.keyspace("users").generation() > 1, "it was scanned again");
    assert_eq!(app.get(&path).await.status, 200);
}

/// Invariant: wrong-404-is-noticed
#[tokio::test(flavor = "multi_thread")]
async fn a_row_just_announced_elsewhere_counts_as_late_for_the_canary() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = eager(&site.url(), "1m").redis(&redis);
    let (one, other) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
    let start = Instant::now();
    let mut id = 5_000_000;
    // An instance that happens to have read the log before it is asked knows the row: then another one.
    while checks(&one, "late").await == 0.0 {
        assert!(start.elapsed() < Duration::from_secs(60), "never late");
        id += 1;
        insert(&site, id).await;
        let path = format!("/v1/keys/users/{id}");
        assert_eq!(other.send("PUT", &path, &[]).await.status, 204);
        if one.get(&path).await.told() == "404 filter" {
            checked(&one, "late", 1.0).await;
        }
    }
    assert_eq!(checks(&one, "false_negative").await, 0.0);
    assert_eq!(one.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}").await, 0.0);
    assert_eq!(one.status("users").await["state"], "enforcing");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_keep_to_their_pace_and_a_backend_that_fails_is_an_error() {
    let site = site(Site::sqlite()).await;
    let config = eager(&site.url(), "1m").users(|k| k.set("canary.max_per_second", 4));
    let app = TestApp::enforcing(&config).await;
    let id = absent(&app);
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
    }
    checked(&app, "absent", 5.0).await;
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    site.run("ALTER TABLE users RENAME TO strangers").await;
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
    checked(&app, "error", 1.0).await;
    assert_eq!(app.status("users").await["state"], "enforcing", "a failure is no row");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_its_keys_outgrow_is_built_anew_at_the_size_they_need() {
    let site = site(Site::postgres()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let before = app.status("users").await;
    assert_eq!(before["capacity"], 1300, "{before}");
    let ids: Vec<u32> = (2_000_000..2_000_300).collect();
    let rows: Vec<String> = ids.iter().map(|id| format!("({id}, 'new')")).collect();
    // In this order only because there are no lookups meanwhile: the build may begin as soon as they are announced.
    site.run(&format!("INSERT INTO users VALUES {}", rows.join(", "))).await;
    let announced = app
        .http
        .send("POST", &app.url("/v1/keys/users"), &[("content-type", "application/json")], &format!("{ids:?}"))
        .await;
    assert_eq!(announced.status, 204);
    crate::support::eventually("it is built anew", || app.keyspace("users").generation() > 1).await;
    let after = app.status("users").await;
    // Its 1,300 keys, and twice the 300 that were announced lately, which are an estimate.
    let capacity = after["capacity"].as_u64().unwrap();
    assert!((1870..=1930).contains(&capacity), "{after}");
    assert_eq!(app.keyspace("users").generation(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_absent_keys_are_counted_and_not_their_lookups() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    for id in 3_000_000..3_000_050 {
        for _ in 0..3 {
            assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.status, 404);
        }
    }
    let counted = app.metric("bloomguard_filter_distinct_absent_keys{keyspace=\"users\"}").await;
    assert!((40.0..=60.0).contains(&counted), "{counted}");
    assert_eq!(app.status("users").await["distinct_absent_keys"].as_f64(), Some(counted));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_hot_key_that_is_missing_does_not_look_like_a_flood_of_random_keys() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let hot = format!("/v1/keys/users/{}", absent(&app));
    for _ in 0..300 {
        assert_eq!(app.get(&hot).await.told(), "404 filter");
    }
    assert_eq!(app.metric("bloomguard_filter_distinct_absent_keys{keyspace=\"users\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_inserted_keys_are_counted_and_not_their_announces() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let none = app.metric("bloomguard_filter_distinct_inserted_keys{keyspace=\"users\"}").await;
    assert_eq!(none, 0.0, "keys of the scan are not counted");
    for id in 3_000_000..3_000_050 {
        for _ in 0..3 {
            assert_eq!(app.send("PUT", &format!("/v1/keys/users/{id}"), &[]).await.status, 204);
        }
    }
    let counted = app.metric("bloomguard_filter_distinct_inserted_keys{keyspace=\"users\"}").await;
    assert!((40.0..=60.0).contains(&counted), "{counted}");
    assert_eq!(app.status("users").await["distinct_inserted_keys"].as_f64(), Some(counted));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_younger_than_the_last_poll_is_late_and_no_mistake() {
    let site = site(Site::postgres()).await;
    site.run("ALTER TABLE users ADD COLUMN updated_at TIMESTAMPTZ NOT NULL DEFAULT now()").await;
    // So seldom that only the canary asks for a poll.
    let config = polled(&site.url(), "SELECT id, updated_at FROM users WHERE updated_at >= $1")
        .users(|k| k.set("source.incremental.interval", "30m"));
    let app = TestApp::enforcing(&config).await;
    let id = absent(&app);
    let path = format!("/v1/keys/users/{id}");
    insert(&site, id).await;
    assert_eq!(app.get(&path).await.told(), "404 filter", "no instance could know");
    checked(&app, "late", 1.0).await;
    assert_eq!(app.get(&path).await.told(), "200 backend");
    assert_eq!(app.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}").await, 0.0);
}

/// Invariant: wrong-404-is-noticed
#[tokio::test(flavor = "multi_thread")]
async fn a_row_just_announced_elsewhere_counts_as_late_for_lookups() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = config(&site.url()).redis(&redis).users(|k| k.set("enforcement", "shadow"));
    let (one, other) = (TestApp::start(&config).await, TestApp::start(&config).await);
    one.wait_for("shadow").await;
    other.wait_for("shadow").await;
    let (start, mut id, mut late) = (Instant::now(), 5_000_000, 0);
    // An instance that happens to have read the log before it is asked knows the row: then another one.
    while late < 3 {
        assert!(start.elapsed() < Duration::from_secs(60), "never late");
        id += 1;
        insert(&site, id).await;
        let path = format!("/v1/keys/users/{id}");
        assert_eq!(other.send("PUT", &path, &[]).await.status, 204);
        let found = one.get(&path).await;
        assert_eq!(found.told(), "200 backend");
        late += u32::from(found.header("bloomguard-verdict") == "absent");
    }
    // A row without announce is judged after those.
    insert(&site, 9_000_000).await;
    assert_eq!(one.get("/v1/keys/users/9000000").await.header("bloomguard-verdict"), "absent");
    crate::support::eventually("it is judged", || one.keyspace("users").status().false_negatives > 0).await;
    assert_eq!(one.keyspace("users").status().false_negatives, 1);
}

/// Invariant: wrong-404-is-noticed
#[tokio::test(flavor = "multi_thread")]
async fn only_rows_answered_404_degrade_a_filter_that_is_rebuilt() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(
        &eager(&site.url(), "1m").users(|k| k.set("freshness", "rebuilt").set("max_staleness", "48h")),
    )
    .await;
    let id = absent(&app);
    insert(&site, id).await;
    let path = format!("/v1/keys/users/{id}");
    assert_eq!(app.send("GET", &path, &[("bloomguard-bypass", "1")]).await.told(), "200 backend");
    crate::support::eventually("it is judged", || app.keyspace("users").status().false_negatives == 1).await;
    assert_eq!(app.status("users").await["state"], "enforcing", "younger than the scan, and found");
    assert_eq!(app.get(&path).await.status, 200);
    a_wrong_404_ends_the_rejecting(&app, &site).await;
}

/// Invariant: wrong-404-is-noticed
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_polls_do_not_list_ends_the_rejecting() {
    let site = site(Site::postgres()).await;
    site.run("ALTER TABLE users ADD COLUMN updated_at TIMESTAMPTZ NOT NULL DEFAULT now()").await;
    let config = polled(&site.url(), "SELECT id, updated_at FROM users WHERE updated_at >= $1 AND id < 1000000");
    let app = TestApp::enforcing(&config).await;
    a_wrong_404_ends_the_rejecting(&app, &site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absences_of_batches_are_checked_too() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&eager(&site.url(), "1m")).await;
    let ids: Vec<u32> = (1_000_000..1_000_020).collect();
    let sent = async |path: &str| {
        app.http.send("POST", &app.url(path), &[("content-type", "application/json")], &format!("{ids:?}")).await
    };
    let absent = sent("/v1/check/users").await.json()["absent"].as_array().unwrap().len();
    assert!(absent > 15, "{absent}");
    checked(&app, "absent", absent as f64).await;
    assert_eq!(sent("/v1/lookup/users").await.status, 200);
    checked(&app, "absent", 2.0 * absent as f64).await;
}
