//! When Redis or the database goes away: slower, never wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::users::{USERS, absent, config, site};
use crate::support::app::TestApp;
use crate::support::database::Site;
use crate::support::postgres::Postgres;
use crate::support::redis::RedisServer;
use crate::support::{assert_eventually, eventually};

/// Invariant: redis-outage-costs-no-answer
#[tokio::test(flavor = "multi_thread")]
async fn redis_killed_while_requests_flow_gives_answers_slower_but_never_wrong() {
    let mut redis = RedisServer::start();
    let site = site(Site::postgres()).await;
    let brief = config(&site.url()).redis(&redis).users(|k| k.set("cache.hot_ttl", "1ms"));
    let app = Arc::new(TestApp::enforcing(&brief).await);
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let (app, stop, answered) = (Arc::clone(&app), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                let stranger = absent(&app);
                for i in (1..).map(|i| (i * 7 + client) % USERS + 1) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    assert_eq!(app.get(&format!("/v1/keys/users/{i}")).await.status, 200);
                    // From the database once the delta log has not been read for longer than max_lag.
                    let told = app.get(&format!("/v1/keys/users/{stranger}")).await.told();
                    assert!(["404 filter", "404 backend"].contains(&told.as_str()), "{told}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let more_answers = |count: u64| {
        let (answered, goal) = (Arc::clone(&answered), answered.load(Ordering::Relaxed) + count);
        async move { eventually("requests flow", || answered.load(Ordering::Relaxed) >= goal).await }
    };
    more_answers(200).await;
    redis.kill();
    more_answers(200).await;
    assert_eq!(app.status("users").await["cache"]["reachable"], false);
    assert_eq!(
        app.send("PUT", "/v1/keys/users/5000000", &[]).await.status,
        503,
        "no announce is acknowledged without its marker"
    );
    assert_eq!(app.send("DELETE", "/v1/keys/users/5000000", &[]).await.status, 503);
    redis.restart();
    let hits = "bloomguard_cache_requests_total{keyspace=\"users\",tier=\"redis\",result=\"hit\"}";
    let before = app.metric(hits).await;
    assert_eventually!(app.metric(hits).await > before, "Redis is not used again");
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(app.send("PUT", "/v1/keys/users/5000000", &[]).await.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_down_at_start_leaves_the_process_cold_and_retrying() {
    let mut postgres = Postgres::start();
    let url = postgres.create_database().url();
    postgres.psql(
        url.rsplit('/').next().unwrap().split('?').next().unwrap(),
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL); INSERT INTO users VALUES (1, 'one')",
    );
    postgres.stop();
    let app = TestApp::start(&config(&url).users(|k| k.set("key", "integer"))).await;
    eventually("the first build has failed", || app.keyspace("users").last_rebuild().is_some()).await;
    let status = app.status("users").await;
    assert_eq!(status["state"], "cold");
    assert!(status["reason"].as_str().unwrap().contains("can't be reached"), "{status}");
    assert_eq!(app.telemetry("/readyz").await.status, 200, "readiness does not hang on the database");
    let answer = app.get("/v1/keys/users/1").await;
    assert_eq!((answer.status, answer.header("retry-after")), (503, "1"));
    postgres.start_again();
    app.wait_for("enforcing").await;
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 backend");
    assert_eq!(app.get(&format!("/v1/keys/users/{}", absent(&app))).await.told(), "404 filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_dies_is_a_503_and_never_a_404() {
    let mut postgres = Postgres::start();
    let url = postgres.create_database().url();
    postgres.psql(
        url.rsplit('/').next().unwrap().split('?').next().unwrap(),
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL); INSERT INTO users VALUES (1, 'one'), (2, \
            'two')",
    );
    let app = TestApp::enforcing(&config(&url)).await;
    let stranger = absent(&app);
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 backend");
    postgres.stop();
    for _ in 0..20 {
        assert_eq!(app.get("/v1/keys/users/2").await.status, 503);
    }
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 hot");
    assert_eq!(app.get(&format!("/v1/keys/users/{stranger}")).await.told(), "404 filter");
    assert_eq!(app.rebuild("users").await, "source_failed");
    assert_eq!(app.status("users").await["state"], "enforcing", "a failed rebuild keeps the filter");
    postgres.start_again();
    assert_eventually!(app.get("/v1/keys/users/2").await.status == 200, "the database is never asked again");
}
