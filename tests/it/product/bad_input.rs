//! What a client or an operator gets wrong is told to them, and is never a 404.

use super::users::{config, site};
use crate::support::app::{Answer, TestApp};
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::{assert_eventually, eventually};

fn problem(answer: &Answer, status: u16, says: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert!(answer.text().contains(says), "{}", answer.text());
    assert_eq!(answer.json()["status"], status);
    assert!(answer.json()["type"].as_str().is_some_and(|t| !t.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_key_is_refused_with_the_reason() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    problem(&app.get("/v1/keys/orders/1").await, 400, "orders");
    problem(&app.get("/v2/keys/users/1").await, 400, "");
    problem(&app.get("/").await, 400, "");
    problem(&app.get("/v1/keys/users/").await, 400, "empty");
    problem(&app.get("/v1/keys/users/?x=1").await, 400, "empty");
    problem(&app.get("/v1/keys/users/abc").await, 400, "integer");
    problem(&app.get("/v1/keys/users/1;%20DROP%20TABLE%20users").await, 400, "integer");
    problem(&app.get("/v1/keys/users/../../admin").await, 400, "integer");
    problem(&app.get("/v1/check/users/abc").await, 400, "integer");
    problem(&app.send("PUT", "/v1/keys/users/abc", &[]).await, 400, "integer");
    problem(&app.get(&format!("/v1/keys/users/{}", "1".repeat(1025))).await, 414, "1024");
    problem(&app.send("POST", "/v1/keys/users/1", &[]).await, 405, "");
    assert_eq!(app.get("/v1/keys/users/42").await.told(), "200 backend", "the table is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn injections_and_traversals_are_only_ever_keys() {
    let site = Site::postgres();
    site.run(
        "CREATE TABLE files (path TEXT PRIMARY KEY); INSERT INTO files VALUES ('a'), ('../../admin'), ('1; DROP TABLE \
            files'), ('b/c')",
    )
    .await;
    let config = Config::new().keyspace("files", |k| {
        k.set("freshness", "static")
            .backend(&site.url(), "SELECT path FROM files WHERE path = $1")
            .source_sql("SELECT path FROM files")
    });
    let app = TestApp::enforcing(&config).await;
    for (path, key) in [
        ("../../admin", "../../admin"),
        ("1;%20DROP%20TABLE%20files", "1; DROP TABLE files"),
        ("b%2Fc", "b/c"),
        ("b/c", "b/c"),
    ] {
        let answer = app.get(&format!("/v1/keys/files/{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(answer.json()["path"], key);
    }
    assert_eq!(app.get("/v1/keys/files/1%27%20OR%20%271%27%3D%271").await.status, 404);
    assert_eq!(app.get("/v1/keys/files/a").await.status, 200, "the table is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_does_not_fit_is_told_with_its_sql_state() {
    let site = site(Site::postgres()).await;
    let config = config(&site.url()).users(|k| k.set("backend.query", "SELECT id, nmae FROM users WHERE id = $1"));
    let app = TestApp::start(&config).await;
    let path = "/admin/keyspaces/users/rebuild";
    assert_eventually!(!app.admin("GET", path, "").await.json()["last_error"].is_null(), "no build fails");
    let error = app.admin("GET", path, "").await.json()["last_error"].as_str().unwrap().to_owned();
    assert!(error.contains("42703") && error.contains("nmae"), "{error}");
    let answer = app.get("/v1/keys/users/42").await;
    problem(&answer, 503, "");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(app.status("users").await["state"], "cold");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_table_is_refused_unless_allowed() {
    let site = Site::postgres();
    site.run("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL)").await;
    let app = TestApp::start(&config(&site.url())).await;
    eventually("the first build has failed", || app.keyspace("users").last_rebuild().is_some()).await;
    let status = app.status("users").await;
    assert_eq!(
        (status["state"].as_str(), status["last_rebuild"]["outcome"].as_str()),
        (Some("cold"), Some("empty")),
        "{status}"
    );
    assert!(status["reason"].as_str().unwrap().contains("no keys"), "{status}");
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "404 backend");
    let allowed = config(&site.url()).users(|k| k.set("source.allow_empty", true));
    let app = TestApp::enforcing(&allowed).await;
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "404 filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_padded_or_case_insensitive_column_never_rejects_and_says_why() {
    let site = Site::postgres();
    site.run("CREATE TABLE codes (code CHAR(8) PRIMARY KEY); INSERT INTO codes VALUES ('a'), ('b')").await;
    let config = Config::new().keyspace("codes", |k| {
        k.set("key", "text")
            .set("freshness", "static")
            .backend(&site.url(), "SELECT code FROM codes WHERE code = $1")
            .source_sql("SELECT code FROM codes")
    });
    let app = TestApp::start(&config).await;
    app.wait_for("degraded").await;
    assert!(app.status("codes").await["reason"].as_str().unwrap().contains("CHAR"), "{}", app.status("codes").await);
    assert_eq!(app.get("/v1/keys/codes/a").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_spelled_otherwise_than_their_key_form_end_the_rejecting() {
    for (form, column, row) in [
        ("text-ci", "TEXT", "Bob"),
        ("uuid", "TEXT", "67E55044-10B1-426F-9247-BB680E5FE0C8"),
        ("integer", "TEXT", "042"),
    ] {
        for site in [Site::sqlite(), Site::postgres()] {
            site.run(&format!("CREATE TABLE t (k {column} PRIMARY KEY); INSERT INTO t VALUES ('{row}')")).await;
            let config = Config::new().keyspace("t", |k| {
                k.set("key", form)
                    .set("freshness", "static")
                    .backend(&site.url(), "SELECT k FROM t WHERE k = $1")
                    .source_sql("SELECT k FROM t")
            });
            let app = TestApp::start(&config).await;
            eventually("the first build has ended", || app.keyspace("t").last_rebuild().is_some()).await;
            let status = app.status("t").await;
            assert_ne!(status["state"], "enforcing", "{form}: {status}");
            assert!(status["reason"].as_str().unwrap().contains(form) || status["state"] == "cold", "{form}: {status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_may_have_any_name() {
    let site = Site::postgres();
    site.run(
        "CREATE TABLE t (id INT PRIMARY KEY, q TEXT, r INT4RANGE, b BYTEA); INSERT INTO t VALUES (1, 'x', \
        '[1,3)', 'ab')",
    )
    .await;
    let config = Config::new().keyspace("t", |k| {
        k.set("freshness", "static")
            .backend(&site.url(), "SELECT * FROM t WHERE id = $1")
            .source_sql("SELECT id FROM t")
    });
    let app = TestApp::enforcing(&config).await;
    assert_eq!(app.get("/v1/keys/t/1").await.json(), serde_json::json!({"id": 1, "q": "x", "r": "[1,3)", "b": "YWI="}));
    let without_bytes =
        TestApp::enforcing(&config.keyspace("t", |k| k.set("backend.query", "SELECT id, q FROM t WHERE id = $1")))
            .await;
    assert_eq!(without_bytes.get("/v1/keys/t/1").await.json(), serde_json::json!({"id": 1, "q": "x"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_keyspace_whose_builds_are_not_due_answers_from_the_database() {
    let site = site(Site::postgres()).await;
    let config = config(&site.url()).users(|k| k.set("rebuild.on_start", false).set("rebuild.schedule", "0 0 1 1 *"));
    let app = TestApp::start(&config).await;
    assert_eventually!(app.get("/v1/keys/users/42").await.told() == "200 backend", "{}", app.status("users").await);
    assert_eq!(app.status("users").await["state"], "cold");
}
