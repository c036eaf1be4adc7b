//! Redis comes back with another delta log: what every instance has announced again is as good as a scan.

use std::time::{Duration, Instant};

use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

/// The default.
const ROLL_CALL: Duration = Duration::from_secs(10);

/// With a window that a scan has to wait for.
fn configuration(site: &Site, redis: &RedisServer, window: &str) -> Config {
    config(&site.url())
        .redis(redis)
        .set("redis.max_lag", "2s")
        .users(|k| k.times("10s", window, "5s").set("cache.hot_ttl", "1ms"))
}

/// Announces until that is acknowledged, and commits.
async fn write(app: &TestApp, site: &Site, id: u32) {
    let path = format!("/v1/keys/users/{id}");
    let mut answer;
    assert_eventually!(
        {
            answer = app.send("PUT", &path, &[]).await;
            answer.status == 204
        },
        "{}",
        answer.text()
    );
    site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
}

async fn builds(app: &TestApp) -> u64 {
    app.status("users").await["last_rebuild"]["job"].as_u64().unwrap()
}

async fn complete_roll_calls(app: &TestApp) -> f64 {
    app.metric("bloomguard_delta_roll_calls_total{keyspace=\"users\",outcome=\"complete\"}").await
}

/// Every instance has heard the others again `times` times, and rejects.
async fn have_heard_each_other(apps: &[TestApp], times: f64) {
    for app in apps {
        assert_eventually!(complete_roll_calls(app).await >= times, "{}", app.status("users").await["reason"]);
        app.wait_for("enforcing").await;
    }
}

async fn found_everywhere(apps: &[TestApp], ids: &[u32]) {
    for app in apps {
        for id in ids {
            let answer = app.get(&format!("/v1/keys/users/{id}")).await;
            assert_eq!(answer.status, 200, "{id}: {}", answer.told());
        }
    }
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread")]
async fn a_new_log_costs_no_scan_where_every_writer_announces_again() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    redis.stay_young();
    let brief = configuration(&site, &redis, "30m");
    let apps = [TestApp::enforcing(&brief).await, TestApp::enforcing(&brief).await, TestApp::enforcing(&brief).await];
    let before = [builds(&apps[0]).await, builds(&apps[1]).await, builds(&apps[2]).await];
    let first = absent(&apps[0]);
    write(&apps[0], &site, first).await;
    redis.kill();
    redis.restart();
    have_heard_each_other(&apps, 1.0).await;
    write(&apps[1], &site, first + 1_000_000).await;
    let _: () = redis::cmd("FLUSHALL").query(&mut redis.connection()).unwrap();
    have_heard_each_other(&apps, 2.0).await;
    write(&apps[2], &site, first + 2_000_000).await;
    // The time itself is promised: by then every instance knows the row.
    tokio::time::sleep(Duration::from_secs(2)).await;
    found_everywhere(&apps, &[first, first + 1_000_000, first + 2_000_000]).await;
    assert_eq!([builds(&apps[0]).await, builds(&apps[1]).await, builds(&apps[2]).await], before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_missing_costs_a_window_and_a_scan_and_no_more() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    redis.stay_young();
    let brief = configuration(&site, &redis, "6s");
    let (reader, missing) = (TestApp::enforcing(&brief).await, TestApp::enforcing(&brief).await);
    let (before, id) = (builds(&reader).await, absent(&reader));
    // Only the other one can announce it again.
    write(&missing, &site, id).await;
    missing.abort();
    redis.kill();
    redis.restart();
    reader.wait_for("degraded").await;
    let reason = reader.status("users").await["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("a scan after the commit window restores it if one does not"), "{reason}");
    reader.wait_for("enforcing").await;
    assert!(builds(&reader).await > before);
    assert_eq!(complete_roll_calls(&reader).await, 0.0);
    found_everywhere(&[reader], &[id]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_an_instance_that_has_left() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    redis.stay_young();
    let brief = configuration(&site, &redis, "30m");
    let (reader, leaving) = (TestApp::enforcing(&brief).await, TestApp::enforcing(&brief).await);
    let (before, id) = (builds(&reader).await, absent(&reader));
    write(&leaving, &site, id).await;
    leaving.stop().await;
    // A page without the other one has all its entries.
    assert_eventually!(
        redis::cmd("HLEN").arg("bloomguard:roster:users").query::<u32>(&mut redis.connection()).unwrap() == 5,
        "it does not leave"
    );
    // The time itself is needed: the next page is read.
    tokio::time::sleep(Duration::from_millis(500)).await;
    redis.kill();
    redis.restart();
    have_heard_each_other(std::slice::from_ref(&reader), 1.0).await;
    assert_eq!(builds(&reader).await, before);
    found_everywhere(&[reader], &[id]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_instance_announces_in_a_young_log_once_nobody_can_know_less() {
    let (redis, site) = (RedisServer::start_young(), site(Site::postgres()).await);
    let brief = configuration(&site, &redis, "6s").set("redis.roll_call", "3s");
    let app = TestApp::start(&brief).await;
    let mut answer;
    assert_eventually!(
        {
            answer = app.send("PUT", "/v1/keys/users/5000000", &[]).await;
            answer.json()["type"] == "/problems/enrolling"
        },
        "{}",
        answer.text()
    );
    assert_eq!(answer.status, 503);
    let seconds: u64 = answer.header("retry-after").parse().unwrap();
    assert!((1..=3).contains(&seconds), "{seconds}");
    assert_eventually!(app.send("PUT", "/v1/keys/users/5000000", &[]).await.status == 204, "it never announces");
}

/// `cargo test --test it joins_living_ones -- --nocapture` prints how long it takes.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the times that were measured")]
async fn a_new_instance_joins_living_ones_without_a_roll_call() {
    let (redis, site) = (RedisServer::start(), site(Site::sqlite()).await);
    let brief = configuration(&site, &redis, "30m");
    let mut apps = vec![TestApp::enforcing(&brief).await];
    write(&apps[0], &site, 5_000_000).await;
    let mut took = Vec::new();
    for id in 5_000_001..=5_000_010 {
        let app = TestApp::start(&brief).await;
        let serves = Instant::now();
        assert_eventually!(app.send("PUT", &format!("/v1/keys/users/{id}"), &[]).await.status == 204, "it never joins");
        took.push(serves.elapsed());
        apps.push(app);
    }
    took.sort();
    println!("joined after {:.2?} to {:.2?}, at the median {:.2?}", took[0], took[9], took[5]);
    assert!(took[9] < ROLL_CALL, "{took:?}");
}
