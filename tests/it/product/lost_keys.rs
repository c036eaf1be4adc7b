//! One of Redis' keys is lost, by eviction or by hand, and the others stay.

use std::time::{Duration, Instant};

use bloomguard::labels::Verdict;

use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

const REGISTER: &str = "bloomguard:instances:users";
const ROSTER: &str = "bloomguard:roster:users";
/// Of these configurations: `redis.roll_call`.
const LEASE: Duration = Duration::from_secs(3);

fn configuration(site: &Site, redis: &RedisServer, window: &str) -> Config {
    config(&site.url())
        .redis(redis)
        .set("redis.max_lag", "2s")
        .set("redis.roll_call", "3s")
        .users(|k| k.times("2s", window, "2s").set("cache.hot_ttl", "1ms"))
}

fn command<T: redis::FromRedisValue>(server: &RedisServer, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query(&mut server.connection()).unwrap()
}

fn path(id: u32) -> String {
    format!("/v1/keys/users/{id}")
}

/// Announces until that is acknowledged.
async fn announce(app: &TestApp, id: u32) {
    assert_eventually!(app.send("PUT", &path(id), &[]).await.status == 204, "{id} is never announced");
}

/// Returns true if the filter does not call this absent.
fn holds(app: &TestApp, id: u32) -> bool {
    let keyspace = app.keyspace("users");
    keyspace.peek(&keyspace.key(id.to_string().as_bytes()).unwrap()).verdict == Verdict::Maybe
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread")]
async fn a_start_beside_a_deleted_log_waits_for_a_window_and_a_scan() {
    let (redis, site) = (RedisServer::start(), site(Site::sqlite()).await);
    let brief = configuration(&site, &redis, "5s");
    let (writer, restarting) = (TestApp::enforcing(&brief).await, TestApp::enforcing(&brief).await);
    let (id, dir) = (absent(&writer), restarting.dir.clone());
    restarting.stop().await;
    announce(&writer, id).await;
    let announced = Instant::now();
    command::<u32>(&redis, &["DEL", "bloomguard:deltas:users"]);
    let started = [TestApp::start(&brief).await, TestApp::start_in(dir, &brief).await];
    while announced.elapsed() < Duration::from_secs(4) {
        for app in &started {
            assert_ne!(app.get(&path(id)).await.told(), "404 filter");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    site.run(&format!("INSERT INTO users VALUES ({id}, 'late')")).await;
    for app in started {
        let mut enforces = false;
        while !enforces {
            enforces = app.keyspace("users").state().as_str() == "enforcing";
            assert_eq!(app.get(&path(id)).await.status, 200);
        }
    }
}

/// Invariant: announced-found-by-fleet
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_roster_takes_announces_and_re_sends_a_lease_later() {
    let (redis, site) = (RedisServer::start(), site(Site::sqlite()).await);
    let app = TestApp::enforcing(&configuration(&site, &redis, "6s")).await;
    let id = absent(&app);
    announce(&app, id).await;
    let mark = format!("bloomguard:entry:users:{id}");
    command::<u32>(&redis, &["DEL", ROSTER]);
    let lost = Instant::now();
    assert_eventually!(command(&redis, &["EXISTS", ROSTER]), "it does not enrol again");
    // The time itself is needed: it learns that it is not admitted.
    tokio::time::sleep(Duration::from_millis(200)).await;
    command::<u32>(&redis, &["DEL", &mark]);
    command::<u32>(&redis, &["CLIENT", "KILL", "TYPE", "normal"]);
    let mut enrolling = false;
    loop {
        let is_marked: bool = command(&redis, &["EXISTS", &mark]);
        let answer = app.send("PUT", &path(id + 1_000_000), &[]).await;
        if answer.status == 204 {
            break;
        }
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(!is_marked, "it sends again what the log does not take");
        enrolling |= answer.json()["type"] == "/problems/enrolling";
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(enrolling, "it says why");
    assert!(lost.elapsed() > LEASE - Duration::from_millis(50), "admitted after {:?}", lost.elapsed());
    assert_eventually!(command(&redis, &["EXISTS", &mark]), "it does not send again what it had announced");
}

/// Invariant: announced-found-by-fleet
#[tokio::test(flavor = "multi_thread")]
async fn the_word_of_a_first_start_holds_in_one_log_only() {
    let (mut redis, site) = (RedisServer::start_young(), site(Site::sqlite()).await);
    let brief = configuration(&site, &redis, "5s").set("redis.first_start", true);
    let app = TestApp::enforcing(&brief).await;
    let first = Instant::now();
    announce(&app, 5_000_000).await;
    assert!(first.elapsed() < LEASE, "the word counts here");
    redis.kill();
    // The time itself matters: after a window it is no descendant of the old log.
    tokio::time::sleep(Duration::from_millis(5_100)).await;
    redis.restart();
    let back = Instant::now();
    announce(&app, 5_000_001).await;
    assert!(back.elapsed() > LEASE - Duration::from_millis(50), "admitted after {:?}", back.elapsed());
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread")]
async fn a_longer_window_is_read_back_from_the_roster_and_once_registered() {
    let (redis, site) = (RedisServer::start(), site(Site::sqlite()).await);
    let (long, short) = (configuration(&site, &redis, "40s"), configuration(&site, &redis, "1s"));
    let writer = TestApp::enforcing(&long).await;
    let first = absent(&writer);
    // Several: another filter may take one of them for present.
    let ids = first..first + 8;
    for id in ids.clone() {
        announce(&writer, id).await;
    }
    let registered: Vec<String> = command(&redis, &["ZRANGE", REGISTER, "0", "-1", "WITHSCORES"]);
    writer.abort();
    // The time itself matters: the short window and deadline are over.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    command::<u32>(&redis, &["DEL", REGISTER]);
    let by_roster = TestApp::enforcing(&short).await;
    assert!(ids.clone().all(|id| holds(&by_roster, id)), "the roster has its window too");
    command::<u32>(&redis, &["DEL", ROSTER, REGISTER]);
    let later = TestApp::enforcing(&short).await;
    let id = ids.clone().find(|id| !holds(&later, *id)).expect("nothing tells the window");
    command::<u32>(&redis, &["ZADD", REGISTER, &registered[1], &registered[0]]);
    assert_eventually!(ids.clone().all(|id| holds(&later, id)), "it does not read further back");
    site.run(&format!("INSERT INTO users VALUES ({id}, 'late')")).await;
    for app in [by_roster, later] {
        assert_eq!(app.get(&path(id)).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_registers_again_as_soon_as_the_register_is_lost() {
    let (redis, site) = (RedisServer::start(), site(Site::sqlite()).await);
    let _app = TestApp::enforcing(&configuration(&site, &redis, "5s")).await;
    // Each second time it has just registered: the next time is five seconds away.
    for _ in 0..2 {
        assert_eventually!(command(&redis, &["EXISTS", REGISTER]), "it does not register");
        command::<u32>(&redis, &["DEL", REGISTER]);
        let within = Duration::from_secs(3);
        assert_eventually!(within within => command(&redis, &["EXISTS", REGISTER]), "not soon enough");
    }
}
