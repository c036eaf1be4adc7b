//! A process that starts from the snapshot of one before it: it enforces before any scan has ended, and misses nothing
//! that came meanwhile.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use sqlx::{Connection, Executor};
use tempfile::TempDir;

use super::process::enforces;
use super::users::{absent, config, site};
use crate::support::app::{Http, TestApp};
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::metric;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

/// Users, and their ids once more in a table of its own, which is what is scanned.
async fn scannable() -> Site {
    let site = site(Site::postgres()).await;
    site.run(
        "ALTER TABLE users ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now(); CREATE TABLE ids AS SELECT \
        id FROM users",
    )
    .await;
    site
}

/// As long as this lives no scan of `ids` gets anywhere.
async fn locked(site: &Site) -> sqlx::PgConnection {
    let mut connection = sqlx::PgConnection::connect(&site.url()).await.unwrap();
    connection.execute("BEGIN; LOCK TABLE ids IN ACCESS EXCLUSIVE MODE").await.unwrap();
    connection
}

fn configuration(site: &Site, redis: Option<&RedisServer>) -> Config {
    config(&site.url()).maybe_redis(redis).users(|k| {
        k.set("key", "integer").set("max_staleness", "1h").set("commit_window", "1s").source_sql("SELECT id FROM ids")
    })
}

const POLL: &str = "SELECT id, updated_at FROM users WHERE updated_at > $1 ORDER BY updated_at";

fn file(app: &TestApp) -> PathBuf {
    app.dir.path().join("data/users.snapshot")
}

fn outcome(name: &str) -> String {
    format!("bloomguard_snapshots_total{{keyspace=\"users\",outcome=\"{name}\"}}")
}

/// Waits until a snapshot was written since the start.
async fn written(app: &TestApp) {
    assert_eventually!(app.metric(&outcome("written")).await >= 1.0, "{}", app.status("users").await);
}

/// Stops it as SIGTERM does, and starts another in its place.
async fn restarted(app: TestApp, config: &Config) -> TestApp {
    let dir = Arc::clone(&app.dir);
    app.stop().await;
    TestApp::start_in(dir, config).await
}

async fn scans(app: &TestApp) -> f64 {
    app.metric("bloomguard_rebuilds_total{keyspace=\"users\",outcome=\"swapped\"}").await
}

/// It enforces, from the snapshot, and every user is there.
async fn serves(app: &TestApp) {
    app.wait_for("enforcing").await;
    assert_eq!((scans(app).await, app.metric(&outcome("restored")).await), (0.0, 1.0), "{}", app.status("users").await);
    for id in [1, 500, 1000] {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "200 backend");
    }
    let id = absent(app);
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
}

async fn insert(site: &Site, id: u32) {
    site.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new'); INSERT INTO ids VALUES ({id})")).await;
}

async fn found(app: &TestApp, id: u32) {
    assert_eq!(
        app.get(&format!("/v1/keys/users/{id}")).await.told(),
        "200 backend",
        "{id}: {}",
        app.status("users").await
    );
}

/// Invariant: restart-knows-what-it-missed
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_enforces_before_any_scan_and_knows_old_announces() {
    let site = scannable().await;
    let config = configuration(&site, None);
    let app = TestApp::enforcing(&config).await;
    let mut ids = vec![absent(&app)];
    assert_eq!(app.send("PUT", &format!("/v1/keys/users/{}", ids[0]), &[]).await.status, 204);
    insert(&site, ids[0]).await;
    let generation = app.keyspace("users").generation();
    let lock = locked_after(&site, &app).await;
    let app = restarted(app, &config).await;
    serves(&app).await;
    assert_eq!(app.keyspace("users").generation(), generation);
    let status = app.status("users").await;
    assert!(status["snapshot"]["at_start"].as_str().unwrap().starts_with("taken "), "{status}");
    // A second one in a row, with what was announced before each.
    ids.push(absent(&app));
    assert_eq!(app.send("PUT", &format!("/v1/keys/users/{}", ids[1]), &[]).await.status, 204);
    site.run(&format!("INSERT INTO users (id, name) VALUES ({}, 'new')", ids[1])).await;
    let app = restarted(app, &config).await;
    serves(&app).await;
    for id in ids {
        found(&app, id).await;
    }
    // A scan that can go on replaces it.
    drop(lock);
    assert_eq!(app.rebuild("users").await, "swapped");
    assert_eq!(app.keyspace("users").generation(), generation + 1);
}

/// Locks once a snapshot is there.
async fn locked_after(site: &Site, app: &TestApp) -> sqlx::PgConnection {
    written(app).await;
    locked(site).await
}

/// Invariant: restart-knows-what-it-missed
#[tokio::test(flavor = "multi_thread")]
async fn keys_announced_while_an_instance_was_down_are_found_at_once() {
    let (redis, site) = (RedisServer::start(), scannable().await);
    let config = configuration(&site, Some(&redis));
    let (one, other) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
    let lock = locked_after(&site, &one).await;
    let dir = Arc::clone(&one.dir);
    one.stop().await;
    let ids: Vec<u32> = (5_000_000..5_000_300).collect();
    for id in &ids {
        assert_eq!(other.send("PUT", &format!("/v1/keys/users/{id}"), &[]).await.status, 204);
    }
    site.run("INSERT INTO users (id, name) SELECT i, 'new' FROM generate_series(5000000, 5000299) AS i").await;
    let one = TestApp::start_in(dir, &config).await;
    serves(&one).await;
    for id in ids {
        found(&one, id).await;
    }
    drop(lock);
}

/// Invariant: restart-knows-what-it-missed
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_does_not_go_on_from_the_snapshot_waits_for_a_scan() {
    let site = scannable().await;
    for lose in [["XTRIM", "bloomguard:deltas:users", "MAXLEN", "0"].as_slice(), &["FLUSHALL"]] {
        let redis = RedisServer::start();
        let config = configuration(&site, Some(&redis));
        let (one, other) = (TestApp::enforcing(&config).await, TestApp::enforcing(&config).await);
        let dir = Arc::clone(&one.dir);
        let lock = locked_after(&site, &one).await;
        one.stop().await;
        assert_eq!(other.send("PUT", "/v1/keys/users/7000000", &[]).await.status, 204);
        redis::cmd(lose[0]).arg(&lose[1..]).exec(&mut redis.connection()).unwrap();
        let one = TestApp::start_in(dir, &config).await;
        let resyncs = "bloomguard_delta_resyncs_total{keyspace=\"users\",reason=\"snapshot\"}";
        assert_eventually!(
            {
                assert_ne!(one.status("users").await["state"], "enforcing");
                let noticed = one.metric(resyncs).await
                    + one.metric(&outcome("refused")).await
                    + one.metric(&resyncs.replace("snapshot", "young")).await;
                noticed >= 1.0
            },
            "{}",
            one.status("users").await
        );
        assert_ne!(one.status("users").await["state"], "enforcing", "no scan has ended");
        assert_eq!(scans(&one).await, 0.0);
        drop(lock);
        one.wait_for("enforcing").await;
        assert!(scans(&one).await >= 1.0);
    }
}

/// Invariant: restart-knows-what-it-missed
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_came_while_no_instance_polled_are_found_before_enforcing() {
    let site = scannable().await;
    let config = configuration(&site, None).users(|k| {
        k.set("freshness", "polled")
            .set("source.incremental.query", POLL)
            .set("source.incremental.interval", "50ms")
            .set("source.incremental.overlap", "300ms")
    });
    let app = TestApp::enforcing(&config).await;
    let lock = locked_after(&site, &app).await;
    let dir = Arc::clone(&app.dir);
    app.stop().await;
    site.run("INSERT INTO users (id, name) SELECT i, 'new' FROM generate_series(6000000, 6000099) AS i").await;
    let app = TestApp::start_in(dir, &config).await;
    app.wait_for("enforcing").await;
    for id in 6_000_000..6_000_100 {
        found(&app, id).await;
    }
    serves(&app).await;
    drop(lock);
}

/// Invariant: restart-knows-what-it-missed
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_not_believed_for_longer_than_its_scan() {
    let site = scannable().await;
    let every = |schedule: &str, jitter: &str, max_staleness: &str| {
        configuration(&site, None).users(|k| {
            k.set("freshness", "rebuilt")
                .set("rebuild.schedule", schedule)
                .set("rebuild.jitter", jitter)
                .set("max_staleness", max_staleness)
        })
    };
    let hourly = every("0 * * * *", "5m", "2h");
    let app = TestApp::enforcing(&hourly).await;
    let lock = locked_after(&site, &app).await;
    let app = restarted(app, &hourly).await;
    serves(&app).await;
    assert_eventually!(
        app.status("users").await["freshness_lag_seconds"].as_f64().unwrap() >= 1.5,
        "the filter does not age"
    );
    let app = restarted(app, &every("* * * * * *", "0s", "1500ms")).await;
    let status = app.status("users").await;
    assert_eq!((status["state"].as_str(), app.metric(&outcome("refused")).await), (Some("cold"), 1.0), "{status}");
    assert!(status["snapshot"]["at_start"].as_str().unwrap().contains("longer than max_staleness"), "{status}");
    drop(lock);
}

/// Invariant: damaged-snapshot-refused
/// Invariant: bad-input-changes-nothing
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_foreign_snapshot_is_not_used_and_says_why() {
    let site = scannable().await;
    let config = configuration(&site, None);
    let app = TestApp::enforcing(&config).await;
    written(&app).await;
    let (dir, place) = (Arc::clone(&app.dir), file(&app));
    app.stop().await;
    let whole = std::fs::read(&place).unwrap();
    let lock = locked(&site).await;
    let mut flipped = whole.clone();
    flipped[whole.len() - 9] ^= 1;
    let other = config.clone().users(|k| k.source_sql("SELECT id FROM ids WHERE id > 0"));
    for (bytes, config, reason) in [
        (whole[..whole.len() - 1].to_vec(), &config, "bytes instead of"),
        (flipped, &config, "its layer 0 is damaged"),
        (Vec::new(), &config, "it is not a snapshot"),
        (whole.clone(), &other, "were configured differently"),
    ] {
        std::fs::write(&place, bytes).unwrap();
        let app = TestApp::start_in(Arc::clone(&dir), config).await;
        let status = app.status("users").await;
        assert_eq!((status["state"].as_str(), app.metric(&outcome("refused")).await), (Some("cold"), 1.0), "{status}");
        assert!(status["snapshot"]["at_start"].as_str().unwrap().contains(reason), "{status}");
        app.stop().await;
    }
    drop(lock);
    let app = TestApp::start_in(dir, &config).await;
    app.wait_for("enforcing").await;
    assert_eq!(scans(&app).await, 1.0);
}

/// Invariant: restart-knows-what-it-missed
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_filter_had_called_absent_makes_the_snapshot_void() {
    let site = scannable().await;
    let config = configuration(&site, None);
    let app = TestApp::enforcing(&config).await;
    let lock = locked_after(&site, &app).await;
    let id = absent(&app);
    // No caller announced it.
    site.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new')")).await;
    let found = app.send("GET", &format!("/v1/keys/users/{id}"), &[("bloomguard-bypass", "1")]).await;
    assert_eq!(found.told(), "200 backend");
    // Beside the request that found it.
    assert_eventually!(!file(&app).exists(), "the row is in no snapshot: {}", app.status("users").await);
    let dir: Arc<TempDir> = Arc::clone(&app.dir);
    app.stop().await;
    let app = TestApp::start_in(dir, &config).await;
    assert_eq!(app.status("users").await["state"], "cold");
    drop(lock);
}

/// Runs `bloomguard snapshot inspect`; its exit status and what it said.
fn inspect(file: &std::path::Path) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_bloomguard")).args(["snapshot", "inspect"]).arg(file).output().unwrap();
    (out.status.code().unwrap(), String::from_utf8([out.stdout, out.stderr].concat()).unwrap())
}

/// Invariant: restart-knows-what-it-missed
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_is_followed_by_one_that_enforces_from_its_snapshot() {
    let (dir, site) = (TempDir::new().unwrap(), scannable().await);
    let configuration = configuration(&site, None).write(dir.path());
    let http = Http::default();
    let metric =
        async |telemetry: &str, line: &str| metric(http.get(&format!("http://{telemetry}/metrics")).await.text(), line);
    let mut process = Process::start(dir.path(), &["serve", "--config", &configuration]);
    let (data, telemetry) = process.addresses();
    assert_eventually!(metric(&telemetry, &outcome("written")).await >= 1.0, "{}", process.log());
    assert_eq!(http.send("PUT", &format!("http://{data}/v1/keys/users/5000000"), &[], "").await.status, 204);
    process.signal("KILL");
    process.ended();
    site.run("INSERT INTO users (id, name) VALUES (5000000, 'new')").await;
    let lock = locked(&site).await;
    let mut process = Process::start(dir.path(), &["serve", "--config", &configuration]);
    let (data, telemetry) = process.addresses();
    enforces(&http, &telemetry).await;
    for id in [1, 1000, 5_000_000] {
        assert_eq!(http.get(&format!("http://{data}/v1/keys/users/{id}")).await.told(), "200 backend");
    }
    assert_eq!(metric(&telemetry, &outcome("restored")).await, 1.0);
    process.signal("TERM");
    assert!(process.ended().success(), "{}", process.log());
    drop(lock);

    let place = dir.path().join("data/users.snapshot");
    let (status, told) = inspect(&place);
    assert_eq!(status, 0, "{told}");
    for fact in [
        "keyspace      users",
        "filter        bloom, made for 1300 keys at 0.001",
        "[1000] scanned",
        "key form      integer",
        "checksums     of",
    ] {
        assert!(told.contains(fact), "no {fact:?} in\n{told}");
    }
    let mut bytes = std::fs::read(&place).unwrap();
    let secret = String::from_utf8_lossy(&bytes).split("\"secret\":\"").nth(1).unwrap()[..384].to_owned();
    assert!(!told.contains(&secret[..16]), "{told}");
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&place, bytes).unwrap();
    assert_eq!(inspect(&place).0, 65);
    assert_eq!(inspect(&dir.path().join("nothing")).0, 66);
}
