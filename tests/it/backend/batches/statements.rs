//! What many keys cost: how many statements, by which index, and what becomes of queries that take one key at a time.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bloomguard::backend::{Backend, BackendError, FetchContext};
use bloomguard::key::{Key, KeyForm};

use super::{keys, together, told};
use crate::backend::contract::{config, key, open};
use crate::support::app::TestApp;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::eventually;
use crate::support::mariadb::Mariadb;
use crate::support::postgres::{Database, Postgres};

/// A server that counts what it runs.
fn counting() -> Postgres {
    let server = Postgres::start_with(&["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all"]);
    server.psql("postgres", "CREATE EXTENSION pg_stat_statements");
    server
}

/// Statements on the table `users` that the server has run, by whether they asked for many keys.
fn statements(server: &Postgres) -> (u64, u64) {
    let count = |many: &str| {
        let sql = format!(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%name FROM users WHERE%' AND \
                query NOT LIKE '%pg_stat_statements%' AND query {many} LIKE '%unnest%'"
        );
        server.psql("postgres", &sql).parse().unwrap()
    };
    (count(""), count("NOT"))
}

/// Guards a table `users` on any database.
fn guarded(url: &str, parameter: &str) -> Config {
    Config::new().users(|k| {
        k.set("freshness", "static")
            .set("deadline", "20s")
            .backend(url, &format!("SELECT id, name FROM users WHERE id = {parameter}"))
            .set("backend.timeout", "20s")
            .source_sql("SELECT id FROM users")
    })
}

/// One batch lookup of users that exist.
async fn assert_found(app: &TestApp, ids: RangeInclusive<u32>) {
    let keys: Vec<u32> = ids.clone().collect();
    let url = app.url("/v1/lookup/users");
    let answer = app
        .http
        .send("POST", &url, &[("content-type", "application/json")], &serde_json::to_string(&keys).unwrap())
        .await
        .json();
    for (id, result) in ids.zip(answer["results"].as_array().unwrap()) {
        assert_eq!(
            (&result["status"], &result["value"]["name"]),
            (&200.into(), &format!("User {id}").into()),
            "{result}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_lookup_costs_postgresql_one_statement_a_chunk() {
    let server = counting();
    server.psql(
        "postgres",
        "CREATE TABLE users (id bigint PRIMARY KEY, name text); INSERT INTO users SELECT i, 'User ' || i FROM \
            generate_series(1, 1000) i",
    );
    let app = TestApp::enforcing(&guarded(&server.url("postgres"), "$1")).await;
    assert_eq!(statements(&server), (1, 0), "the build has tried its samples together");
    for (asked, chunks) in [(1..=250, 3), (251..=350, 1), (351..=351, 0), (352..=353, 1)] {
        let before = statements(&server);
        assert_found(&app, asked.clone()).await;
        let after = statements(&server);
        // One key has no need of an array.
        let alone = u64::from(chunks == 0);
        assert_eq!((after.0 - before.0, after.1 - before.1), (chunks, alone), "{asked:?}");
    }
    let calls = app.metric("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"found\"}").await;
    assert_eq!(calls, 6.0, "calls are counted, not keys");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_lookup_costs_mariadb_one_statement_a_chunk() {
    let server = Mariadb::start_with(&["--general-log=ON", "--log-output=TABLE"]);
    let database = server.create_database();
    database.sql(
        "CREATE TABLE users (id bigint PRIMARY KEY, name text); INSERT INTO users SELECT seq, CONCAT('User ', seq) \
            FROM seq_1_to_1000",
    );
    let app = TestApp::enforcing(&guarded(&database.url(), "?")).await;
    let statements = || -> u64 {
        let count = server.sql(
            "",
            "SELECT count(*) FROM mysql.general_log WHERE command_type = 'Execute' AND argument LIKE '%FROM \
                users WHERE id = %'",
        );
        count.parse().unwrap()
    };
    for (asked, chunks) in [(1..=70, 3), (71..=102, 1), (103..=103, 1), (104..=105, 1)] {
        let before = statements();
        assert_found(&app, asked.clone()).await;
        assert_eq!(statements() - before, chunks, "{asked:?}");
    }
}

#[tokio::test]
async fn queries_that_take_one_key_at_a_time_are_asked_so() {
    let database = Database::create();
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, i * 10 FROM generate_series(1, 5) i",
    );
    for query in [
        // What shows the key would give the column another name.
        "SELECT $1::int, n FROM t WHERE id = $1",
        "SELECT max($1::int) AS k, sum(n) AS n FROM t WHERE id = $1 HAVING count(*) > 0",
        "SELECT n FROM t WHERE id::text = $1 AND 'a\\b' <> ''",
    ] {
        let backend = open(&config(&database.url(), query), KeyForm::Integer);
        assert_eq!(backend.batch_limit(), 100);
        let told = together(&backend, KeyForm::Integer, &["1", "9", "2", "1"]).await;
        assert!(
            told[0].contains("\"n\":") && told[1] == "absent" && told[2].contains("\"n\":") && told[3] == told[0],
            "{query}: {told:?}"
        );
        assert_eq!(backend.batch_limit(), 1, "{query}");
    }
    for query in [
        "SELECT n, bloomguard_many.id AS k FROM t AS bloomguard_many WHERE bloomguard_many.id = $1",
        "SELECT row_to_json(t) AS t, (SELECT count(*) FROM t AS u WHERE u.id <= $1) AS up_to FROM t WHERE id = $1",
        "SELECT s.n FROM (SELECT n FROM t WHERE id = $1) AS s JOIN generate_series(1, 3) g ON g < CAST($1 AS int) + 9",
        "WITH RECURSIVE r AS (SELECT id, n FROM t WHERE id = $1 UNION ALL SELECT t.id, t.n FROM t JOIN r ON t.id = \
            r.id + 1) SELECT count(*) AS n FROM r HAVING count(*) > 0",
        "SELECT n FROM t WHERE id = $1 UNION ALL SELECT n FROM t WHERE id = $1 + 100",
        "SELECT n FROM t WHERE id = $1 FOR UPDATE",
        "SELECT n FROM t WHERE id < 4 ORDER BY id OFFSET $1",
    ] {
        let backend = open(&config(&database.url(), query), KeyForm::Integer);
        let told = together(&backend, KeyForm::Integer, &["1", "9", "2", "1"]).await;
        assert!(
            told[0].starts_with('{') && told[1] == "absent" && told[2].starts_with('{') && told[3] == told[0],
            "{query}: {told:?}"
        );
        assert_eq!(backend.batch_limit(), 100, "{query}");
    }
}

#[tokio::test]
async fn index_of_the_key_column_is_used_for_many_keys() {
    let database = Database::create();
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, code varchar(20) UNIQUE, u uuid UNIQUE DEFAULT gen_random_uuid());
         INSERT INTO t SELECT i, 'c' || i FROM generate_series(1, 20000) i; ANALYZE t",
    );
    let uuids = database.psql("SELECT string_agg(u::text, ' ') FROM t WHERE id <= 100");
    let ids: Vec<String> = (1..=100).map(|id| id.to_string()).collect();
    let codes: Vec<String> = (1..=100).map(|id| format!("c{id}")).collect();
    let scans =
        || database.psql("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 't'").parse::<i64>().unwrap();
    let before = scans();
    for (column, form, raw) in [
        ("id", KeyForm::Integer, ids.iter().map(String::as_str).collect::<Vec<_>>()),
        ("code", KeyForm::Text, codes.iter().map(String::as_str).collect()),
        ("u", KeyForm::Uuid, uuids.split(' ').collect()),
    ] {
        let backend = open(&config(&database.url(), &format!("SELECT id FROM t WHERE {column} = $1")), form);
        // Often enough for the server to try a generic plan.
        for _ in 0..10 {
            let many = backend.fetch_many(&keys(form, &raw), &FetchContext::default()).await;
            assert!(many.iter().all(|row| matches!(row, Ok(Some(_)))), "{column}");
        }
    }
    // Sessions hand in their counts when they end.
    database.terminate_sessions();
    eventually("lookups are counted", || {
        database.psql("SELECT idx_scan >= 3000 FROM pg_stat_user_tables WHERE relname = 't'") == "t"
    })
    .await;
    assert_eq!(scans(), before);
}

/// Invariant: batch-equals-single
#[tokio::test]
async fn batch_that_times_out_answers_no_key_with_an_absence() {
    let database = Database::create();
    database.psql("CREATE TABLE t (id int, n int); INSERT INTO t VALUES (0, 0), (1, 1)");
    let mut config = config(
        &database.url(),
        "SELECT n, pg_sleep(CASE WHEN n = 0 THEN 3600 ELSE 0 END)::text AS slept FROM t WHERE id = $1",
    );
    config.timeout = Duration::from_secs(1);
    let backend = open(&config, KeyForm::Integer);
    let many = backend.fetch_many(&keys(KeyForm::Integer, &["1", "0", "2"]), &FetchContext::default()).await;
    assert!(
        many.iter().all(|row| matches!(row, Err(BackendError::Timeout(limit)) if *limit == config.timeout)),
        "{many:?}"
    );
    eventually("the server has stopped it", || {
        database.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> \
                pg_backend_pid()",
        ) == "0"
    })
    .await;
}

#[tokio::test]
async fn unreachable_database_fails_every_key() {
    let site = Site::postgres();
    let backend = open(&config(&site.unreachable_url(), "SELECT n FROM t WHERE id = $1"), KeyForm::Integer);
    let many = backend.fetch_many(&keys(KeyForm::Integer, &["1", "2", "3"]), &FetchContext::default()).await;
    assert!(many.len() == 3 && many.iter().all(|row| matches!(row, Err(BackendError::Unavailable(_)))), "{many:?}");
}

#[tokio::test]
async fn batches_leave_no_prepared_statement_where_none_may_be_kept() {
    let database = Database::create();
    let query = "SELECT count(*) AS prepared FROM pg_prepared_statements WHERE $1::text <> ''";
    let mut config = config(&database.url(), query);
    config.statement_cache = 0;
    let backend = open(&config, KeyForm::Text);
    for _ in 0..3 {
        let many = backend.fetch_many(&keys(KeyForm::Text, &["x", "y"]), &FetchContext::default()).await;
        assert_eq!(many.iter().map(told).collect::<Vec<_>>(), ["{\"prepared\":0}", "{\"prepared\":0}"]);
    }
}

/// Invariant: batch-equals-single
#[tokio::test]
async fn a_query_too_slow_for_a_whole_chunk_is_asked_for_fewer_keys() {
    let database = Database::create();
    database.psql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 200)");
    let mut config = config(&database.url(), "SELECT id, pg_sleep(0.02)::text AS slept FROM t WHERE id = $1");
    config.timeout = Duration::from_secs(1);
    let backend = open(&config, KeyForm::Integer);
    let all: Vec<Key> = (1..=100).map(|id| key(KeyForm::Integer, &id.to_string())).collect();
    let start = Instant::now();
    loop {
        let limit = backend.batch_limit();
        let many = backend.fetch_many(&all[..limit], &FetchContext::default()).await;
        if many.iter().all(|row| matches!(row, Ok(Some(_)))) {
            assert!((2..=50).contains(&limit), "{limit}");
            break;
        }
        assert!(many.iter().all(|row| !matches!(row, Ok(None))), "late is not absent: {many:?}");
        assert!(start.elapsed() < Duration::from_secs(120), "no batch was small enough");
    }
}
