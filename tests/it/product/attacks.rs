//! What random absent keys, a crafted false positive and a lost Redis cost the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bloomguard::labels::Verdict;

use super::users::{USERS, config, false_positive, site};
use crate::support::app::TestApp;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

const RATE: f64 = 0.01;
const FOUND: &str = "bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"found\"}";
const ABSENT: &str = "bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"absent\"}";

/// Only the test's own doing makes an answer fail, however slow the machine is.
fn patient(config: Config) -> Config {
    config.users(|k| k.set("deadline", "60s").set("backend.timeout", "60s"))
}

fn entries(redis: &RedisServer) -> u64 {
    redis::cmd("DBSIZE").query(&mut redis.connection()).unwrap()
}

fn guarded(site: &Site) -> Config {
    config(&site.url()).users(|k| k.set("filter.false_positive_rate", RATE))
}

/// How many of `count` absent keys pass at the most, five standard deviations included.
fn passing_at_most(count: f64) -> f64 {
    count * RATE + 5.0 * (count * RATE * (1.0 - RATE)).sqrt()
}

/// Invariant: flood-leaves-nothing
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_random_keys_costs_false_positives_only() {
    let (site, redis) = (site(Site::postgres()).await, RedisServer::start());
    let app = TestApp::enforcing(&patient(guarded(&site).redis(&redis))).await;
    let (before, statements) = (entries(&redis), app.metric(ABSENT).await);
    let random = || rand::random_range(1_000_000..1_000_000_000_000u64);
    let flood = (0..16).map(|_| {
        let app = &app;
        async move {
            let mut passed = 0;
            for _ in 0..250 {
                let answer = app.get(&format!("/v1/keys/users/{}", random())).await;
                assert!(
                    ["404 filter", "404 backend"].contains(&answer.told().as_str()),
                    "{} {}",
                    answer.told(),
                    answer.text()
                );
                passed += u64::from(answer.header("bloomguard-source") == "backend");
            }
            passed
        }
    });
    let passed: u64 = futures_util::future::join_all(flood).await.iter().sum();
    let calls = app.metric(ABSENT).await - statements;
    assert!(passed > 0, "the rate is one in a hundred");
    assert!(calls <= passing_at_most(4000.0), "{calls} calls for 4000 keys");
    assert_eq!(calls, passed as f64, "each key that passed makes one call, and no other does");
    assert_eq!(app.metric(FOUND).await, 0.0);
    let left = entries(&redis) - before;
    assert!(left <= passed, "{left} entries are left of {passed} keys that passed");
    // Many at once leave no more.
    for _ in 0..4 {
        let keys: Vec<u64> = (0..5000).map(|_| random()).collect();
        let json = [("content-type", "application/json")];
        let batch = app.http.send("POST", &app.url("/v1/lookup/users"), &json, &format!("{keys:?}")).await.json();
        assert!(batch["results"].as_array().unwrap().iter().all(|one| one["status"] == 404), "{batch}");
    }
    let passed = app.metric("bloomguard_filter_false_positives_total{keyspace=\"users\"}").await;
    assert!(passed <= passing_at_most(24_000.0), "{passed} of 24000 keys");
    assert!((entries(&redis) - before) as f64 <= passed);
}

/// Invariant: flood-leaves-nothing
#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_false_positive_costs_one_call_in_absent_ttl() {
    const TTL: Duration = Duration::from_secs(1);
    let (site, redis) = (site(Site::postgres()).await, RedisServer::start());
    let brief = guarded(&site)
        .redis(&redis)
        .users(|k| k.set("cache.absent_ttl", "1s").set("cache.hot_ttl", "1ms").set("cache.jitter", 0.0));
    let app = TestApp::enforcing(&patient(brief)).await;
    let path = format!("/v1/keys/users/{}", false_positive(&app));
    let (start, mut calls, mut asked) = (Instant::now(), 0.0, 0u32);
    while calls < 3.0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{calls} calls: the absence never ends");
        for _ in 0..20 {
            assert_eq!(app.get(&path).await.status, 404);
        }
        asked += 20;
        calls = app.metric(ABSENT).await;
        let most = 1.0 + (start.elapsed().as_secs_f64() / TTL.as_secs_f64()).floor();
        assert!(calls <= most, "{calls} calls for {asked} requests within {:?}", start.elapsed());
    }
}

/// Invariant: flood-leaves-nothing
#[tokio::test(flavor = "multi_thread")]
async fn what_passes_one_filter_does_not_pass_the_next() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&guarded(&site)).await;
    let keyspace = app.keyspace("users");
    let passes = |id: &u32| keyspace.peek(&keyspace.key(id.to_string().as_bytes()).unwrap()).verdict == Verdict::Maybe;
    let crafted: Vec<u32> = (1_000_000..).filter(passes).take(200).collect();
    assert_eq!(app.rebuild("users").await, "swapped");
    let still = crafted.iter().filter(|id| passes(id)).count();
    // Two are to be expected; 20 by chance with less than one in 10^13.
    assert!(still < 20, "{still} of 200 pass the next filter too: it has the same salt");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_without_redis_keeps_the_database_under_its_caps() {
    const INSTANCES: usize = 3;
    const CAP: usize = 2;
    let (site, mut redis) = (site(Site::postgres()).await, RedisServer::start());
    let Site::Postgres(database) = &site else { unreachable!("it is on PostgreSQL") };
    let slow = "SELECT id, name, pg_sleep(0.02)::text FROM users WHERE id = $1";
    let config = config(&site.url())
        .redis(&redis)
        .set("redis.max_lag", "1s")
        .users(|k| k.set("backend.query", slow).set("backend.max_concurrency", CAP as u32).set("backend.max_queue", 4));
    let mut fleet = Vec::new();
    for _ in 0..INSTANCES {
        fleet.push(Arc::new(TestApp::enforcing(&config).await));
    }
    redis.kill();
    for app in &fleet {
        app.wait_for("degraded").await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    // Nothing is cached and nothing rejected, and every key is another one.
    let clients: Vec<_> = (0..INSTANCES * 16)
        .map(|client| {
            let (app, stop) = (Arc::clone(&fleet[client % INSTANCES]), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut answered, mut shed) = (0u32, 0u32);
                while !stop.load(Ordering::Relaxed) {
                    let id = rand::random_range(1..=USERS) + if rand::random() { 0 } else { 10_000_000 };
                    let answer = app.get(&format!("/v1/keys/users/{id}")).await;
                    match answer.told().as_str() {
                        "200 backend" | "200 hot" if id <= USERS => answered += 1,
                        "404 backend" if id > USERS => answered += 1,
                        "503 " => shed += u32::from(answer.json()["type"] == "/problems/shed"),
                        told => panic!("{id}: {told}"),
                    }
                }
                (answered, shed)
            })
        })
        .collect();
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND \
        query LIKE '%pg_sleep(0.02)%' AND pid <> pg_backend_pid()";
    let (mut most, start) = (0, Instant::now());
    // Until the caps were seen in use together, and a while longer.
    for looks in 0.. {
        most = most.max(database.psql(busy).parse::<usize>().unwrap());
        assert!(most <= INSTANCES * CAP, "{most} statements at a time");
        if (most == INSTANCES * CAP && looks >= 40) || start.elapsed() > Duration::from_secs(60) {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let (mut answered, mut shed) = (0, 0);
    for client in clients {
        let (one, other) = client.await.unwrap();
        (answered, shed) = (answered + one, shed + other);
    }
    assert!(
        most > CAP && answered > 0 && shed > 0,
        "at most {most} statements at a time, {answered} answered, {shed} shed"
    );
    redis.restart();
    for app in &fleet {
        app.wait_for("enforcing").await;
    }
}
