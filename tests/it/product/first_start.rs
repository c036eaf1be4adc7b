//! A process that meets a young delta log: what it says, and the operator's word that nobody announced before.

use std::sync::Arc;

use tempfile::TempDir;

use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

/// Without the word it takes this long.
fn configuration(site: &Site, redis: &RedisServer, commit_window: &str) -> Config {
    config(&site.url()).redis(redis).users(|k| k.set("commit_window", commit_window))
}

fn with_word(config: &Config) -> Config {
    config.clone().set("redis.first_start", true)
}

async fn reason(app: &TestApp) -> String {
    app.status("users").await["reason"].as_str().unwrap().to_owned()
}

async fn warnings(app: &TestApp) -> String {
    app.status("users").await["warnings"].to_string()
}

/// Seconds that the reason promises; `None` if it promises none.
fn seconds_left(reason: &str) -> Option<u64> {
    let told = reason.split("enforcing in ").nth(1)?.split(',').next()?;
    Some(humantime::parse_duration(told).unwrap().as_secs())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_says_what_was_found_and_counts_down_to_enforcing() {
    let (redis, site) = (RedisServer::start_young(), site(Site::postgres()).await);
    let app = TestApp::start(&configuration(&site, &redis, "5s")).await;
    let mut told;
    assert_eventually!(
        {
            told = reason(&app).await;
            told.contains("first start: enforcing in ")
        },
        "{told}"
    );
    let found = "earlier announces can't be excluded (no announce in the journal, no snapshot, no other instance \
                 registered in Redis); a shorter commit_window shortens it";
    assert!(told.contains(found), "{told}");
    let left = seconds_left(&told).unwrap();
    assert!((1..=5).contains(&left), "{told}");
    assert_eventually!(seconds_left(&reason(&app).await).is_none_or(|now| now < left), "it does not count down");
    app.wait_for("enforcing").await;
}

/// Invariant: announced-found-by-fleet
#[tokio::test(flavor = "multi_thread")]
async fn the_operators_word_makes_a_first_start_enforce_at_once() {
    let (redis, site) = (RedisServer::start_young(), site(Site::postgres()).await);
    let dir = TempDir::new().unwrap();
    let config = with_word(&configuration(&site, &redis, "30m"));
    let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
    process.logged("first start by redis.first_start");
    let one = TestApp::enforcing(&config).await;
    // Another such instance hears of everything that was announced in this log.
    let path = format!("/v1/keys/users/{}", absent(&one));
    assert_eventually!(one.send("PUT", &path, &[]).await.status == 204, "it may never announce");
    let other = TestApp::enforcing(&config).await;
    assert_eventually!(other.get(&path).await.told() == "404 backend", "the announce is not known");
    assert!(!warnings(&other).await.contains("first_start"), "the log is young");
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn the_word_is_refused_where_something_was_announced_before() {
    let site = site(Site::postgres()).await;
    let kept = ["--appendonly", "yes"];
    for (what, announces, keeps_dir, keeps_redis, says) in [
        ("journal", true, true, false, "1 announces in the journal"),
        ("snapshot", false, true, false, "a snapshot of another log"),
        ("register", false, false, true, "registered in Redis before the log was made"),
    ] {
        let mut redis = if keeps_redis { RedisServer::start_with(&kept) } else { RedisServer::start_young() };
        let config = with_word(&configuration(&site, &redis, "30m"));
        let app = TestApp::enforcing(&config).await;
        let id = absent(&app);
        if announces {
            assert_eq!(app.send("PUT", &format!("/v1/keys/users/{id}"), &[]).await.status, 204);
        }
        if keeps_redis {
            let registered = || redis::cmd("ZCARD").arg("bloomguard:instances:users").query(&mut redis.connection());
            assert_eventually!(registered().unwrap_or(0) >= 1, "it does not register");
        }
        let dir = if keeps_dir { app.dir.clone() } else { Arc::new(TempDir::new().unwrap()) };
        app.stop().await;
        redis.kill();
        redis.restart();
        let app = TestApp::start_in(dir, &config).await;
        assert_eventually!(
            warnings(&app).await.contains("redis.first_start is true"),
            "{what}: {}",
            reason(&app).await
        );
        assert!(warnings(&app).await.contains(says), "{what}: {}", warnings(&app).await);
        app.wait_for("degraded").await;
        let told = reason(&app).await;
        assert!(told.starts_with("the delta log is younger than the commit window: enforcing in "), "{what}: {told}");
        assert!(seconds_left(&told).unwrap() > 28 * 60, "{what}: the slow way: {told}");
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 backend", "{what}");
    }
}

/// Invariant: only-enforcing-rejects
#[tokio::test(flavor = "multi_thread")]
async fn the_word_is_not_relied_on_where_redis_may_evict_the_log() {
    let (redis, site) = (RedisServer::start_young(), site(Site::postgres()).await);
    let policy = &mut redis::cmd("CONFIG");
    let _: () = policy.arg(&["SET", "maxmemory-policy", "allkeys-lru"]).query(&mut redis.connection()).unwrap();
    let app = TestApp::start(&with_word(&configuration(&site, &redis, "30m"))).await;
    let refused = "redis.first_start is true, and is not relied on: Redis may have evicted the delta log";
    assert_eventually!(warnings(&app).await.contains(refused), "{}", warnings(&app).await);
    app.wait_for("degraded").await;
    let told = reason(&app).await;
    assert!(told.contains("first start: enforcing in ") && told.contains("no announce in the journal"), "{told}");
    assert!(seconds_left(&told).unwrap() > 28 * 60, "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_was_left_in_the_configuration_is_warned_of() {
    // Its log was made long ago.
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = configuration(&site, &redis, "5s");
    let app = TestApp::enforcing(&with_word(&config)).await;
    assert!(warnings(&app).await.contains("redis.first_start is true"), "{}", warnings(&app).await);
    let app = TestApp::enforcing(&config).await;
    assert!(!warnings(&app).await.contains("first_start"), "{}", warnings(&app).await);
}
