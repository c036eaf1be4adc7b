//! What only a backend on PostgreSQL can be asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bloomguard::backend::{Backend, BackendError, FetchContext};
use bloomguard::key::KeyForm;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::backend::contract::{UUID, config, fetch, key, open, row, text};
use crate::support::eventually;
use crate::support::postgres::{Database, Postgres};

#[tokio::test]
async fn every_type_of_postgresql_is_rendered_exactly() {
    let database = Database::create();
    database.psql(&format!(
        "CREATE TYPE mood AS ENUM ('happy', 'sad');
         CREATE DOMAIN photo AS bytea;
         CREATE TABLE t (id int PRIMARY KEY, amount numeric, at timestamptz, naive timestamp, day date, doc json, bin \
         jsonb, u uuid, b bytea, p photo,
                         tags text[], m mood, f real, d double precision, yes bool, i interval, ip inet, nul bytea);
         INSERT INTO t VALUES (1, 123456789012345678901234567890.123456789, '2024-05-06 07:08:09.123+02', '2024-05-06 \
         07:08:09', '2024-05-06',
                         '{{\"a\": 1.50}}', '{{\"b\": [null, true]}}', '{UUID}', '\\x{}', '\\xff', '{{a,NULL,\"c \
                         d\"}}', 'happy', 1.5, 'NaN', true, '1 day', '10.0.0.1', NULL)",
        "ab".repeat(100)
    ));
    let backend = open(&config(&database.url(), "SELECT * FROM t WHERE id = $1"), KeyForm::Integer);
    let body = text(&backend, KeyForm::Integer, "1").await;
    assert!(body.contains(r#""amount":123456789012345678901234567890.123456789,"#), "{body}");
    assert!(body.starts_with(r#"{"id":1,"amount":"#), "{body}");
    let row: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(row["at"], "2024-05-06T05:08:09.123+00:00");
    assert_eq!(row["naive"], "2024-05-06T07:08:09");
    assert_eq!(row["day"], "2024-05-06");
    assert_eq!(row["doc"], json!({"a": 1.5}));
    assert_eq!(row["bin"], json!({"b": [null, true]}));
    assert_eq!(row["u"], UUID);
    assert_eq!(row["b"], "q6ur".repeat(33) + "qw==");
    assert_eq!(row["p"], "/w==");
    assert_eq!(row["tags"], json!(["a", null, "c d"]));
    assert_eq!(
        (&row["m"], &row["f"], &row["d"], &row["yes"]),
        (&json!("happy"), &json!(1.5), &json!("NaN"), &json!(true))
    );
    assert_eq!((&row["i"], &row["ip"], &row["nul"]), (&json!("1 day"), &json!("10.0.0.1"), &json!(null)));
}

#[tokio::test]
async fn enum_and_domain_and_padded_columns_take_keys() {
    let database = Database::create();
    database.psql(
        "CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE DOMAIN code AS varchar(10);
         CREATE TABLE t (m mood, c code, p char(8), n name); INSERT INTO t VALUES ('happy', 'x1', 'pad', 'nm')",
    );
    for (column, stored) in [("m", "happy"), ("c", "x1"), ("p", "pad"), ("n", "nm")] {
        let backend =
            open(&config(&database.url(), &format!("SELECT 1 AS one FROM t WHERE {column} = $1")), KeyForm::Text);
        assert_eq!(row(&backend, KeyForm::Text, stored).await, json!({"one": 1}), "{column}");
    }
}

#[tokio::test]
async fn key_that_its_parameter_can_not_hold_is_invalid() {
    let database = Database::create();
    database.psql("CREATE TABLE t (id bigint, u uuid, at timestamptz)");
    for (condition, expected) in [
        ("id = $1", "the key can't be a value of type INT8, which the query's parameter has"),
        ("u = $1", "the key can't be a value of type UUID, which the query's parameter has"),
        (
            "at = $1",
            "the query can't be used: its parameter is of type TIMESTAMPTZ, which can't take a key: write $1::text \
                and cast that further",
        ),
    ] {
        let backend = open(&config(&database.url(), &format!("SELECT id FROM t WHERE {condition}")), KeyForm::Text);
        let Err(BackendError::Invalid(message)) = fetch(&backend, "abc").await else { panic!("not refused") };
        assert_eq!(message, expected);
    }
}

#[tokio::test]
async fn slow_query_times_out_here_and_at_the_server() {
    let database = Database::create();
    let mut config = config(&database.url(), "SELECT pg_sleep(3600) FROM (SELECT $1::text) t");
    config.timeout = Duration::from_millis(500);
    let backend = open(&config, KeyForm::Text);
    let started = Instant::now();
    let error = fetch(&backend, "x").await.unwrap_err();
    assert!(matches!(error, BackendError::Timeout(limit) if limit == config.timeout), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60));
    eventually("the server has stopped it", || {
        database.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> \
                pg_backend_pid()",
        ) == "0"
    })
    .await;
}

#[tokio::test]
async fn timed_out_lookups_leave_the_pool_usable() {
    let database = Database::create();
    database.psql("CREATE TABLE t (id int, n int); INSERT INTO t VALUES (0, 0), (1, 1)");
    let mut config = config(
        &database.url(),
        "SELECT n, pg_sleep(CASE WHEN n = 0 THEN 3600 ELSE 0 END)::text AS slept FROM t WHERE id = $1",
    );
    config.timeout = Duration::from_secs(1);
    config.max_concurrency = 2;
    let backend = open(&config, KeyForm::Integer);
    for _ in 0..3 {
        let error = backend.fetch(&key(KeyForm::Integer, "0"), &FetchContext::default()).await.unwrap_err();
        assert!(matches!(error, BackendError::Timeout(_)), "{error}");
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while backend.fetch(&key(KeyForm::Integer, "1"), &FetchContext::default()).await.is_err() {
        assert!(Instant::now() < deadline, "no connection came back");
    }
}

#[tokio::test]
async fn index_of_the_key_column_is_used() {
    let database = Database::create();
    database.psql(
        "CREATE TABLE t (id int PRIMARY KEY, code varchar(20) UNIQUE, u uuid UNIQUE DEFAULT gen_random_uuid());
         INSERT INTO t SELECT i, 'c' || i FROM generate_series(1, 20000) i; ANALYZE t",
    );
    let uuid = database.psql("SELECT u FROM t WHERE id = 7");
    // From here on each read of the table without an index is ours.
    let scans =
        || database.psql("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 't'").parse::<i64>().unwrap();
    let before = scans();
    for (column, form, raw) in
        [("id", KeyForm::Integer, "7"), ("code", KeyForm::Text, "c7"), ("u", KeyForm::Uuid, uuid.as_str())]
    {
        let backend = open(&config(&database.url(), &format!("SELECT id FROM t WHERE {column} = $1")), form);
        // Often enough for the server to try a generic plan.
        for _ in 0..10 {
            assert_eq!(row(&backend, form, raw).await, json!({"id": 7}), "{column}");
        }
        assert_eq!(
            backend.fetch(&key(KeyForm::Integer, "18446744073709551615"), &FetchContext::default()).await.is_ok(),
            column != "u"
        );
    }
    // Sessions hand in their counts when they end.
    database.terminate_sessions();
    eventually("lookups are counted", || {
        database.psql("SELECT idx_scan >= 30 FROM pg_stat_user_tables WHERE relname = 't'") == "t"
    })
    .await;
    assert_eq!(scans(), before);
}

#[tokio::test]
async fn statement_cache_of_zero_leaves_no_prepared_statement() {
    let database = Database::create();
    let query = "SELECT count(*) AS prepared FROM pg_prepared_statements WHERE $1::text <> ''";
    let mut config = config(&database.url(), query);
    config.statement_cache = 0;
    let without = open(&config, KeyForm::Text);
    for _ in 0..3 {
        assert_eq!(row(&without, KeyForm::Text, "x").await, json!({"prepared": 0}));
    }
    config.statement_cache = 100;
    let with = open(&config, KeyForm::Text);
    assert_eq!(row(&with, KeyForm::Text, "x").await, json!({"prepared": 1}));
}

#[tokio::test]
async fn ended_sessions_cost_no_lookup() {
    let database = Database::create();
    database.psql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let backend = open(&config(&database.url(), "SELECT id FROM t WHERE id = $1"), KeyForm::Integer);
    for _ in 0..3 {
        assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1}));
        assert!(database.terminate_sessions() > 0);
    }
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_server_is_found_again() {
    let mut server = Postgres::start();
    server.psql("postgres", "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let backend = open(&config(&server.url("postgres"), "SELECT id FROM t WHERE id = $1"), KeyForm::Integer);
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1}));
    server.stop();
    for _ in 0..3 {
        let error = backend.fetch(&key(KeyForm::Integer, "1"), &FetchContext::default()).await.unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)), "{error}");
    }
    server.start_again();
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1}));
}

#[tokio::test]
async fn refused_password_is_unavailable_and_not_shown() {
    let database = Database::create();
    database.psql("CREATE ROLE nobody_here NOLOGIN");
    let url = database.url().replace("postgres@", "nobody_here:hunter2@");
    let backend = open(&config(&url, "SELECT 1 AS one WHERE $1::text <> ''"), KeyForm::Text);
    let error = fetch(&backend, "x").await.unwrap_err();
    assert!(matches!(error, BackendError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("SQL state 28000") && !error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn password_is_no_part_of_the_fingerprint() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guard = runtime.enter();
    let fingerprint = |password: &str| {
        open(
            &config(&format!("postgres://u:{password}@127.0.0.1:1/d"), "SELECT 1 AS a WHERE $1::int = 1"),
            KeyForm::Integer,
        )
        .fingerprint()
    };
    assert_eq!(fingerprint("one"), fingerprint("two"));
}

#[tokio::test]
async fn minimum_of_connections_is_open_before_the_first_lookup() {
    let database = Database::create();
    let mut config = config(&database.url(), "SELECT 1 AS one WHERE $1::text <> ''");
    config.min_connections = 3;
    let _backend = open(&config, KeyForm::Text);
    eventually("three connections are open", || {
        database.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name \
            = 'bloomguard'",
        ) == "3"
    })
    .await;
}

#[tokio::test]
async fn handshake_slower_than_a_lookup_serves_the_next_one() {
    let database = Database::create();
    let (address, accepted) = slow_proxy(database.address(), Duration::from_millis(600)).await;
    let mut config =
        config(&database.url().replace(&database.address(), &address), "SELECT 1 AS one WHERE $1::text <> ''");
    config.timeout = Duration::from_millis(200);
    config.min_connections = 0;
    config.max_concurrency = 1;
    let backend = open(&config, KeyForm::Text);
    let error = fetch(&backend, "x").await.unwrap_err();
    assert!(matches!(error, BackendError::Timeout(_)), "{error}");
    let deadline = Instant::now() + Duration::from_secs(120);
    while fetch(&backend, "x").await.is_err() {
        assert!(Instant::now() < deadline, "no lookup ever got its connection");
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}

/// Forwards connections, each after a delay. Where it listens, and how many it took.
async fn slow_proxy(to: String, delay: Duration) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let to = to.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let mut server = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, accepted)
}
