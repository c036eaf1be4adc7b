//! What every SQL backend does, and what only PostgreSQL can be asked.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bloomguard::backend::{Backend, BackendError, ContentType, SqlBackend, Value};
use bloomguard::config::{BackendConfig, SecretUrl};
use bloomguard::key::{Key, KeyForm};
use serde_json::json;

use crate::support::database::Site;
use crate::support::postgres::{Database, Postgres};

const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

macro_rules! on_every_backend {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            use crate::support::database::Site;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(Site::sqlite()).await; })+
        }
        mod postgres {
            use crate::support::database::Site;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name(Site::postgres()).await; })+
        }
    };
}

on_every_backend!(
    integer_keys_bind_without_a_cast,
    text_keys_bind_without_a_cast,
    uuid_keys_bind_without_a_cast,
    bytes_keys_bind_without_a_cast,
    keys_of_an_integer_keyspace_bind_to_a_text_column,
    integer_beyond_every_column_is_absent,
    absent_row_is_none,
    columns_become_members_in_their_order,
    only_column_named_value_is_sent_as_it_is,
    first_of_several_rows_is_taken,
    wrong_table_is_invalid_and_says_why,
    two_columns_of_one_name_are_refused,
    query_without_exactly_one_parameter_is_refused,
    sql_in_a_key_is_only_a_key,
    trailing_semicolon_and_comments_do_no_harm,
    query_with_order_and_limit_and_with_is_taken,
    changed_table_is_noticed,
    unreachable_database_is_unavailable_and_not_an_absence,
    statement_cache_of_zero_works,
    fingerprint_tells_queries_apart,
    concurrent_lookups_share_few_connections,
);

fn config(url: &str, query: &str) -> BackendConfig {
    // Long, so that a busy machine fails no test that isn't about time.
    BackendConfig { url: SecretUrl::new(url.to_owned()), query: query.to_owned(), timeout: Duration::from_secs(20), ..Default::default() }
}

fn open(config: &BackendConfig, form: KeyForm) -> SqlBackend {
    SqlBackend::new(config, Arc::new(OnceLock::from(form))).unwrap()
}

fn backend(site: &Site, form: KeyForm, query: &str) -> SqlBackend {
    open(&config(&site.url(), query), form)
}

fn key(form: KeyForm, key: &str) -> Key {
    form.canonical(key.as_bytes()).unwrap()
}

async fn row(backend: &SqlBackend, form: KeyForm, raw: &str) -> serde_json::Value {
    let value = backend.fetch(&key(form, raw)).await.unwrap().expect("a row");
    assert_eq!(value.content_type, ContentType::Json);
    serde_json::from_slice(&value.body).unwrap()
}

/// As sent: for what a JSON parser would hide.
async fn text(backend: &SqlBackend, form: KeyForm, raw: &str) -> String {
    let value = backend.fetch(&key(form, raw)).await.unwrap().expect("a row");
    String::from_utf8(value.body.to_vec()).unwrap()
}

async fn fetch(backend: &SqlBackend, raw: &str) -> Result<Option<Value>, BackendError> {
    backend.fetch(&key(KeyForm::Text, raw)).await
}

async fn integer_keys_bind_without_a_cast(site: Site) {
    for kind in ["SMALLINT", "INTEGER", "BIGINT", "NUMERIC"] {
        site.run(&format!("CREATE TABLE t_{kind} (id {kind} PRIMARY KEY, name TEXT); INSERT INTO t_{kind} VALUES (42, 'Ada'), (-7, 'Bo')"))
            .await;
        let backend = backend(&site, KeyForm::Integer, &format!("SELECT name FROM t_{kind} WHERE id = $1"));
        assert_eq!(row(&backend, KeyForm::Integer, "042").await, json!({"name": "Ada"}), "{kind}");
        assert_eq!(row(&backend, KeyForm::Integer, "-7").await, json!({"name": "Bo"}), "{kind}");
        // Beyond int2 and int4, where the column is one.
        assert_eq!(backend.fetch(&key(KeyForm::Integer, "5000000000")).await.unwrap(), None, "{kind}");
    }
}

async fn text_keys_bind_without_a_cast(site: Site) {
    for kind in ["TEXT", "VARCHAR(40)"] {
        site.run(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (id {kind} PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ('straße/é', 1), ('042', 2)"
        ))
        .await;
        let backend = backend(&site, KeyForm::Text, "SELECT n FROM t WHERE id = $1");
        assert_eq!(row(&backend, KeyForm::Text, "straße/é").await, json!({"n": 1}));
        assert_eq!(row(&backend, KeyForm::Text, "042").await, json!({"n": 2}));
        assert_eq!(fetch(&backend, "42").await.unwrap(), None);
    }
}

async fn uuid_keys_bind_without_a_cast(site: Site) {
    site.run(&format!("CREATE TABLE t (id UUID PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ('{UUID}', 1)")).await;
    let backend = backend(&site, KeyForm::Uuid, "SELECT id, n FROM t WHERE id = $1");
    assert_eq!(row(&backend, KeyForm::Uuid, &format!("{{{}}}", UUID.to_uppercase())).await, json!({"id": UUID, "n": 1}));
    assert_eq!(backend.fetch(&key(KeyForm::Uuid, "00000000-0000-0000-0000-000000000000")).await.unwrap(), None);
}

async fn bytes_keys_bind_without_a_cast(site: Site) {
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!("CREATE TABLE t (id {kind} PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ({literal}, 1)")).await;
    let backend = backend(&site, KeyForm::Bytes, "SELECT id, n FROM t WHERE id = $1");
    let value = backend.fetch(&KeyForm::Bytes.canonical(b"\x00\xff").unwrap()).await.unwrap().unwrap();
    assert_eq!(value.body, r#"{"id":"AP8=","n":1}"#);
}

async fn keys_of_an_integer_keyspace_bind_to_a_text_column(site: Site) {
    site.run("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ('42', 1)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1");
    assert_eq!(row(&backend, KeyForm::Integer, "42").await, json!({"n": 1}));
}

async fn integer_beyond_every_column_is_absent(site: Site) {
    site.run("CREATE TABLE t (id BIGINT PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (9223372036854775807, 1)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1");
    assert_eq!(row(&backend, KeyForm::Integer, "9223372036854775807").await, json!({"n": 1}));
    for beyond in ["9223372036854775808", "18446744073709551615"] {
        assert_eq!(backend.fetch(&key(KeyForm::Integer, beyond)).await.unwrap(), None);
    }
}

async fn absent_row_is_none(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1");
    assert_eq!(backend.fetch(&key(KeyForm::Integer, "1")).await.unwrap(), None);
}

async fn columns_become_members_in_their_order(site: Site) {
    site.run(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, \"z \"\"q\"\"\" TEXT, big BIGINT, yes BOOLEAN, no BOOLEAN, price DECIMAL(10, 2), half DOUBLE PRECISION, nil TEXT, doc JSON);
         INSERT INTO t VALUES (1, 'a \"quoted\" \\ line\nélan', 9007199254740993, true, false, 12.5, 0.1, NULL, '{\"a\": [1.50, null]}')",
    )
    .await;
    let backend = backend(&site, KeyForm::Integer, "SELECT * FROM t WHERE id = $1");
    let price = if site.is_postgres() { "12.50" } else { "12.5" };
    assert_eq!(
        text(&backend, KeyForm::Integer, "1").await,
        format!(
            r#"{{"id":1,"z \"q\"":"a \"quoted\" \\ line\nélan","big":9007199254740993,"yes":true,"no":false,"price":{price},"half":0.1,"nil":null,"doc":{{"a": [1.50, null]}}}}"#
        )
    );
}

async fn only_column_named_value_is_sent_as_it_is(site: Site) {
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, t TEXT, n BIGINT, b {kind}, doc JSON);
         INSERT INTO t VALUES (1, 'plain \"text\"', 9007199254740993, {literal}, '{{\"a\": 1}}'), (2, NULL, NULL, NULL, NULL), (3, '', 0, {literal}, '[]')"
    ))
    .await;
    let expected: [(&str, &[u8]); 4] = [("t", b"plain \"text\""), ("n", b"9007199254740993"), ("b", b"\x00\xff"), ("doc", b"{\"a\": 1}")];
    for (column, bytes) in expected {
        let backend = backend(&site, KeyForm::Integer, &format!("SELECT {column} AS value FROM t WHERE id = $1"));
        let fetched = |raw| {
            let key = key(KeyForm::Integer, raw);
            let backend = &backend;
            async move { backend.fetch(&key).await.unwrap() }
        };
        assert_eq!(fetched("1").await, Some(Value { body: bytes.to_vec().into(), content_type: ContentType::OctetStream }), "{column}");
        // The row exists: an empty value is not an absence.
        assert_eq!(fetched("2").await.unwrap().body, "", "{column}");
        assert_eq!(fetched("4").await, None, "{column}");
    }
}

async fn first_of_several_rows_is_taken(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, n INTEGER); INSERT INTO t VALUES (1, 10), (1, 30), (1, 20)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1 ORDER BY n DESC");
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"n": 30}));
}

async fn wrong_table_is_invalid_and_says_why(site: Site) {
    let backend = backend(&site, KeyForm::Text, "SELECT name FROM userz WHERE id = $1");
    let Err(BackendError::Invalid(message)) = fetch(&backend, "1").await else { panic!("not refused") };
    let expected =
        if site.is_postgres() { "SQL state 42P01: relation \"userz\" does not exist" } else { "SQLite error 1: no such table: userz" };
    assert_eq!(message, expected);
    // It is asked anew each time: a table made later is found.
    site.run("CREATE TABLE userz (id TEXT, name TEXT); INSERT INTO userz VALUES ('1', 'Ada')").await;
    assert_eq!(row(&backend, KeyForm::Text, "1").await, json!({"name": "Ada"}));
}

async fn two_columns_of_one_name_are_refused(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, n INTEGER)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT a.n, b.n FROM t a JOIN t b ON a.id = b.id WHERE a.id = $1");
    let Err(BackendError::Invalid(message)) = backend.fetch(&key(KeyForm::Integer, "1")).await else { panic!("not refused") };
    assert!(message.contains("two columns named \"n\""), "{message}");
}

async fn query_without_exactly_one_parameter_is_refused(site: Site) {
    site.run("CREATE TABLE t (id TEXT, n INTEGER)").await;
    for query in ["SELECT n FROM t", "SELECT n FROM t WHERE id = $1 AND n = $2", "SELECT n FROM t WHERE id = $2"] {
        let refused = match SqlBackend::new(&config(&site.url(), query), Arc::new(OnceLock::from(KeyForm::Text))) {
            Ok(backend) => fetch(&backend, "1").await.unwrap_err(),
            Err(error) => error,
        };
        let BackendError::Invalid(message) = refused else { panic!("{refused}") };
        assert!(message.starts_with("the query can't be used: ") || message.contains("could not determine data type"), "{message}");
    }
}

async fn sql_in_a_key_is_only_a_key(site: Site) {
    let hostile = ["1; DROP TABLE t", "' OR '1'='1", "\"; --", "$1", "?", "%", "\\", "../../admin"];
    site.run("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ('1', 1)").await;
    let backend = backend(&site, KeyForm::Text, "SELECT n FROM t WHERE id = $1");
    for key in hostile {
        assert_eq!(fetch(&backend, key).await.unwrap(), None, "{key}");
    }
    for key in hostile {
        site.run(&format!("INSERT INTO t VALUES ('{}', 2)", key.replace('\'', "''"))).await;
        assert_eq!(row(&backend, KeyForm::Text, key).await, json!({"n": 2}), "{key}");
    }
    assert_eq!(row(&backend, KeyForm::Text, "1").await, json!({"n": 1}));
}

async fn trailing_semicolon_and_comments_do_no_harm(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1)").await;
    for tail in [";", " -- the row", "; -- the row\n;", " /* ; */"] {
        let backend = backend(&site, KeyForm::Integer, &format!("-- by id\nSELECT n FROM t WHERE id = $1{tail}"));
        assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"n": 1}), "{tail}");
    }
}

async fn query_with_order_and_limit_and_with_is_taken(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, n INTEGER); INSERT INTO t VALUES (1, 1), (1, 2)").await;
    let query = "WITH latest AS (SELECT id, n FROM t) SELECT max(n) AS most, count(*) AS \"all\" FROM latest WHERE id = $1 GROUP BY id ORDER BY 1 LIMIT 1";
    let backend = backend(&site, KeyForm::Integer, query);
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"most": 2, "all": 2}));
}

async fn changed_table_is_noticed(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x')").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT * FROM t WHERE id = $1");
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1, "a": "x"}));
    site.run("ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'y'").await;
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1, "a": "x", "b": "y"}));
    site.run("ALTER TABLE t DROP COLUMN a").await;
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1, "b": "y"}));
    site.run("DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY, c TEXT); INSERT INTO t VALUES ('1', 'z')").await;
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": "1", "c": "z"}));
}

async fn unreachable_database_is_unavailable_and_not_an_absence(site: Site) {
    let started = Instant::now();
    let backend = open(&config(&site.unreachable_url(), "SELECT n FROM t WHERE id = $1"), KeyForm::Integer);
    for _ in 0..3 {
        let error = backend.fetch(&key(KeyForm::Integer, "1")).await.unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert!(started.elapsed() < Duration::from_secs(5), "a refusal is an answer at once");
    assert!(!site.unreachable_exists(), "nothing was created");
}

async fn statement_cache_of_zero_works(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1)").await;
    let mut config = config(&site.url(), "SELECT n FROM t WHERE id = $1");
    config.statement_cache = 0;
    let backend = open(&config, KeyForm::Integer);
    for _ in 0..3 {
        assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"n": 1}));
        assert_eq!(backend.fetch(&key(KeyForm::Integer, "2")).await.unwrap(), None);
    }
}

async fn fingerprint_tells_queries_apart(site: Site) {
    let fingerprint = |query| backend(&site, KeyForm::Text, query).fingerprint();
    assert_eq!(fingerprint("SELECT a FROM t WHERE id = $1"), fingerprint("SELECT a FROM t WHERE id = $1"));
    assert_ne!(fingerprint("SELECT a FROM t WHERE id = $1"), fingerprint("SELECT b FROM t WHERE id = $1"));
}

async fn concurrent_lookups_share_few_connections(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1)").await;
    let mut config = config(&site.url(), "SELECT n FROM t WHERE id = $1");
    config.max_concurrency = 2;
    let backend = Arc::new(open(&config, KeyForm::Integer));
    let lookups: Vec<_> = (0..40)
        .map(|i| {
            let backend = Arc::clone(&backend);
            tokio::spawn(async move { backend.fetch(&key(KeyForm::Integer, if i % 2 == 0 { "1" } else { "2" })).await.unwrap().is_some() })
        })
        .collect();
    for (i, lookup) in lookups.into_iter().enumerate() {
        assert_eq!(lookup.await.unwrap(), i % 2 == 0);
    }
    if let Some(database) = site.database() {
        let open: usize = database
            .psql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'bloomguard'")
            .parse()
            .unwrap();
        assert!((1..=2).contains(&open), "{open} connections");
    }
}

#[tokio::test]
async fn every_type_of_postgresql_is_rendered_exactly() {
    let database = Database::create();
    database.psql(&format!(
        "CREATE TYPE mood AS ENUM ('happy', 'sad');
         CREATE DOMAIN photo AS bytea;
         CREATE TABLE t (id int PRIMARY KEY, amount numeric, at timestamptz, naive timestamp, day date, doc json, bin jsonb, u uuid, b bytea, p photo,
                         tags text[], m mood, f real, d double precision, yes bool, i interval, ip inet, nul bytea);
         INSERT INTO t VALUES (1, 123456789012345678901234567890.123456789, '2024-05-06 07:08:09.123+02', '2024-05-06 07:08:09', '2024-05-06',
                         '{{\"a\": 1.50}}', '{{\"b\": [null, true]}}', '{UUID}', '\\x{}', '\\xff', '{{a,NULL,\"c d\"}}', 'happy', 1.5, 'NaN', true, '1 day', '10.0.0.1', NULL)",
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
    assert_eq!((&row["m"], &row["f"], &row["d"], &row["yes"]), (&json!("happy"), &json!(1.5), &json!("NaN"), &json!(true)));
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
        let backend = open(&config(&database.url(), &format!("SELECT 1 AS one FROM t WHERE {column} = $1")), KeyForm::Text);
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
            "the query can't be used: its parameter is of type TIMESTAMPTZ, which can't take a key: write $1::text and cast that further",
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
    assert!(started.elapsed() < Duration::from_secs(10));
    until("the server has stopped it", || {
        database.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()",
        ) == "0"
    })
    .await;
}

#[tokio::test]
async fn timed_out_lookups_leave_the_pool_usable() {
    let database = Database::create();
    database.psql("CREATE TABLE t (id int, n int); INSERT INTO t VALUES (0, 0), (1, 1)");
    let mut config =
        config(&database.url(), "SELECT n, pg_sleep(CASE WHEN n = 0 THEN 3600 ELSE 0 END)::text AS slept FROM t WHERE id = $1");
    config.timeout = Duration::from_secs(1);
    config.max_concurrency = 2;
    let backend = open(&config, KeyForm::Integer);
    for _ in 0..3 {
        let error = backend.fetch(&key(KeyForm::Integer, "0")).await.unwrap_err();
        assert!(matches!(error, BackendError::Timeout(_)), "{error}");
    }
    let deadline = Instant::now() + Duration::from_secs(30);
    while backend.fetch(&key(KeyForm::Integer, "1")).await.is_err() {
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
    // Whatever reads the table without an index from here on is ours.
    let scans = || database.psql("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 't'").parse::<i64>().unwrap();
    let before = scans();
    for (column, form, raw) in [("id", KeyForm::Integer, "7"), ("code", KeyForm::Text, "c7"), ("u", KeyForm::Uuid, uuid.as_str())] {
        let backend = open(&config(&database.url(), &format!("SELECT id FROM t WHERE {column} = $1")), form);
        // Often enough for the server to try a generic plan.
        for _ in 0..10 {
            assert_eq!(row(&backend, form, raw).await, json!({"id": 7}), "{column}");
        }
        assert_eq!(backend.fetch(&key(KeyForm::Integer, "18446744073709551615")).await.is_ok(), column != "u");
    }
    // Sessions hand in their counts when they end.
    database.terminate_sessions();
    until("lookups are counted", || database.psql("SELECT idx_scan >= 30 FROM pg_stat_user_tables WHERE relname = 't'") == "t").await;
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
        let error = backend.fetch(&key(KeyForm::Integer, "1")).await.unwrap_err();
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
        open(&config(&format!("postgres://u:{password}@127.0.0.1:1/d"), "SELECT 1 AS a WHERE $1::int = 1"), KeyForm::Integer).fingerprint()
    };
    assert_eq!(fingerprint("one"), fingerprint("two"));
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
