//! Membership without a database: every kind of source, over HTTP.

use std::io::Write;

use super::users::{USERS, absent, false_positive, site};
use crate::support::app::{Answer, TestApp};
use crate::support::config::{Config, Source};
use crate::support::database::Site;
use crate::support::redis::RedisServer;
use crate::support::{assert_eventually, eventually};
use std::path::Path;

/// A keyspace whose backend is the set of its keys.
fn config(source: Source) -> Config {
    Config::new()
        .users(|k| k.set("freshness", "announced").set("deadline", "30s").set("backend.kind", "set").source(source))
}

fn sql(site: &Site) -> Config {
    config(Source::sql("SELECT id FROM users").set("url", site.url()))
}

fn file(path: &Path, key: &str) -> Config {
    config(Source::new("file").set("path", path.to_str().unwrap())).users(|k| k.set("key", key))
}

async fn each_outcome(app: &TestApp) {
    let (missing, stranger) = (absent(app), false_positive(app));
    let answer = app.get("/v1/keys/users/042").await;
    assert_eq!((answer.told().as_str(), answer.text()), ("200 backend", "{\"key\":42}"));
    assert_eq!(answer.header("content-type"), "application/json");
    let gone = |answer: &Answer| (answer.told(), answer.body.len());
    assert_eq!(gone(&app.get(&format!("/v1/keys/users/{missing}")).await), ("404 filter".into(), 0));
    assert_eq!(gone(&app.get(&format!("/v1/keys/users/{stranger}")).await), ("404 backend".into(), 0));

    let body = format!("[1, {missing}, {stranger}, \"x\"]");
    let batch =
        app.http.send("POST", &app.url("/v1/lookup/users"), &[("content-type", "application/json")], &body).await;
    assert_eq!(
        batch.json(),
        serde_json::json!({"results": [
            {"status": 200, "source": "backend", "value": {"key": 1}},
            {"status": 404, "source": "filter"},
            {"status": 404, "source": "backend"},
            batch.json()["results"][3],
        ]})
    );
    assert_eq!(batch.json()["results"][3]["status"], 400);

    let new = format!("/v1/keys/users/{missing}");
    assert_eq!(app.send("PUT", &new, &[]).await.status, 204);
    assert_eq!(app.get(&new).await.told(), "200 backend");
    assert_eq!(app.send("DELETE", "/v1/keys/users/42", &[]).await.status, 202);
    assert_eq!(app.get("/v1/keys/users/42").await.told(), "404 backend");
    assert_eq!(app.get("/v1/keys/users/43").await.told(), "200 backend");

    let set = app.status("users").await["set"].clone();
    assert_eq!(
        set,
        serde_json::json!({"keys": USERS, "bytes": USERS * 8, "announced": 1, "removed": 1}),
        "8 bytes a key"
    );
    assert_eq!(app.metric("bloomguard_set_keys{keyspace=\"users\"}").await, f64::from(USERS));
    assert_eq!(app.metric("bloomguard_set_bytes{keyspace=\"users\"}").await, f64::from(USERS * 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_of_a_table_whose_column_tells_the_key_form() {
    for site in [site(Site::postgres()).await, site(Site::sqlite()).await, site(Site::mariadb()).await] {
        let app = TestApp::enforcing(&sql(&site)).await;
        assert_eq!(app.status("users").await["key_form"], "integer");
        each_outcome(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_of_a_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("ids.gz");
    let mut list = flate2::write::GzEncoder::new(std::fs::File::create(&path).unwrap(), flate2::Compression::fast());
    (1..=USERS).for_each(|id| writeln!(list, "{id}").unwrap());
    list.finish().unwrap();
    let app = TestApp::enforcing(&file(&path, "integer").users(|k| k.set("filter.expected_keys", 1000))).await;
    each_outcome(&app).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_of_a_redis_set() {
    let redis = RedisServer::start();
    let mut fill = redis::pipe();
    for id in 1..=USERS {
        fill.cmd("SADD").arg("users").arg(id);
    }
    fill.exec(&mut redis.connection()).unwrap();
    let members = config(Source::new("redis").set("set", "users")).users(|k| k.set("key", "integer"));
    let app = TestApp::enforcing(&members.redis(&redis)).await;
    each_outcome(&app).await;
    let names: Vec<String> = redis::cmd("KEYS").arg("bloomguard:entry:*").query(&mut redis.connection()).unwrap();
    assert!(names.is_empty(), "nothing is cached: {names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_instance_is_told_the_sets_of_the_others_know() {
    let redis = RedisServer::start();
    let site = site(Site::sqlite()).await;
    let config = sql(&site).redis(&redis);
    let (one, other) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
    each_outcome(&one).await;
    assert_eq!(one.send("PUT", "/v1/keys/users/8000000", &[]).await.status, 204);
    assert_eventually!(
        other.get("/v1/keys/users/8000000").await.told() == "200 backend",
        "the other instance never learns of it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_source_can_be_read_nothing_is_absent() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("ids");
    let app = TestApp::start(&file(&path, "text")).await;
    for key in ["a", "b"] {
        let answer = app.get(&format!("/v1/keys/users/{key}")).await;
        assert_eq!((answer.told().as_str(), answer.header("retry-after")), ("503 ", "1"));
        assert_eq!(answer.json()["type"], "/problems/set-too-old");
    }
    assert_eq!(app.send("PUT", "/v1/keys/users/announced", &[]).await.status, 204);
    assert_eq!(app.get("/v1/keys/users/announced").await.told(), "200 backend");
    std::fs::write(folder.path().join("new"), "a\n").unwrap();
    std::fs::rename(folder.path().join("new"), &path).unwrap();
    app.wait_for("enforcing").await;
    let told = |key: &'static str| {
        let app = &app;
        async move { app.get(&format!("/v1/keys/users/{key}")).await.told() }
    };
    assert_eq!((told("a").await.as_str(), told("announced").await.as_str()), ("200 backend", "200 backend"));
    assert!(told("b").await.starts_with("404 "));
}

/// Invariant: bad-input-changes-nothing
#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_fails_later_leaves_the_set_in_force() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("ids");
    std::fs::write(&path, "a\nb\n").unwrap();
    let app = TestApp::enforcing(&file(&path, "text")).await;
    std::fs::remove_file(&path).unwrap();
    let url = format!("http://{}/admin/keyspaces/users/rebuild", app.admin);
    let headers = [("content-type", "application/json")];
    assert_eq!(app.http.send("POST", &url, &headers, "").await.status, 202);
    eventually("the build has failed", || {
        app.keyspace("users").last_rebuild().is_some_and(|last| last.outcome.as_str() == "source_failed")
    })
    .await;
    assert_eq!(app.get("/v1/keys/users/a").await.told(), "200 backend");
    assert!(app.get("/v1/keys/users/c").await.told().starts_with("404 "));
}
