//! What each outcome looks like to a client, and where it is counted.

use super::users::{absent, config, false_positive, site};
use crate::support::app::TestApp;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

async fn each_outcome(site: Site, redis: Option<&RedisServer>) {
    let app = TestApp::enforcing(&config(&site.url()).maybe_redis(redis)).await;

    let id = absent(&app);
    let answer = app.get(&format!("/v1/keys/users/{id}")).await;
    assert_eq!((answer.told().as_str(), answer.body.len()), ("404 filter", 0));
    assert_eq!(answer.header("bloomguard-verdict"), "absent");
    assert_eq!(answer.header("bloomguard-state"), "enforcing");
    assert_eq!(answer.header("bloomguard-generation"), "1");

    let answer = app.get("/v1/keys/users/42").await;
    assert_eq!(answer.told(), "200 backend");
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.text(), r#"{"id":42,"name":"User 42"}"#);
    assert_eq!(app.get("/v1/keys/users/042").await.told(), "200 hot", "042 and 42 are one key");

    let head = app.send("HEAD", "/v1/keys/users/42", &[]).await;
    assert_eq!((head.told().as_str(), head.body.len(), head.header("content-length")), ("200 hot", 0, "26"));

    let id = false_positive(&app);
    let answer = app.get(&format!("/v1/keys/users/{id}")).await;
    assert_eq!((answer.told().as_str(), answer.body.len()), ("404 backend", 0));
    assert_eq!(answer.header("bloomguard-verdict"), "maybe");
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 hot");

    for (line, expected) in [
        ("bloomguard_lookups_total{keyspace=\"users\",source=\"filter\",result=\"absent\"}", 1.0),
        ("bloomguard_lookups_total{keyspace=\"users\",source=\"backend\",result=\"found\"}", 1.0),
        ("bloomguard_lookups_total{keyspace=\"users\",source=\"hot\",result=\"found\"}", 2.0),
        ("bloomguard_lookups_total{keyspace=\"users\",source=\"backend\",result=\"absent\"}", 1.0),
        ("bloomguard_cache_requests_total{keyspace=\"users\",tier=\"hot\",result=\"hit\"}", 2.0),
        ("bloomguard_cache_requests_total{keyspace=\"users\",tier=\"hot\",result=\"absent\"}", 1.0),
        ("bloomguard_cache_requests_total{keyspace=\"users\",tier=\"hot\",result=\"miss\"}", 2.0),
        ("bloomguard_cache_requests_total{keyspace=\"users\",tier=\"redis\",result=\"miss\"}", 2.0),
        ("bloomguard_filter_false_positives_total{keyspace=\"users\"}", 1.0),
        ("bloomguard_filter_checks_total{keyspace=\"users\",verdict=\"absent\"}", 1.0),
        ("bloomguard_filter_checks_total{keyspace=\"users\",verdict=\"maybe\"}", 5.0),
        ("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"found\"}", 1.0),
        ("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"absent\"}", 1.0),
        ("bloomguard_keyspace_state{keyspace=\"users\",state=\"enforcing\"}", 1.0),
        ("bloomguard_filter_generation{keyspace=\"users\"}", 1.0),
        ("bloomguard_http_requests_total{route=\"keys\",method=\"GET\",code=\"404\"}", 3.0),
        ("bloomguard_http_requests_total{route=\"keys\",method=\"GET\",code=\"200\"}", 2.0),
        ("bloomguard_http_requests_total{route=\"keys\",method=\"HEAD\",code=\"200\"}", 1.0),
    ] {
        assert_eq!(app.metric(line).await, expected, "{line}");
    }
    let status = app.status("users").await;
    assert_eq!(
        (status["state"].as_str(), status["key_form"].as_str()),
        (Some("enforcing"), Some("integer")),
        "{status}"
    );
    assert_eq!(
        (status["generation"].as_u64(), status["last_rebuild"]["keys"].as_u64()),
        (Some(1), Some(1000)),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_on_sqlite_with_the_cache_in_this_process() {
    each_outcome(site(Site::sqlite()).await, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_on_mariadb_with_the_cache_in_this_process() {
    each_outcome(site(Site::mariadb()).await, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_on_postgres_with_redis() {
    let redis = RedisServer::start();
    each_outcome(site(Site::postgres()).await, Some(&redis)).await;
}

/// Invariant: fingerprint-guards-values
#[tokio::test(flavor = "multi_thread")]
async fn two_instances_share_what_one_has_read() {
    let redis = RedisServer::start();
    let site = site(Site::postgres()).await;
    let config = config(&site.url()).redis(&redis);
    let (one, other) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
    assert_eq!(one.get("/v1/keys/users/42").await.told(), "200 backend");
    let answer = other.get("/v1/keys/users/42").await;
    assert_eq!((answer.told().as_str(), answer.text()), ("200 redis", r#"{"id":42,"name":"User 42"}"#));
    // Another query's values are not taken for this one's.
    let renamed =
        TestApp::enforcing(&config.users(|k| k.set("backend.query", "SELECT id FROM users WHERE id = $1"))).await;
    let answer = renamed.get("/v1/keys/users/42").await;
    assert_eq!((answer.told().as_str(), answer.text()), ("200 backend", r#"{"id":42}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_filter_can_be_asked_alone() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let (present, missing) =
        (app.get("/v1/check/users/42").await, app.get(&format!("/v1/check/users/{}", absent(&app))).await);
    assert_eq!((present.status, present.header("bloomguard-verdict")), (204, "maybe"));
    assert_eq!((missing.told().as_str(), missing.header("bloomguard-verdict")), ("404 filter", "absent"));
    assert_eq!(
        app.metric("bloomguard_lookups_total{keyspace=\"users\",source=\"filter\",result=\"absent\"}").await,
        0.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bypass_asks_the_backend_past_filter_and_caches() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let bypass = [("Bloomguard-Bypass", "1")];
    assert_eq!(app.get("/v1/keys/users/42").await.told(), "200 backend");
    assert_eq!(app.send("GET", "/v1/keys/users/42", &bypass).await.told(), "200 backend");
    assert_eq!(app.send("GET", &format!("/v1/keys/users/{}", absent(&app)), &bypass).await.told(), "404 backend");
    assert_eq!(
        app.send("GET", "/v1/keys/users/42", &[("cache-control", "no-cache")]).await.told(),
        "200 hot",
        "unless server.honor_no_cache"
    );
    assert_eq!(
        app.send("GET", &format!("/v1/keys/users/{}", absent(&app)), &[("Bloomguard-Min-Version", "unknown")])
            .await
            .told(),
        "404 backend"
    );
    assert_eq!(app.metric("bloomguard_bypasses_total{keyspace=\"users\"}").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_column_named_value_is_raw_bytes() {
    let site = site(Site::postgres()).await;
    let config = config(&site.url()).users(|k| k.set("backend.query", "SELECT name AS value FROM users WHERE id = $1"));
    let app = TestApp::enforcing(&config).await;
    let answer = app.get("/v1/keys/users/42").await;
    assert_eq!((answer.header("content-type"), answer.text()), ("application/octet-stream", "User 42"));
}
