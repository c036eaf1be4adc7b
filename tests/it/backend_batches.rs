//! Many keys at once: the same answers as for each alone, and where the database can, by one statement.

use std::sync::Arc;
use std::time::Duration;

use bloomguard::backend::{Backend, BackendError, ContentType, FetchContext, SqlBackend, Value};
use bloomguard::key::{Key, KeyForm};

use crate::backend_contract::{UUID, backend, config, key, on_every_backend, open};
use crate::support::app::TestApp;
use crate::support::database::Site;
use crate::support::eventually;
use crate::support::postgres::{Database, Postgres};

on_every_backend!(
    many_keys_are_answered_as_each_alone,
    keys_of_every_form_are_found_together,
    raw_values_are_the_same_together,
    first_of_several_rows_is_taken_for_each_key,
    a_key_that_fails_the_statement_fails_alone,
    a_changed_table_is_noticed_by_batches_as_well,
    batches_need_no_kept_statement,
    ended_sessions_cost_no_batch,
);

type Answer = Result<Option<Value>, BackendError>;

fn keys(form: KeyForm, raw: &[&str]) -> Vec<Key> {
    raw.iter().map(|raw| key(form, raw)).collect()
}

/// Errors by their words: they are no values to compare.
fn told(answer: &Answer) -> String {
    match answer {
        Ok(Some(value)) if value.content_type == ContentType::Json => std::str::from_utf8(&value.body).unwrap().to_owned(),
        Ok(Some(value)) => format!("{:?} {:?}", value.content_type, value.body),
        Ok(None) => "absent".into(),
        Err(error) => format!("{error}"),
    }
}

/// What each key gets in a batch, after a check that it gets the same alone.
async fn together(backend: &SqlBackend, form: KeyForm, raw: &[&str]) -> Vec<String> {
    let keys = keys(form, raw);
    let many: Vec<String> = backend.fetch_many(&keys, &FetchContext::default()).await.iter().map(told).collect();
    for ((key, raw), many) in keys.iter().zip(raw).zip(&many) {
        assert_eq!(*many, told(&backend.fetch(key, &FetchContext::default()).await), "{raw}");
    }
    assert_eq!(many.len(), keys.len());
    many
}

async fn many_keys_are_answered_as_each_alone(site: Site) {
    site.run("CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER, nil TEXT); INSERT INTO t VALUES ('a', 1, NULL), ('é/''\"', 2, NULL), ('{\"x\",NULL}', 3, '')")
        .await;
    let backend = backend(&site, KeyForm::Text, "SELECT n, nil FROM t WHERE id = $1 -- by $1");
    let hostile = ["a", "b", "é/'\"", "{\"x\",NULL}", "a", "'); DROP TABLE t; --", "NULL", "$1", "?", "{}", "\\", ","];
    let told = together(&backend, KeyForm::Text, &hostile).await;
    let (one, two, three) = (r#"{"n":1,"nil":null}"#, r#"{"n":2,"nil":null}"#, r#"{"n":3,"nil":""}"#);
    assert_eq!(told[..5], [one, "absent", two, three, one]);
    assert!(told[5..].iter().all(|told| told == "absent"), "{told:?}");
    assert!(backend.fetch_many(&[], &FetchContext::default()).await.is_empty());
}

async fn keys_of_every_form_are_found_together(site: Site) {
    for (kind, form, present, absent) in [
        ("SMALLINT", KeyForm::Integer, ["7", "-7"], ["8", "5000000000", "18446744073709551615"]),
        ("BIGINT", KeyForm::Integer, ["9223372036854775807", "-1"], ["8", "9223372036854775808", "0"]),
        ("NUMERIC", KeyForm::Integer, ["7", "-7"], ["8", "5000000000", "18446744073709551615"]),
        ("VARCHAR(40)", KeyForm::Text, ["straße", "042"], ["42", "Straße", "042 "]),
        ("VARCHAR(40)", KeyForm::Integer, ["42", "7"], ["8", "420", "-42"]),
        (
            "UUID",
            KeyForm::Uuid,
            [UUID, "67e55044-10b1-426f-9247-000000000000"],
            ["00000000-0000-0000-0000-000000000000", "67e55044-10b1-426f-9247-000000000001", "67e55044-10b1-426f-9247-000000000002"],
        ),
    ] {
        let [first, second] = present;
        site.run(&format!("DROP TABLE IF EXISTS t; CREATE TABLE t (id {kind} PRIMARY KEY, n INTEGER); INSERT INTO t VALUES ('{first}', 1), ('{second}', 2)"))
            .await;
        let backend = backend(&site, form, "SELECT n FROM t WHERE id = $1");
        let told = together(&backend, form, &[first, absent[0], second, absent[1], first, absent[2]]).await;
        let (one, two, none) = (r#"{"n":1}"#, r#"{"n":2}"#, "absent");
        assert_eq!(told, [one, none, two, none, one, none], "{kind} {form}");
    }
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!("CREATE TABLE b (id {kind} PRIMARY KEY, n INTEGER); INSERT INTO b VALUES ({literal}, 1)")).await;
    let backend = backend(&site, KeyForm::Bytes, "SELECT id, n FROM b WHERE id = $1");
    let keys = [&b"\x00\xff"[..], b"\x00", b"\x00\xff"].map(|raw| KeyForm::Bytes.canonical(raw).unwrap());
    let many: Vec<String> = backend.fetch_many(&keys, &FetchContext::default()).await.iter().map(told).collect();
    assert_eq!(many, [r#"{"id":"AP8=","n":1}"#, "absent", r#"{"id":"AP8=","n":1}"#]);
}

async fn raw_values_are_the_same_together(site: Site) {
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, t TEXT, b {kind}); INSERT INTO t VALUES (1, 'plain', {literal}), (2, NULL, NULL)"
    ))
    .await;
    for (column, body) in [("t", "b\"plain\""), ("b", "b\"\\0\\xff\"")] {
        let backend = backend(&site, KeyForm::Integer, &format!("SELECT {column} AS value FROM t WHERE id = $1"));
        let told = together(&backend, KeyForm::Integer, &["1", "2", "3", "1"]).await;
        let found = format!("OctetStream {body}");
        assert_eq!(told, [found.as_str(), "OctetStream b\"\"", "absent", found.as_str()]);
    }
}

async fn first_of_several_rows_is_taken_for_each_key(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, n INTEGER); INSERT INTO t VALUES (1, 10), (1, 30), (1, 20), (2, 5), (2, 7)").await;
    for (query, expected) in [
        ("SELECT n FROM t WHERE id = $1 ORDER BY n DESC", ["30", "7"]),
        ("SELECT n FROM t WHERE id = $1 ORDER BY n LIMIT 1", ["10", "5"]),
        ("WITH l AS (SELECT id, n FROM t) SELECT max(n) AS n FROM l WHERE id = $1 GROUP BY id ORDER BY 1 LIMIT 1", ["30", "7"]),
    ] {
        let told = together(&backend(&site, KeyForm::Integer, query), KeyForm::Integer, &["2", "3", "1"]).await;
        let row = |n: &str| format!("{{\"n\":{n}}}");
        assert_eq!(told, [row(expected[1]), "absent".into(), row(expected[0])], "{query}");
    }
}

async fn a_key_that_fails_the_statement_fails_alone(site: Site) {
    site.run("CREATE TABLE t (id TEXT PRIMARY KEY, n BIGINT); INSERT INTO t VALUES ('a', 1), ('b', 2), ('bad', 3)").await;
    // A sum beyond 64 bits fails on each of them.
    let query = "SELECT n, 9223372036854775807 + (CASE WHEN id = 'bad' THEN 1 ELSE 0 END) AS sum FROM t WHERE id = $1";
    let query = if site.is_sqlite() {
        query.replace("9223372036854775807 +", "abs(-9223372036854775807 -").replace("END)", "END))")
    } else {
        query.into()
    };
    let backend = backend(&site, KeyForm::Text, &query);
    let told = together(&backend, KeyForm::Text, &["a", "bad", "none", "b", "bad", "a"]).await;
    for (index, row) in told.iter().enumerate() {
        let expected = match index {
            1 | 4 => row.starts_with("the backend's answer can't be used: SQL"),
            2 => row == "absent",
            _ => row.contains("9223372036854775807"),
        };
        assert!(expected, "{index}: {row}");
    }
}

async fn a_changed_table_is_noticed_by_batches_as_well(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y')").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT * FROM t WHERE id = $1");
    assert_eq!(together(&backend, KeyForm::Integer, &["1", "2"]).await[0], r#"{"id":1,"a":"x"}"#);
    site.run("ALTER TABLE t ADD COLUMN b TEXT DEFAULT 'z'").await;
    assert_eq!(together(&backend, KeyForm::Integer, &["1", "2"]).await[1], r#"{"id":2,"a":"y","b":"z"}"#);
    site.run("DROP TABLE t; CREATE TABLE t (id TEXT PRIMARY KEY, c TEXT); INSERT INTO t VALUES ('1', 'z')").await;
    let expected = [r#"{"id":"1","c":"z"}"#, "absent"];
    let many = backend.fetch_many(&keys(KeyForm::Integer, &["1", "2"]), &FetchContext::default()).await;
    assert_eq!(many.iter().map(told).collect::<Vec<_>>(), expected);
}

async fn batches_need_no_kept_statement(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1), (2, 2)").await;
    let mut config = config(&site.url(), &site.query("SELECT n FROM t WHERE id = $1"));
    config.statement_cache = 0;
    let backend = open(&config, KeyForm::Integer);
    for _ in 0..3 {
        let told = together(&backend, KeyForm::Integer, &["1", "3", "2"]).await;
        assert_eq!(told, [r#"{"n":1}"#, "absent", r#"{"n":2}"#]);
    }
}

async fn ended_sessions_cost_no_batch(site: Site) {
    site.run("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER); INSERT INTO t VALUES (1, 1), (2, 2)").await;
    let backend = backend(&site, KeyForm::Integer, "SELECT n FROM t WHERE id = $1");
    for _ in 0..3 {
        let many = backend.fetch_many(&keys(KeyForm::Integer, &["1", "3", "2"]), &FetchContext::default()).await;
        let expected = [r#"{"n":1}"#, "absent", r#"{"n":2}"#];
        assert_eq!(many.iter().map(told).collect::<Vec<_>>(), expected);
        site.end_sessions();
    }
}

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
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%name FROM users WHERE%' AND query NOT LIKE '%pg_stat_statements%' AND query {many} LIKE '%unnest%'"
        );
        server.psql("postgres", &sql).parse().unwrap()
    };
    (count(""), count("NOT"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_lookup_costs_postgresql_one_statement_a_chunk() {
    let server = counting();
    server.psql(
        "postgres",
        "CREATE TABLE users (id bigint PRIMARY KEY, name text); INSERT INTO users SELECT i, 'User ' || i FROM generate_series(1, 1000) i",
    );
    let app = TestApp::enforcing(&format!(
        r#"
[keyspaces.users]
freshness = "static"
deadline = "20s"
[keyspaces.users.backend]
url = "{}"
query = "SELECT id, name FROM users WHERE id = $1"
timeout = "20s"
[keyspaces.users.source]
query = "SELECT id FROM users"
"#,
        server.url("postgres")
    ))
    .await;
    let url = app.url("/v1/lookup/users");
    for (asked, chunks) in [(1..=250, 3), (251..=350, 1), (351..=351, 0), (352..=353, 1)] {
        let before = statements(&server);
        let keys: Vec<u32> = asked.clone().collect();
        let answer =
            app.http.send("POST", &url, &[("content-type", "application/json")], &serde_json::to_string(&keys).unwrap()).await.json();
        for (id, result) in asked.zip(answer["results"].as_array().unwrap()) {
            assert_eq!((&result["status"], &result["value"]["name"]), (&200.into(), &format!("User {id}").into()), "{result}");
        }
        let after = statements(&server);
        // One key has no need of an array.
        let alone = u64::from(chunks == 0);
        assert_eq!((after.0 - before.0, after.1 - before.1), (chunks, alone), "{} keys", keys.len());
    }
    let calls = app.metric("bloomguard_backend_requests_total{keyspace=\"users\",outcome=\"found\"}").await;
    assert_eq!(calls, 6.0, "calls are counted, not keys");
}

#[tokio::test]
async fn every_type_of_postgresql_is_the_same_together() {
    let database = Database::create();
    database.psql(&format!(
        "CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE DOMAIN photo AS bytea; CREATE DOMAIN code AS varchar(10); CREATE EXTENSION IF NOT EXISTS citext;
         CREATE TABLE t (id int PRIMARY KEY, amount numeric, at timestamptz, naive timestamp, day date, doc json, bin jsonb, u uuid, b bytea, p photo,
                         tags text[], m mood, f real, d double precision, yes bool, i interval, ip inet, nul bytea, c code, pad char(8), n name, ci citext);
         INSERT INTO t VALUES (1, 123456789012345678901234567890.123456789, '2024-05-06 07:08:09.123+02', '2024-05-06 07:08:09', '2024-05-06',
                         '{{\"a\": 1.50}}', '{{\"b\": [null, true]}}', '{UUID}', '\\x{}', '\\xff', '{{a,NULL,\"c d\"}}', 'happy', 1.5, 'NaN', true, '1 day', '10.0.0.1', NULL,
                         'x1', 'pad', 'nm', 'Ci')",
        "ab".repeat(100)
    ));
    let url = database.url();
    for (columns, condition, form, present, absent) in [
        ("*", "id = $1", KeyForm::Integer, "1", "2"),
        // Without bytes the row is rendered whole.
        ("amount, at, doc, tags, m, d, yes, i, nul IS NULL AS none", "id = $1", KeyForm::Integer, "1", "2"),
        ("*", "amount = $1", KeyForm::Text, "123456789012345678901234567890.123456789", "1"),
        ("id", "m = $1", KeyForm::Text, "happy", "sad"),
        ("id", "c = $1", KeyForm::Text, "x1", "x2"),
        ("id", "pad = $1", KeyForm::Text, "pad", "pud"),
        ("id", "n = $1", KeyForm::Text, "nm", "mn"),
        ("id", "ci = $1", KeyForm::TextCi, "ci", "ic"),
        ("amount AS value", "u = $1", KeyForm::Uuid, UUID, "00000000-0000-0000-0000-000000000000"),
        ("id", "b = $1", KeyForm::Bytes, "x", "y"),
    ] {
        let backend = open(&config(&url, &format!("SELECT {columns} FROM t WHERE {condition}")), form);
        let told = together(&backend, form, &[absent, present, absent, present]).await;
        assert_eq!(backend.batch_limit(), 100, "{condition}");
        assert_eq!((&told[0], &told[1]), (&told[2], &told[3]));
        assert_eq!(told[0], "absent", "{condition}");
        assert!(form == KeyForm::Bytes || told[1] != "absent", "{condition}");
    }
    // No label of the enum: the server refuses the whole array.
    let backend = open(&config(&url, "SELECT id FROM t WHERE m = $1"), KeyForm::Text);
    let told = together(&backend, KeyForm::Text, &["happy", "angry", "sad"]).await;
    assert_eq!((told[0].as_str(), told[2].as_str()), ("{\"id\":1}", "absent"));
    assert!(told[1].contains("22P02"), "{told:?}");
    // Nor can such a key be sent, or such a query be asked at all.
    let backend = open(&config(&url, "SELECT id FROM t WHERE id = $1"), KeyForm::Text);
    let told = together(&backend, KeyForm::Text, &["1", "042", "abc", "2"]).await;
    assert!(told[0].starts_with('{') && told[1].contains("INT4") && told[2].contains("INT4") && told[3] == "absent", "{told:?}");
}

#[tokio::test]
async fn queries_that_take_one_key_at_a_time_are_asked_so() {
    let database = Database::create();
    database.psql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t SELECT i, i * 10 FROM generate_series(1, 5) i");
    for query in [
        // What shows the key would give the column another name.
        "SELECT $1::int, n FROM t WHERE id = $1",
        "SELECT max($1::int) AS k, sum(n) AS n FROM t WHERE id = $1 HAVING count(*) > 0",
        "SELECT n FROM t WHERE id::text = $1 AND 'a\\b' <> ''",
    ] {
        let backend = open(&config(&database.url(), query), KeyForm::Integer);
        assert_eq!(backend.batch_limit(), 100);
        let told = together(&backend, KeyForm::Integer, &["1", "9", "2", "1"]).await;
        assert!(told[0].contains("\"n\":") && told[1] == "absent" && told[2].contains("\"n\":") && told[3] == told[0], "{query}: {told:?}");
        assert_eq!(backend.batch_limit(), 1, "{query}");
    }
    for query in [
        "SELECT n, bloomguard_many.id AS k FROM t AS bloomguard_many WHERE bloomguard_many.id = $1",
        "SELECT row_to_json(t) AS t, (SELECT count(*) FROM t AS u WHERE u.id <= $1) AS up_to FROM t WHERE id = $1",
        "SELECT s.n FROM (SELECT n FROM t WHERE id = $1) AS s JOIN generate_series(1, 3) g ON g < CAST($1 AS int) + 9",
        "WITH RECURSIVE r AS (SELECT id, n FROM t WHERE id = $1 UNION ALL SELECT t.id, t.n FROM t JOIN r ON t.id = r.id + 1) SELECT count(*) AS n FROM r HAVING count(*) > 0",
        "SELECT n FROM t WHERE id = $1 UNION ALL SELECT n FROM t WHERE id = $1 + 100",
        "SELECT n FROM t WHERE id = $1 FOR UPDATE",
        "SELECT n FROM t WHERE id < 4 ORDER BY id OFFSET $1",
    ] {
        let backend = open(&config(&database.url(), query), KeyForm::Integer);
        let told = together(&backend, KeyForm::Integer, &["1", "9", "2", "1"]).await;
        assert!(told[0].starts_with('{') && told[1] == "absent" && told[2].starts_with('{') && told[3] == told[0], "{query}: {told:?}");
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
    let scans = || database.psql("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 't'").parse::<i64>().unwrap();
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
    eventually("lookups are counted", || database.psql("SELECT idx_scan >= 3000 FROM pg_stat_user_tables WHERE relname = 't'") == "t")
        .await;
    assert_eq!(scans(), before);
}

#[tokio::test]
async fn batch_that_times_out_answers_no_key_with_an_absence() {
    let database = Database::create();
    database.psql("CREATE TABLE t (id int, n int); INSERT INTO t VALUES (0, 0), (1, 1)");
    let mut config =
        config(&database.url(), "SELECT n, pg_sleep(CASE WHEN n = 0 THEN 3600 ELSE 0 END)::text AS slept FROM t WHERE id = $1");
    config.timeout = Duration::from_secs(1);
    let backend = Arc::new(open(&config, KeyForm::Integer));
    let many = backend.fetch_many(&keys(KeyForm::Integer, &["1", "0", "2"]), &FetchContext::default()).await;
    assert!(many.iter().all(|row| matches!(row, Err(BackendError::Timeout(limit)) if *limit == config.timeout)), "{many:?}");
    eventually("the server has stopped it", || {
        database.psql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()",
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
