//! Several instances before one Redis and one database: what one is told, all know.

use std::time::{Duration, Instant};

use super::users::{absent, config, false_positive, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

const LOG: &str = "bloomguard:deltas:users";

/// Hot entries that stay until a drop, and short windows.
fn configuration(site: &Site, redis: &RedisServer, max_lag: &str) -> Config {
    config(&site.url())
        .redis(redis)
        .set("redis.max_lag", max_lag)
        .users(|k| k.set("cache.hot_ttl", "10m").set("commit_window", "1s"))
}

/// Two instances that enforce.
async fn two(site: &Site, redis: &RedisServer) -> (TestApp, TestApp) {
    let config = configuration(site, redis, "1m");
    (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await)
}

/// Asks until the answer is `expected`.
async fn becomes(app: &TestApp, path: &str, expected: &str) {
    let mut told;
    assert_eventually!(
        {
            told = app.get(path).await.told();
            told == expected
        },
        "{path} is still {told}, not {expected}"
    );
}

async fn insert(site: &Site, id: u32) {
    site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
}

/// An id that neither of them has and both reject.
fn stranger(one: &TestApp, other: &TestApp) -> u32 {
    let keyspace = other.keyspace("users");
    let rejected = |id: &u32| {
        let key = keyspace.key(id.to_string().as_bytes()).unwrap();
        keyspace.peek(&key).verdict == bloomguard::labels::Verdict::Absent
    };
    let from = absent(one);
    let first = one.keyspace("users");
    (from..)
        .find(|id| {
            rejected(id)
                && first.peek(&first.key(id.to_string().as_bytes()).unwrap()).verdict
                    == bloomguard::labels::Verdict::Absent
        })
        .unwrap()
}

/// Invariant: announced-found-by-fleet
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_announced_to_one_instance_is_found_at_every_other() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let (one, other) = two(&site, &redis).await;
    let path = format!("/v1/keys/users/{}", stranger(&one, &other));
    assert_eq!(other.get(&path).await.told(), "404 filter");
    assert_eq!(one.send("PUT", &path, &[]).await.status, 204);
    becomes(&other, &path, "404 backend").await;
    insert(&site, path.rsplit('/').next().unwrap().parse().unwrap()).await;
    assert_eq!(other.get(&path).await.told(), "200 backend");
    assert_eq!(other.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}").await, 0.0);
}

/// Invariant: announced-found-by-fleet
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_brings_the_version_is_right_at_once_on_any_instance() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let (one, other) = two(&site, &redis).await;
    let first = stranger(&one, &other);
    for id in first..first + 50 {
        let path = format!("/v1/keys/users/{id}");
        let announced = one.send("PUT", &path, &[]).await;
        assert_eq!(announced.status, 204);
        let version = announced.header("bloomguard-version").to_owned();
        insert(&site, id).await;
        let brings = [("bloomguard-min-version", version.as_str())];
        let one_key = other.send("GET", &format!("/v1/check/users/{id}"), &brings).await;
        assert_eq!(one_key.status, 204, "{id} with {version}: may be there");
        let url = format!("http://{}/v1/check/users", other.data);
        let many =
            other.http.send("POST", &url, &[brings[0], ("content-type", "text/plain")], &format!("{id}\n")).await;
        assert_eq!(many.json()["absent"], serde_json::json!([]), "{id} with {version}: may be there");
        let found = other.send("GET", &path, &brings).await;
        assert_eq!(found.status, 200, "{id} with {version}");
    }
    // A token of elsewhere means maybe, never an error.
    for token in ["garbage", "v1.abababababababababababababababab.users.1-2"] {
        let path = format!("/v1/keys/users/{}", stranger(&one, &other));
        assert_eq!(other.send("GET", &path, &[("bloomguard-min-version", token)]).await.told(), "404 backend");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_applied_rejects_as_usual() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let (one, other) = two(&site, &redis).await;
    let announced = one.send("PUT", "/v1/keys/users/7000000", &[]).await;
    let version = announced.header("bloomguard-version").to_owned();
    let path = format!("/v1/keys/users/{}", stranger(&one, &other));
    for app in [&one, &other] {
        assert_eventually!(
            app.send("GET", &path, &[("bloomguard-min-version", &version)]).await.told() == "404 filter",
            "{version} is never applied"
        );
    }
}

/// Invariant: announced-found-by-fleet
#[tokio::test(flavor = "multi_thread")]
async fn an_absence_that_another_instance_holds_ends_with_the_announce() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let (one, other) = two(&site, &redis).await;
    let path = format!("/v1/keys/users/{}", false_positive(&other));
    assert_eq!(other.get(&path).await.told(), "404 backend");
    assert_eq!(other.get(&path).await.told(), "404 hot");
    assert_eq!(one.send("PUT", &path, &[]).await.status, 204);
    becomes(&other, &path, "404 backend").await;
    insert(&site, path.rsplit('/').next().unwrap().parse().unwrap()).await;
    assert_eq!(other.get(&path).await.told(), "200 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_and_removed_rows_leave_the_memory_of_every_instance() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let (one, other) = two(&site, &redis).await;
    for id in [1, 2] {
        let path = format!("/v1/keys/users/{id}");
        assert_eq!(one.get(&path).await.told(), "200 backend");
        assert_eq!(other.get(&path).await.told(), "200 redis");
        assert_eq!(other.get(&path).await.told(), "200 hot");
    }
    site.run("UPDATE users SET name = 'changed' WHERE id = 1; DELETE FROM users WHERE id = 2").await;
    let invalidated =
        one.http.send("POST", &one.url("/v1/invalidate/users"), &[("content-type", "application/json")], "[1]").await;
    assert_eq!(invalidated.status, 204);
    assert_eq!(one.send("DELETE", "/v1/keys/users/2", &[]).await.status, 202);
    assert_eventually!(other.get("/v1/keys/users/1").await.text().contains("changed"), "the old row is still served");
    becomes(&other, "/v1/keys/users/2", "404 backend").await;
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_can_not_be_read_ends_the_rejecting_until_it_can() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let app = TestApp::enforcing(&configuration(&site, &redis, "500ms")).await;
    let path = format!("/v1/keys/users/{}", absent(&app));
    assert_eq!(app.get(&path).await.told(), "404 filter");
    redis.kill();
    app.wait_for("degraded").await;
    assert_eq!(app.get(&path).await.told(), "404 backend");
    let status = app.status("users").await;
    assert!(status["reason"].as_str().unwrap().contains("redis.max_lag is 500ms"), "{status}");
    redis.restart();
    // It is another log now: what was announced in between elsewhere is unknown, so it scans again by itself.
    app.wait_for("enforcing").await;
    assert_eq!(app.metric("bloomguard_delta_resyncs_total{keyspace=\"users\",reason=\"replaced\"}").await, 1.0);
    assert!(app.keyspace("users").generation() > 1);
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_redis_ends_the_rejecting_without_a_timer() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = configuration(&site, &redis, "500ms").set("redis.timeout", "20s");
    let app = TestApp::enforcing(&config).await;
    redis.pause();
    app.wait_for("degraded").await;
    redis.resume();
    app.wait_for("enforcing").await;
    assert_eq!(app.keyspace("users").generation(), 1, "nothing was lost, so nothing was scanned");
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn losses_and_gaps_are_mended_by_a_scan() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let app = TestApp::enforcing(&configuration(&site, &redis, "1m")).await;
    let mut raw = redis.connection();
    let gap: Vec<u8> = [&[1, b'G'][..], &[0; 24]].concat();
    let resyncs = async |reason: &str| {
        app.metric(&format!("bloomguard_delta_resyncs_total{{keyspace=\"users\",reason=\"{reason}\"}}")).await
    };
    let _: String = redis::cmd("XADD").arg(LOG).arg("*").arg("d").arg(&gap).query(&mut raw).unwrap();
    app.wait_for("degraded").await;
    app.wait_for("enforcing").await;
    assert_eq!(resyncs("gap").await, 1.0);
    let script = redis::Script::new("redis.call('XDEL', KEYS[1], redis.call('XADD', KEYS[1], '*', 'd', 'x'))");
    let _: () = script.key(LOG).invoke(&mut raw).unwrap();
    app.wait_for("degraded").await;
    app.wait_for("enforcing").await;
    assert_eq!(resyncs("trimmed").await, 1.0);
}

/// Invariant: announced-found-by-fleet
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_starts_learns_of_rows_that_are_still_to_come() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = configuration(&site, &redis, "1m").users(|k| k.set("commit_window", "2m"));
    let one = TestApp::enforcing(&config).await;
    let path = format!("/v1/keys/users/{}", absent(&one));
    assert_eq!(one.send("PUT", &path, &[]).await.status, 204);
    // Its scan finds no row, and its log no later entry.
    let newcomer = TestApp::enforcing(&config).await;
    insert(&site, path.rsplit('/').next().unwrap().parse().unwrap()).await;
    assert_eq!(newcomer.get(&path).await.told(), "200 backend");
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn a_young_log_is_not_believed_before_a_window_has_passed() {
    let (redis, site) = (RedisServer::start_young(), site(Site::postgres()).await);
    let config = configuration(&site, &redis, "1m").users(|k| k.set("commit_window", "3s"));
    let started = Instant::now();
    let app = TestApp::start(&config).await;
    app.wait_for("enforcing").await;
    assert!(started.elapsed() > Duration::from_millis(2_900), "{:?}", started.elapsed());
    assert_eq!(app.metric("bloomguard_delta_resyncs_total{keyspace=\"users\",reason=\"young\"}").await, 1.0);
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_redis_waits_for_the_secret_and_then_enforces() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    redis.kill();
    let app =
        TestApp::start(&configuration(&site, &redis, "1m").users(|k| k.unset("cache.hot_ttl").set("key", "integer")))
            .await;
    crate::support::eventually("the first build has failed", || app.keyspace("users").last_rebuild().is_some()).await;
    let status = app.status("users").await;
    assert_eq!(
        (&status["state"], &status["last_rebuild"]["outcome"]),
        (&"cold".into(), &"no_secret".into()),
        "{status}"
    );
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 backend");
    assert_eq!(app.send("PUT", "/v1/keys/users/5000000", &[]).await.status, 503);
    assert_eq!(app.send("DELETE", "/v1/keys/users/1", &[]).await.status, 503);
    redis.restart();
    app.wait_for("enforcing").await;
    assert_eq!(app.get(&format!("/v1/keys/users/{}", absent(&app))).await.told(), "404 filter");
    assert_eq!(app.send("PUT", "/v1/keys/users/5000000", &[]).await.status, 204);
}
