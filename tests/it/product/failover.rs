//! A replica takes over that lacks what its primary had acknowledged.

use std::time::{Duration, Instant};

use super::users::{absent, config, site};
use crate::support::app::{Answer, TestApp};
use crate::support::assert_eventually;
use crate::support::chaos_proxy::Weather;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis_pair::RedisPair;

/// What an announce is remembered for: `commit_window` and `deadline`.
const MEMORY: Duration = Duration::from_secs(3);

fn configuration(site: &Site, port: u16, max_lag: &str) -> Config {
    config(&site.url())
        .redis_at(&format!("redis://127.0.0.1:{port}"))
        .set("redis.timeout", "500ms")
        .set("redis.max_lag", max_lag)
        .users(|k| k.set("cache.hot_ttl", "1ms").times("2s", "1s", "5s"))
}

/// Asks until there is an answer of this status, however slow the machine is.
async fn answered(app: &TestApp, method: &str, path: &str, body: &str, status: u16) -> Answer {
    let send = async || app.http.send(method, &app.url(path), &[("content-type", "application/json")], body).await;
    let mut answer = send().await;
    assert_eventually!(
        {
            if answer.status != status {
                assert_eq!(answer.status, 503, "{method} {path}: {}", answer.told());
                answer = send().await;
            }
            answer.status == status
        },
        "{method} {path}: {}",
        answer.text()
    );
    answer
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_and_back_is_noticed_by_an_instance_that_saw_neither() {
    let (mut redis, site) = (RedisPair::start(2, 1).await, site(Site::postgres()).await);
    let writer = TestApp::enforcing(&configuration(&site, redis.faces[0].port(), "1s")).await;
    let reader = TestApp::enforcing(&configuration(&site, redis.faces[1].port(), "1s")).await;
    let id = absent(&reader);
    let path = format!("/v1/keys/users/{id}");
    redis.faces[1].set(Weather { black_hole: true, ..Weather::default() });
    reader.wait_for("degraded").await;
    redis.change_places().await;
    redis.hold_replica_back();
    answered(&writer, "PUT", &path, "", 204).await;
    let announced = Instant::now();
    site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
    redis.replica_lacks(1).await;
    // The time itself is tested: after that the writer does not announce the row again to the other server.
    tokio::time::sleep((MEMORY + Duration::from_millis(100)).saturating_sub(announced.elapsed())).await;
    redis.change_places().await;
    redis.faces[1].heal();
    reader.wait_for("enforcing").await;
    assert_eq!(answered(&reader, "GET", &path, "", 200).await.told(), "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_value_that_a_failover_brings_back_is_not_served() {
    let (mut redis, site) = (RedisPair::start(1, 1).await, site(Site::postgres()).await);
    let app = TestApp::enforcing(&configuration(&site, redis.faces[0].port(), "1m")).await;
    let path = "/v1/keys/users/7";
    assert_eventually!(
        answered(&app, "GET", path, "", 200).await.header("bloomguard-source") == "redis",
        "Redis never has the row"
    );
    redis.replicated("bloomguard:entry:users:7").await;
    redis.hold_replica_back();
    site.run("UPDATE users SET name = 'new' WHERE id = 7").await;
    answered(&app, "POST", "/v1/invalidate/users", "[7]", 204).await;
    redis.replica_lacks(1).await;
    redis.fail_over().await;
    // Over the new connection, and by what it leads to.
    while answered(&app, "GET", path, "", 200).await.header("bloomguard-source") != "redis" {
        assert_eq!(answered(&app, "GET", path, "", 200).await.json()["name"], "new");
    }
    assert_eq!(answered(&app, "GET", path, "", 200).await.json()["name"], "new");
}
