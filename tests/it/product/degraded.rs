//! What protects a database while the filter answers nothing: its verdicts order the queue in front of the cap. And
//! rows that a lost log explains are no mistake of the filter.

#![allow(clippy::print_stdout, reason = "what was measured")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::Connection as _;
use tempfile::TempDir;

use super::load::{Run, at_rate, pace, uncached};
use super::process::enforces;
use super::users::{USERS, absent, config, site};
use crate::support::app::{Http, TestApp};
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::long_run::LOAD_SECONDS;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

/// Calls of the database at a time; each takes 20 ms, so it answers 200 lookups a second.
const CAP: u32 = 4;
const CALL: f64 = 0.02;
/// The condition without a row is evaluated once, and first: a call for an absent key takes as long.
const SLOW: &str =
    "SELECT id, name FROM users WHERE (SELECT pg_sleep(seconds)::text IS NOT NULL FROM pace) AND id = $1";

/// Every read goes to the database. No wait ends by itself on a busy machine, and the filter stays without the right to
/// reject until the test is over.
fn narrow(site: &Site, redis: &RedisServer) -> Config {
    config(&site.url()).redis(redis).users(|k| {
        uncached(k)
            .set("backend.query", SLOW)
            .times("20s", "10m", "20s")
            .set("backend.min_connections", CAP)
            .set("backend.max_concurrency", CAP)
            .set("backend.max_queue", 32)
    })
}

/// The size of the attack. A brief one leaves the processor room on a busy machine, and fills the queue all the same.
struct Attack {
    data: SocketAddr,
    lasting: Duration,
    present_per_second: u32,
    absent_per_second: u32,
}

impl Attack {
    fn on(data: &str) -> Self {
        let data = data.parse().unwrap();
        match LOAD_SECONDS.size() {
            0 => Self { data, lasting: Duration::from_secs(2), present_per_second: 40, absent_per_second: 600 },
            seconds => {
                Self { data, lasting: Duration::from_secs(seconds), present_per_second: 100, absent_per_second: 20_000 }
            }
        }
    }

    /// Reads of rows, beside lookups of keys that do not exist: over connections of their own, so that no read waits
    /// for the answer of an attacker.
    async fn run(&self, phase: &str) -> (Run, Run) {
        let present = || ("present", "GET", format!("/v1/keys/users/{}", rand::random_range(1..=USERS)));
        let absent = || ("absent", "GET", format!("/v1/keys/users/{}", rand::random_range(1_000_000..u32::MAX)));
        let reads = async {
            // After the attack has connected.
            tokio::time::sleep(self.lasting / 4).await;
            at_rate(self.data, (self.present_per_second, 20), self.lasting / 4 * 3, present).await
        };
        let (mut present, mut absent) =
            tokio::join!(reads, at_rate(self.data, (self.absent_per_second, 200), self.lasting, absent));
        let (mut present, mut absent) = (present.remove("present").unwrap(), absent.remove("absent").unwrap());
        present.report(&format!("present, {phase}"));
        absent.report(&format!("absent, {phase}"));
        (present, absent)
    }
}

fn statuses(run: &Run) -> Vec<u16> {
    run.statuses.keys().copied().collect()
}

/// The most connections at a time that have run a lookup, until told to stop.
async fn most_connections(url: String, stop: Arc<AtomicBool>) -> i64 {
    let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
    let count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND pid <> pg_backend_pid() AND query LIKE '%pg_sleep(seconds)%'";
    let mut most = 0;
    while !stop.load(Ordering::Relaxed) {
        most = most.max(sqlx::query_scalar::<_, i64>(count).fetch_one(&mut connection).await.unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    most
}

/// Invariant: absent-keys-wait-behind-present-ones
#[tokio::test(flavor = "multi_thread")]
async fn an_attack_while_redis_restarts_costs_no_present_key_its_answer() {
    let (dir, mut redis, site) = (TempDir::new().unwrap(), RedisServer::start(), site(Site::postgres()).await);
    pace(&site, &[("users", 0.0)]).await;
    // Without reports it stays degraded.
    let config = narrow(&site, &redis).set("redis.roll_call", "0s");
    let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
    let (data, telemetry) = process.addresses();
    let http = Http::default();
    enforces(&http, &telemetry).await;
    pace(&site, &[("users", CALL)]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let connections = tokio::spawn(most_connections(site.url(), Arc::clone(&stop)));
    let attack = Attack::on(&data);

    let (mut before, rejected) = attack.run("enforcing").await;
    assert_eq!(statuses(&rejected), [404]);
    let status = async || http.get(&format!("http://{telemetry}/status")).await.json()["keyspaces"]["users"].clone();
    let restart = async {
        redis.kill();
        redis.restart();
        assert_eventually!(status().await["state"] == "degraded", "{}", status().await);
    };
    let ((during, attacked), ()) = tokio::join!(attack.run("while Redis restarts"), restart);
    let (mut after, shed) = attack.run("degraded").await;
    assert_eq!(status().await["state"], "degraded", "all the time");

    let mut wrong = BTreeMap::new();
    for (name, run, right) in [
        ("before", &before, &[200_u16][..]),
        ("during", &during, &[200]),
        ("after", &after, &[200]),
        ("attacked", &attacked, &[404, 503]),
        ("shed", &shed, &[404, 503]),
    ] {
        if run.of(right) != run.took.len() as u64 {
            wrong.insert(name, run.statuses.clone());
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // In one queue with the attack, most reads would be shed as these are.
    assert!(shed.of(&[503]) > shed.took.len() as u64 / 10, "the queue was hardly full: {:?}", shed.statuses);
    stop.store(true, Ordering::Relaxed);
    let connections = connections.await.unwrap();
    assert!((1..=i64::from(CAP)).contains(&connections), "{connections} connections");
    let [p99_before, p99_after] = [&mut before, &mut after].map(|run| run.quantile(0.99).as_secs_f64());
    println!("p99 of present keys, degraded over enforcing: {:.2}; connections {connections}", p99_after / p99_before);
}

const EXPLAINED: &str = "bloomguard_filter_false_negatives_explained_total{keyspace=\"users\"}";
const FALSE_NEGATIVES: &str = "bloomguard_filter_false_negatives_total{keyspace=\"users\"}";

async fn unprotected(app: &TestApp, reason: &str) -> f64 {
    let line = format!("bloomguard_keyspace_unprotected_seconds_total{{keyspace=\"users\",reason=\"{reason}\"}}");
    app.metric(&line).await
}

/// Every answer of the filter is checked, and a mistake of it would end its answers for an hour.
fn strict(site: &Site, redis: &RedisServer) -> Config {
    config(&site.url()).redis(redis).users(|k| {
        k.set("canary.sample_rate", 1)
            .set("canary.max_per_second", 1000)
            .set("canary.hold", "1h")
            .set("commit_window", "3s")
            .set("deadline", "2s")
            .set("backend.timeout", "1s")
    })
}

async fn insert(site: &Site, id: u32) {
    site.run(&format!("INSERT INTO users VALUES ({id}, 'announced to the lost log')")).await;
}

/// Invariant: lost-log-is-no-false-negative
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_lost_log_explains_are_no_false_negatives() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let app = TestApp::enforcing(&strict(&site, &redis)).await;
    let before = unprotected(&app, "log_lost").await;
    redis.kill();
    redis.restart();
    app.wait_for("degraded").await;
    let id = absent(&app);
    insert(&site, id).await;
    let found = app.get(&format!("/v1/keys/users/{id}")).await;
    assert_eq!((found.told().as_str(), found.header("bloomguard-verdict")), ("200 backend", "absent"));
    assert_eventually!(app.metric(EXPLAINED).await == 1.0, "{}", app.status("users").await);
    app.wait_for("enforcing").await;
    assert_eq!(app.metric(FALSE_NEGATIVES).await, 0.0);
    let lost = unprotected(&app, "log_lost").await - before;
    assert!(lost >= 2.0, "{lost} s of a window of 3 s and a scan");
    for other in ["log_lag", "false_negative", "stale", "shadow", "proof", "secret"] {
        assert_eq!(unprotected(&app, other).await, 0.0, "{other}");
    }
    // Nothing is lost any more.
    let id = absent(&app);
    insert(&site, id).await;
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
    assert_eventually!(app.metric(FALSE_NEGATIVES).await == 1.0, "{}", app.status("users").await);
    app.wait_for("degraded").await;
    assert_eq!(app.metric(EXPLAINED).await, 1.0);
    assert_eventually!(unprotected(&app, "false_negative").await >= 1.0, "no time counts for it");
}

/// Invariant: lost-log-is-no-false-negative
#[tokio::test(flavor = "multi_thread")]
async fn a_row_answered_404_before_the_loss_is_noticed_is_explained_by_it() {
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let app = TestApp::enforcing(&strict(&site, &redis)).await;
    redis.kill();
    // `redis.max_lag` of the tests is a minute: it still rejects, and the canary waits for the log.
    let id = absent(&app);
    insert(&site, id).await;
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
    redis.restart();
    let explained = "bloomguard_filter_canary_checks_total{keyspace=\"users\",result=\"explained\"}";
    assert_eventually!(app.metric(explained).await == 1.0, "{}", app.status("users").await);
    assert_eq!((app.metric(EXPLAINED).await, app.metric(FALSE_NEGATIVES).await), (1.0, 0.0));
    app.wait_for("enforcing").await;
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.status, 200);
}
