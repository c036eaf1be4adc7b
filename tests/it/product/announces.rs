//! PUT and DELETE over HTTP.

use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::database::Site;

#[tokio::test(flavor = "multi_thread")]
async fn an_announced_row_is_found_as_soon_as_it_is_committed() {
    for redis in [None, Some(crate::support::redis::RedisServer::start())] {
        let site = site(Site::postgres()).await;
        let app = TestApp::enforcing(&config(&site.url()).maybe_redis(redis.as_ref())).await;
        let id = absent(&app);
        let path = format!("/v1/keys/users/{id}");
        assert_eq!(app.get(&path).await.told(), "404 filter");
        assert_eq!(app.send("PUT", &path, &[]).await.status, 204);
        assert_eq!(app.get(&path).await.told(), "404 backend", "the row is not there yet, and no tier caches that");
        site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
        assert_eq!(app.get(&path).await.told(), "200 backend");
        assert_eq!(app.metric("bloomguard_announces_total{keyspace=\"users\",outcome=\"accepted\"}").await, 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_row_is_gone_from_every_cache() {
    let redis = crate::support::redis::RedisServer::start();
    let site = site(Site::postgres()).await;
    let app = TestApp::enforcing(&config(&site.url()).redis(&redis)).await;
    assert_eq!(app.get("/v1/keys/users/42").await.told(), "200 backend");
    site.run("DELETE FROM users WHERE id = 42").await;
    assert_eq!(app.get("/v1/keys/users/42").await.told(), "200 hot", "no drop was sent yet");
    assert_eq!(app.send("DELETE", "/v1/keys/users/42", &[]).await.status, 202);
    assert_eq!(app.get("/v1/keys/users/42").await.told(), "404 backend");
    assert_eq!(app.metric("bloomguard_filter_false_positives_total{keyspace=\"users\"}").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_announce_survives_a_restart() {
    let site = site(Site::postgres()).await;
    let config = config(&site.url());
    let app = TestApp::enforcing(&config).await;
    let (id, dir) = (absent(&app), app.dir.clone());
    let path = format!("/v1/keys/users/{id}");
    assert_eq!(app.send("PUT", &path, &[]).await.status, 204);
    app.stop().await;
    // The new process scans before the row is committed; only the journal can tell it of the key.
    let app = TestApp::start_in(dir, &config).await;
    app.wait_for("enforcing").await;
    site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
    assert_eq!(app.get(&path).await.told(), "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn announces_where_they_are_off_are_409_and_name_the_setting() {
    let site = site(Site::postgres()).await;
    let config = config(&site.url()).users(|k| k.set("freshness", "static"));
    let app = TestApp::enforcing(&config).await;
    let path = format!("/v1/keys/users/{}", absent(&app));
    let batch = app.http.send("POST", &app.url("/v1/keys/users"), &[("content-type", "text/plain")], "7000000").await;
    for refused in [app.send("PUT", &path, &[]).await, batch] {
        let problem = refused.json();
        assert_eq!((refused.status, &problem["type"]), (409, &"/problems/announces-off".into()));
        assert_eq!(problem["setting"], "keyspaces.users.announces");
        assert!(problem["detail"].as_str().unwrap().starts_with("keyspaces.users.announces is false"), "{problem}");
    }
    assert_eq!(app.get(&path).await.told(), "404 filter");
    assert!(!app.dir.path().join("data/users.journal").exists(), "there is nothing to write down");
    assert_eq!(
        app.http.get(&format!("http://{}/admin/config", app.admin)).await.json()["config"]["keyspaces"]["users"]["announces"],
        false
    );
    let app = TestApp::enforcing(&config.users(|k| k.set("announces", true))).await;
    assert_eq!(app.send("PUT", &path, &[]).await.status, 204);
}
