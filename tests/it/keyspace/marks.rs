//! Marks and the values that take their place, on a real Redis.

use std::sync::Arc;
use std::time::Duration;

use bloomguard::cache::{Entry, RedisCache, SharedCache};
use bloomguard::config::{RedisConfig, SecretUrl};
use bloomguard::redis::RedisLink;

use crate::support::assert_eventually;
use crate::support::keyspace::{TestKeyspace, config};
use crate::support::redis::RedisServer;
use crate::support::scripted::key;

pub async fn redis_cache(redis: &RedisServer) -> Arc<RedisCache> {
    Arc::new(RedisCache::new(redis_link(redis).await, "users", 7).storing_within(Duration::from_secs(600)))
}

pub async fn redis_link(redis: &RedisServer) -> Arc<RedisLink> {
    let config =
        RedisConfig { url: SecretUrl::new(redis.url()), timeout: Duration::from_secs(2), ..RedisConfig::default() };
    let link = RedisLink::connect(&config, |_| ()).unwrap();
    assert!(link.wait_connected(Duration::from_secs(10)).await);
    link
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_in_a_marks_place_lives_as_long_as_the_window() {
    let redis = RedisServer::start();
    let mut short = config();
    short.cache.ttl = Duration::from_millis(100);
    short.commit_window = Duration::from_secs(60);
    let ks = TestKeyspace::with_cache(short, redis_cache(&redis).await).built().await;
    ks.keyspace.announce(&[key("new")]).await.unwrap();
    ks.backend.commit("new");
    assert_eq!(ks.get("new").await, "200 backend");
    let left: i64 = redis::cmd("PTTL").arg("bloomguard:entry:users:new").query(&mut redis.connection()).unwrap();
    assert!(left > 50_000, "{left} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_of_recent_announces_are_set_again_on_a_redis_that_lost_them() {
    let mut redis = RedisServer::start();
    let cache = redis_cache(&redis).await;
    let ks = TestKeyspace::with_cache(config(), cache.clone()).built().await;
    ks.keyspace.announce(&[key("new")]).await.unwrap();
    redis.kill();
    redis.restart();
    // Errors while it is down, nothing until the marks are set again.
    assert_eventually!(
        cache.get(&key("new")).await.is_ok_and(|seen| matches!(seen.entry, Entry::Mark(_))),
        "the mark is not set again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_set_again_ends_no_later_one_early() {
    let redis = RedisServer::start();
    let mut long = config();
    long.commit_window = Duration::from_secs(600);
    let ks = TestKeyspace::with_cache(long, redis_cache(&redis).await).built().await;
    ks.keyspace.announce(&[key("new")]).await.unwrap();
    let left = || redis::cmd("PTTL").arg("bloomguard:entry:users:new").query::<i64>(&mut redis.connection()).unwrap();
    let first = left();
    assert_eventually!(left() <= first - 200, "the mark does not age");
    let before = left();
    let _: u64 = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).query(&mut redis.connection()).unwrap();
    // A whole life, which is no less than what another instance's mark can have left.
    assert_eventually!(left() > before, "the mark is set for what was left of the first");
}
