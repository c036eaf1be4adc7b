//! Rows without announce, found by polls.
#![allow(clippy::print_stdout, reason = "the times that were measured")]

use std::time::{Duration, Instant};

use sqlx::{Connection, Executor};

use super::users::{absent, false_positive};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::{Site, on_every_database};
use crate::support::mariadb::Mariadb;
use crate::support::postgres::{Database, Postgres};
use crate::support::redis::RedisServer;

on_every_database!(
    a_row_inserted_behind_the_guards_back_is_found_by_the_next_poll,
    an_absence_that_was_cached_before_the_row_is_dropped,
    a_row_of_2099_does_not_blind_the_polls,
    rows_of_one_watermark_are_all_found,
    texts_are_watermarks_in_the_databases_own_order,
    rows_that_come_while_filters_are_swapped_stay_found,
    a_number_without_its_highest_value_does_not_enforce_and_says_so,
    deleted_rows_do_not_disturb_the_polls,
);

/// A table of users 1 to 1000 with a timestamp.
pub async fn site(site: Site) -> Site {
    let kind = match &site {
        Site::Sqlite(_) => "DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP",
        Site::Postgres(_) => "timestamptz NOT NULL DEFAULT now()",
        Site::Mariadb(_) => "TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
    };
    let series = site.series(1000);
    site.run(&format!(
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT, version BIGINT DEFAULT 7, word VARCHAR(50) DEFAULT \
            'a', updated_at {kind}); \
         INSERT INTO users (id, name) SELECT i, 'User ' || i FROM ({series}) AS n"
    ))
    .await;
    site
}

/// Polled by `column` every 50 ms.
pub fn polled(url: &str, column: &str) -> Config {
    let parameter = if url.starts_with("mysql:") { "?" } else { "$1" };
    let poll = format!("SELECT id, {column} FROM users WHERE {column} > {parameter} ORDER BY {column}");
    let config = Config::new().users(|k| {
        k.set("max_staleness", "1h")
            .set("cache.hot_ttl", "10m")
            .set("cache.absent_ttl", "10m")
            .backend(url, &format!("SELECT id, name FROM users WHERE id = {parameter}"))
            .times("10s", "5s", "5s")
            .source_sql("SELECT id FROM users")
            .set("source.incremental.query", poll)
            .set("source.incremental.interval", "50ms")
            .set("source.incremental.overlap", "300ms")
    });
    if column == "updated_at" { config } else { with_watermark(config, column) }
}

/// Told the highest value of the column by a query of its own.
fn with_watermark(config: Config, column: &str) -> Config {
    config.users(|k| k.set("source.incremental.watermark", format!("SELECT max({column}) FROM users")))
}

/// Waits until the row is found; how long that took.
pub async fn found(app: &TestApp, id: u32) -> Duration {
    let (path, start) = (format!("/v1/keys/users/{id}"), Instant::now());
    let found = async || {
        let told = app.get(&path).await.told();
        assert!(told.starts_with("200") || told.starts_with("404"), "{id}: {told}");
        told.starts_with("200")
    };
    assert_eventually!(found().await, "{id} was never found; {}", app.status("users").await);
    start.elapsed()
}

pub async fn polls(app: &TestApp) -> f64 {
    app.metric("bloomguard_polls_total{keyspace=\"users\",outcome=\"completed\"}").await
}

/// Waits for this number of further polls.
pub async fn polled_again(app: &TestApp, count: f64) {
    let before = polls(app).await;
    assert_eventually!(polls(app).await >= before + count, "no polls: {}", app.status("users").await);
}

/// Invariant: polls-find-every-row
async fn a_row_inserted_behind_the_guards_back_is_found_by_the_next_poll(database: Site) {
    let site = site(database).await;
    let app = TestApp::enforcing(&polled(&site.url(), "updated_at")).await;
    let mut times = Vec::new();
    for _ in 0..10 {
        let id = absent(&app);
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
        site.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new')")).await;
        times.push(found(&app, id).await);
    }
    // However slow the machine is: the poll that is under way at the commit may miss the row, the next one does not.
    for _ in 0..5 {
        let id = absent(&app);
        site.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new')")).await;
        polled_again(&app, 2.0).await;
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.status, 200, "{id} was missed by a whole poll");
    }
    println!("found after {:?} at the most, interval 50 ms, overlap 300 ms: {times:?}", times.iter().max().unwrap());
    let status = app.status("users").await;
    assert_eq!(
        (status["state"].as_str(), &status["warnings"]),
        (Some("enforcing"), &serde_json::json!([])),
        "{status}"
    );
    assert!(status["freshness"].as_str().unwrap().starts_with("polled: "), "{status}");
    assert!(status["freshness_lag_seconds"].as_f64().unwrap() < 30.0, "{status}");
    assert!(app.metric("bloomguard_polled_keys_total{keyspace=\"users\"}").await >= 10.0);
}

/// Invariant: polled-rows-outlive-builds
async fn an_absence_that_was_cached_before_the_row_is_dropped(database: Site) {
    let site = site(database).await;
    let redis = RedisServer::start();
    for redis in [None, Some(&redis)] {
        site.run("DELETE FROM users WHERE id > 1000").await;
        let config = polled(&site.url(), "updated_at")
            .maybe_redis(redis)
            .users(|k| k.set("filter.false_positive_rate", 0.05).set("commit_window", "1s"));
        let app = TestApp::enforcing(&config).await;
        let id = false_positive(&app);
        let path = format!("/v1/keys/users/{id}");
        assert_eq!(app.get(&path).await.told(), "404 backend");
        assert_eq!(app.get(&path).await.told(), "404 hot", "cached in both tiers");
        site.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new')")).await;
        found(&app, id).await;
    }
}

/// Invariant: polls-find-every-row
async fn a_row_of_2099_does_not_blind_the_polls(database: Site) {
    let site = site(database).await;
    // MariaDB's TIMESTAMP ends in 2038.
    let insert =
        |id: u32| format!("INSERT INTO users (id, name, updated_at) VALUES ({id}, 'future', '2037-12-31 23:59:59')");
    site.run(&insert(5_000_000)).await;
    let app = TestApp::enforcing(&with_watermark(polled(&site.url(), "updated_at"), "updated_at")).await;
    for round in 0..3 {
        site.run(&insert(5_000_001 + round)).await;
        found(&app, 5_000_001 + round).await;
        // Longer than the overlap, and than the second that columns may be rounded to.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2500) {
            polled_again(&app, 1.0).await;
        }
        let id = absent(&app);
        site.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new')")).await;
        found(&app, id).await;
    }
}

/// Invariant: polls-find-every-row
async fn rows_of_one_watermark_are_all_found(database: Site) {
    let site = site(database).await;
    let app = TestApp::enforcing(&polled(&site.url(), "version")).await;
    for first in [2_000_000, 3_000_000] {
        // All have the version of all that there are, which the polls saw long ago.
        let series = site.series(10_000);
        site.run(&format!("INSERT INTO users (id, name) SELECT {first} + i, 'new' FROM ({series}) AS n")).await;
        for id in (first + 1..=first + 10_000).step_by(97) {
            found(&app, id).await;
        }
        polled_again(&app, 10.0).await;
    }
}

async fn texts_are_watermarks_in_the_databases_own_order(database: Site) {
    let site = site(database).await;
    let parameter = site.query("$1");
    let poll = format!("SELECT id, word FROM users WHERE word >= {parameter} ORDER BY word");
    let config = polled(&site.url(), "word").users(|k| k.set("source.incremental.query", poll));
    let app = TestApp::enforcing(&config).await;
    for word in ["a", "b", "b", "ba", "zz"] {
        let id = absent(&app);
        site.run(&format!("INSERT INTO users (id, name, word) VALUES ({id}, 'new', '{word}')")).await;
        found(&app, id).await;
        polled_again(&app, 10.0).await;
    }
}

/// Invariant: polled-rows-outlive-builds
async fn rows_that_come_while_filters_are_swapped_stay_found(database: Site) {
    let site = site(database).await;
    let app = TestApp::enforcing(&polled(&site.url(), "updated_at")).await;
    for id in 4_000_000..4_000_030 {
        let insert = format!("INSERT INTO users (id, name) VALUES ({id}, 'new')");
        let (rebuilt, ()) = tokio::join!(app.rebuild("users"), site.run(&insert));
        assert_eq!(rebuilt, "swapped");
        found(&app, id).await;
    }
    assert_eq!(app.rebuild("users").await, "swapped");
    for id in 4_000_000..4_000_030 {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.status, 200, "{id}");
    }
}

async fn a_number_without_its_highest_value_does_not_enforce_and_says_so(database: Site) {
    let site = site(database).await;
    let config = polled(&site.url(), "version");
    let config = config.users(|k| k.unset("source.incremental.watermark"));
    let app = TestApp::start(&config).await;
    app.wait_for("degraded").await;
    let reason = app.status("users").await["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("source.incremental.watermark"), "{reason}");
    assert_eq!(app.get("/v1/keys/users/1").await.told(), "200 backend");
    assert_eq!(app.get(&format!("/v1/keys/users/{}", absent(&app))).await.told(), "404 backend");
}

async fn deleted_rows_do_not_disturb_the_polls(database: Site) {
    let site = site(database).await;
    let app = TestApp::enforcing(&polled(&site.url(), "updated_at")).await;
    site.run("DELETE FROM users WHERE id > 10").await;
    polled_again(&app, 3.0).await;
    let id = absent(&app);
    site.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new')")).await;
    found(&app, id).await;
}

/// Commits a row long after others that were written later, and polled.
pub async fn long_transaction<C: Connection>(site: &Site, mut writer: C, column: &str, commit: &str)
where
    for<'c> &'c mut C: Executor<'c>,
{
    let app = TestApp::enforcing(&polled(&site.url(), column)).await;
    let late = absent(&app);
    let execute = async |writer: &mut C, sql: String| {
        writer.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.map(drop).unwrap();
    };
    execute(&mut writer, "BEGIN".into()).await;
    execute(&mut writer, format!("INSERT INTO users (id, name, version) VALUES ({late}, 'late', 1000)")).await;
    let start = Instant::now();
    let mut version: u32 = 1000;
    if let Some(prepare) = commit.strip_prefix("COMMIT PREPARED") {
        execute(&mut writer, format!("PREPARE TRANSACTION{prepare}")).await;
    }
    // Longer than the overlap, the second that columns may be rounded to, and those that the server's ages are rounded
    // by.
    while start.elapsed() < Duration::from_secs(6) {
        version += 1;
        // Not the one that waits: its filter bits are not set yet.
        let id = 6_000_000 + version;
        site.run(&format!("INSERT INTO users (id, name, version) VALUES ({id}, 'meanwhile', {version})")).await;
        found(&app, id).await;
        polled_again(&app, 2.0).await;
    }
    execute(&mut writer, commit.to_owned()).await;
    // Not by waiting until it is found: the canary would find it too.
    polled_again(&app, 2.0).await;
    let told = app.get(&format!("/v1/keys/users/{late}")).await.told();
    assert!(
        told.starts_with("200"),
        "{column}: {told} after the commit of a transaction that lasted {:?}",
        start.elapsed()
    );
    writer.close().await.unwrap();
}

/// Invariant: polls-find-every-row
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_a_long_postgresql_transaction_is_found_at_its_commit() {
    for column in ["updated_at", "version"] {
        let site = site(Site::postgres()).await;
        let writer = sqlx::PgConnection::connect(&site.url()).await.unwrap();
        long_transaction(&site, writer, column, "COMMIT").await;
    }
}

/// Invariant: polls-find-every-row
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_a_long_transaction_of_mariadb_is_found_when_it_is_committed() {
    for column in ["updated_at", "version"] {
        let site = site(Site::mariadb()).await;
        let writer = sqlx::MySqlConnection::connect(&site.url()).await.unwrap();
        long_transaction(&site, writer, column, "COMMIT").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_see_transactions_is_told_so() {
    let role = format!("blind_{}", std::process::id());
    let postgres = site(Site::postgres()).await;
    postgres.run(&format!("CREATE ROLE {role} LOGIN; GRANT SELECT ON users TO {role}")).await;
    let mariadb = Mariadb::start_with(&[]);
    let database = mariadb.create_database();
    database.sql(
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP); \
         INSERT INTO users (id) VALUES (1); CREATE USER blind; GRANT SELECT ON *.* TO blind",
    );
    for (url, mend) in [
        (postgres.url().replace("postgres@", &format!("{role}@")), "pg_read_all_stats"),
        (database.url().replace("root@", "blind@"), "GRANT PROCESS"),
    ] {
        let app = TestApp::enforcing(&polled(&url, "updated_at")).await;
        let warnings = app.status("users").await["warnings"].to_string();
        assert!(warnings.contains(mend), "{warnings}");
        app.stop().await;
    }
    postgres.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

/// Invariant: polled-rows-outlive-builds
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_down_ends_the_rejecting_and_its_return_mends_it() {
    let mut server = Postgres::start();
    let database: Database<'_> = server.create_database();
    database.psql(
        "CREATE TABLE users (id bigint PRIMARY KEY, name text, updated_at timestamptz DEFAULT now()); INSERT INTO \
            users (id) VALUES (1); \
         CREATE ROLE keyspace LOGIN; GRANT SELECT ON users TO keyspace",
    );
    let url = database.url();
    let guarded = url.replace("postgres@", "keyspace@");
    let app = TestApp::enforcing(&polled(&guarded, "updated_at").users(|k| k.set("max_staleness", "2s"))).await;
    let name = url.rsplit('/').next().unwrap().to_owned();
    let id = absent(&app);
    // So that no poll gets in before the row is there, however long that takes.
    server.psql(&name, "ALTER ROLE keyspace NOLOGIN");
    server.stop();
    app.wait_for("degraded").await;
    let reason = app.status("users").await["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("max_staleness = 2s: the key source can't be reached"), "{reason}");
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.status, 503, "a failure is no absence");
    server.start_again();
    server.psql(&name, &format!("INSERT INTO users (id) VALUES ({id}); ALTER ROLE keyspace LOGIN"));
    app.wait_for("enforcing").await;
    assert_eq!(
        app.get(&format!("/v1/keys/users/{id}")).await.told(),
        "200 backend",
        "what came meanwhile is there before the right to reject"
    );
}

/// Polls that fail from the first row without announce on, which the canary finds.
async fn found_while_polls_fail(freshness: &str) -> TestApp {
    let site = site(Site::sqlite()).await;
    let config = polled(&site.url(), "updated_at")
        .users(|k| k.set("freshness", freshness).set("canary.sample_rate", 1).set("canary.max_per_second", 1000));
    let app = TestApp::enforcing(&config).await;
    site.run("ALTER TABLE users RENAME COLUMN updated_at TO changed_at").await;
    let id = absent(&app);
    site.run(&format!("INSERT INTO users (id) VALUES ({id})")).await;
    assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.told(), "404 filter");
    assert_eventually!(
        app.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}").await >= 1.0,
        "not counted"
    );
    let told = app.admin("GET", "/admin/keyspaces/users/mismatches", "").await.json();
    assert_eq!(told["false_negatives"][0]["found_by"], "canary");
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_found_while_polls_fail_counts_and_their_age_degrades() {
    let app = found_while_polls_fail("polled").await;
    assert_eq!(app.status("users").await["state"], "enforcing", "the last poll is younger than max_staleness");
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_that_fail_excuse_no_row_where_nothing_is_promised_of_them() {
    let app = found_while_polls_fail("announced").await;
    app.wait_for("degraded").await;
}
