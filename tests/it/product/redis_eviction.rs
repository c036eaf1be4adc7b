//! A full Redis under each kind of eviction policy: what is lost is noticed, and no answer is wrong.

use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

const LOG: &str = "bloomguard:deltas:users";

fn command<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> redis::RedisResult<T> {
    redis::cmd(words[0]).arg(&words[1..]).query(&mut server.connection())
}

fn exists(server: &RedisServer, name: &str) -> bool {
    command(server, &["EXISTS", name]).unwrap()
}

/// Stores what does not expire until Redis refuses it, or `enough`.
fn fill(server: &RedisServer, enough: impl Fn() -> bool) {
    let info: String = command(server, &["INFO", "memory"]).unwrap();
    let used: u64 = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    command::<()>(server, &["CONFIG", "SET", "maxmemory", &(used + (2 << 20)).to_string()]).unwrap();
    let text = "x".repeat(32 << 10);
    for n in 0..100_000 {
        let stored = command::<()>(server, &["SET", &format!("filler:{n}"), &text]);
        if stored.is_err() || enough() {
            return;
        }
    }
    panic!("it is never full");
}

/// An instance that has announced something, on a Redis with this policy.
async fn at(policy: &str) -> (TestApp, RedisServer, Site) {
    let (redis, site) = (RedisServer::start(), site(Site::sqlite()).await);
    command::<()>(&redis, &["CONFIG", "SET", "maxmemory-policy", policy]).unwrap();
    let app = TestApp::enforcing(&config(&site.url()).redis(&redis).users(|k| k.set("commit_window", "1s"))).await;
    assert_eq!(app.send("PUT", "/v1/keys/users/5000000", &[]).await.status, 204);
    assert!(exists(&redis, LOG));
    (app, redis, site)
}

/// Losses of the log for any reason: its identity may be evicted too.
async fn losses(app: &TestApp) -> f64 {
    let scrape = app.telemetry("/metrics").await.text().to_owned();
    let of_log = scrape.lines().filter(|line| line.starts_with("bloomguard_delta_resyncs_total{"));
    of_log.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

async fn warnings(app: &TestApp) -> String {
    app.status("users").await["warnings"].to_string()
}

/// Invariant: lost-log-is-noticed
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_evicted_is_noticed_and_told_of_beforehand() {
    let (app, redis, site) = at("allkeys-random").await;
    let told = warnings(&app).await;
    assert!(told.contains("is allkeys-random") && told.contains("an evicted delta log costs"), "{told}");
    let before = losses(&app).await;
    fill(&redis, || !exists(&redis, LOG));
    assert!(!exists(&redis, LOG), "it evicts no log");
    assert_eventually!(losses(&app).await > before, "the loss goes unnoticed");
    command::<()>(&redis, &["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    let id = absent(&app);
    let path = format!("/v1/keys/users/{id}");
    assert_eventually!(app.send("PUT", &path, &[]).await.status == 204, "no announce is taken again");
    site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
    assert_eq!(app.get(&path).await.status, 200);
    assert_eventually!(app.status("users").await["state"] == "enforcing", "{}", app.status("users").await);
    assert_eq!(app.get(&path).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_for_what_expires_takes_marks_and_leaves_the_log() {
    let (app, redis, _site) = at("volatile-ttl").await;
    let told = warnings(&app).await;
    assert!(told.contains("may evict values, marks and tombstones.") && !told.contains("delta log"), "{told}");
    let before = losses(&app).await;
    fill(&redis, || false);
    assert!(!exists(&redis, "bloomguard:entry:users:5000000"), "the mark is kept");
    assert!(exists(&redis, LOG));
    assert_eq!(losses(&app).await, before);
    assert_eq!(app.get(&format!("/v1/keys/users/{}", absent(&app))).await.told(), "404 filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_in_the_warning_mends_what_it_warns_of() {
    let (app, redis, _site) = at("volatile-lru").await;
    let told = warnings(&app).await;
    let (_, after) = told.split_once("redis-cli ").expect("a command");
    let words: Vec<&str> = after.split(';').next().unwrap().split(' ').collect();
    command::<()>(&redis, &words).unwrap();
    assert_eventually!(!warnings(&app).await.contains("maxmemory-policy"), "{}", warnings(&app).await);
}

/// A full Redis that evicts nothing refuses writes. It keeps what it has: nothing is lost, and nothing is scanned.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_without_eviction_refuses_announces_and_loses_nothing() {
    let (app, redis, _site) = at("noeviction").await;
    fill(&redis, || false);
    assert!(!warnings(&app).await.contains("maxmemory-policy"));
    assert_eventually!(app.send("PUT", "/v1/keys/users/5000001", &[]).await.status == 503, "an announce is taken");
    assert_eq!(app.get("/v1/keys/users/1").await.status, 200);
    assert_eq!(app.get(&format!("/v1/keys/users/{}", absent(&app))).await.told(), "404 filter");
    command::<()>(&redis, &["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    assert_eventually!(app.send("PUT", "/v1/keys/users/5000001", &[]).await.status == 204, "it is still refused");
    assert_eq!(app.status("users").await["state"], "enforcing");
    assert!(exists(&redis, LOG));
}
