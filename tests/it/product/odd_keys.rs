//! Keys of the source that the backend can never be asked for.

use crate::support::app::TestApp;
use crate::support::config::{Config, Keyspace, Source};
use crate::support::database::Site;
use crate::support::http_server::{HttpServer, ok, status};

/// A text source of so few keys that each is tried, one of them `odd`; the backend holds 1 to 15.
async fn keys_with(odd: &str) -> Site {
    let site = Site::sqlite();
    let numbers = site.series(15);
    site.run(&format!(
        "CREATE TABLE t (id TEXT); INSERT INTO t SELECT CAST(i AS TEXT) FROM ({numbers}); INSERT INTO t \
        VALUES ('{odd}')"
    ))
    .await;
    site
}

async fn assert_built(source: &Site, backend: impl FnOnce(Keyspace) -> Keyspace) {
    let config = Config::new().users(|k| {
        backend(k)
            .set("key", "text")
            .set("freshness", "static")
            .set("deadline", "20s")
            .set("backend.timeout", "20s")
            .source(Source::sql("SELECT id FROM t").set("url", source.url()))
    });
    let app = TestApp::start(&config).await;
    let outcome = app.rebuild("users").await;
    let progress = app.admin("GET", "/admin/keyspaces/users/rebuild", "").await;
    assert_eq!(outcome, "swapped", "{}", progress.text());
    assert_eq!(app.get("/v1/keys/users/7").await.told(), "200 backend");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_too_long_for_a_url_does_not_end_every_build() {
    let api = HttpServer::start(|request| match request.target().strip_prefix("/users/").map(str::parse::<u32>) {
        Some(Ok(1..=15)) => ok("application/json", "{}"),
        _ => status("404 Not Found", "", ""),
    })
    .await;
    let backend = |k: Keyspace| k.set("backend.kind", "http").set("backend.url", api.url("/users/{key}"));
    assert_built(&keys_with(&"x".repeat(70_000)).await, backend).await;
    // No request can ask for this one either.
    assert_built(&keys_with("..").await, backend).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_the_column_can_not_hold_does_not_end_every_build() {
    let source = keys_with("no number").await;
    for site in [Site::postgres(), Site::mariadb(), Site::sqlite()] {
        site.run(&format!("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t {}", site.series(15))).await;
        assert_built(&source, |k| k.backend(&site.url(), &site.query("SELECT id FROM t WHERE id = $1"))).await;
    }
}
