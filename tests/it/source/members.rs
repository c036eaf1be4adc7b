//! Each source of a union is judged for itself: the sum, or the first of them, would hide what is wrong with another.

use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::{Config, Source};
use crate::support::database::Site;

/// A keyspace over two sources of one SQLite database, whose backend finds the ids of the tables `a` and `b`.
async fn guarded(site: &Site, key: &str, second: &str) -> TestApp {
    let both = "SELECT id FROM a WHERE id = $1 UNION ALL SELECT id FROM b WHERE id = $1";
    let config = Config::new().users(|k| {
        k.set("key", key)
            .set("freshness", "static")
            .set("deadline", "20s")
            .set("rebuild.schedule", "0 0 1 1 *")
            .backend(&site.url(), both)
            .set("backend.timeout", "20s")
            .sources([Source::sql("SELECT id FROM a"), Source::sql(second)])
    });
    TestApp::start(&config).await
}

/// `a` has more keys than one batch holds, `b` those from a million on.
async fn tables(b_keys: usize) -> Site {
    let site = Site::sqlite();
    let (a, b) = (site.series(5_000), site.series(b_keys));
    site.run(&format!(
        "CREATE TABLE a (id INTEGER PRIMARY KEY); INSERT INTO a {a};
         CREATE TABLE b (id INTEGER PRIMARY KEY, other INTEGER); INSERT INTO b SELECT i + 1000000, i + 2000000 FROM \
         ({b})"
    ))
    .await;
    site
}

async fn last_error(app: &TestApp) -> String {
    let progress = app.admin("GET", "/admin/keyspaces/users/rebuild", "").await.json();
    progress["last_error"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_of_another_column_is_refused_beside_one_that_fits() {
    for keys in [1, 3, 5_000] {
        let site = tables(keys).await;
        let app = guarded(&site, "integer", "SELECT other FROM b").await;
        assert_eq!(app.rebuild("users").await, "mismatch", "{keys}");
        let error = last_error(&app).await;
        assert!(error.starts_with("source[1]: the backend finds none of the"), "{error}");
        assert_eq!(app.get("/v1/keys/users/1000001").await.told(), "200 backend");

        let app = guarded(&site, "integer", "SELECT id FROM b").await;
        app.wait_for("enforcing").await;
        assert_eq!(app.get("/v1/keys/users/1000001").await.told(), "200 backend");
        assert_eq!(app.get("/v1/keys/users/2000001").await.told(), "404 filter");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lax_column_of_a_second_source_ends_the_rejecting() {
    let site = Site::sqlite();
    let (a, b) = (site.series(5_000), site.series(3));
    site.run(&format!(
        "CREATE TABLE a (id TEXT PRIMARY KEY); INSERT INTO a SELECT 'a' || i FROM ({a});
         CREATE TABLE b (id TEXT PRIMARY KEY COLLATE NOCASE); INSERT INTO b SELECT 'b' || i FROM ({b})"
    ))
    .await;
    // Of an expression the catalogue tells no collation: only trying does.
    let app = guarded(&site, "text", "SELECT id || '' FROM b").await;
    app.wait_for("degraded").await;
    let reason = app.status("users").await["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("source[1]: the backend finds the row of one key under another spelling"), "{reason}");
    assert_eq!(app.get("/v1/keys/users/B1").await.told(), "200 backend");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_lost_its_keys_is_not_hidden_by_the_others() {
    let site = tables(100).await;
    let app = guarded(&site, "integer", "SELECT id FROM b").await;
    app.wait_for("enforcing").await;
    site.run("DELETE FROM b WHERE id > 1000089").await;
    assert_eq!(app.rebuild("users").await, "collapsed");
    let error = last_error(&app).await;
    assert!(error.starts_with("source[1] has 89 keys, fewer than min_keys_ratio = 0.9 of the 100"), "{error}");
    let path = "/admin/keyspaces/users/rebuild";
    assert_eventually!(
        app.admin("POST", path, "{\"accept_fewer\":true}").await.status != 409,
        "the running build does not end"
    );
    crate::support::eventually("the fewer keys are in force", || app.keyspace("users").status().generation == 2).await;
    assert_eq!(app.rebuild("users").await, "swapped", "89 keys are what the next scan is compared with");
}
