//! What only MySQL and MariaDB can be asked: their types, and the many ways in which they take one key for another.

use std::time::{Duration, Instant};

use bloomguard::backend::{Backend, BackendError, FetchContext};
use bloomguard::config::{SecretUrl, SourceConfig};
use bloomguard::key::{KeyBatch, KeyForm};
use bloomguard::source::{KeySource, SourceError, SqlSource};
use serde_json::json;
use sqlx::Connection;
use tokio::sync::mpsc;

use crate::backend::contract::{UUID, config, fetch, key, open, row, text};
use crate::support::app::TestApp;
use crate::support::config::Config;
use crate::support::mariadb::{Database, Mariadb};
use crate::support::{assert_eventually, eventually};

fn source(url: &str, query: &str) -> SqlSource {
    let config = SourceConfig { query: query.to_owned(), ..Default::default() };
    SqlSource::new(&config, &SecretUrl::new(url.to_owned())).unwrap()
}

async fn keys(source: &SqlSource, form: KeyForm) -> Vec<String> {
    let (sender, mut receiver) = mpsc::channel::<KeyBatch>(2);
    let collect = async {
        let mut keys = Vec::new();
        while let Some(batch) = receiver.recv().await {
            keys.extend(batch.iter().map(|key| key.as_bytes().escape_ascii().to_string()));
        }
        keys
    };
    let (scanned, mut keys) = tokio::join!(source.scan(form, sender), collect);
    assert_eq!(scanned.unwrap(), keys.len() as u64);
    keys.sort();
    keys
}

/// A table `t` with a row whose values are hard to render.
pub(crate) const EVERY_TYPE: &str = "SET time_zone = '+02:00';
         CREATE TABLE t (id int PRIMARY KEY, tiny tinyint, utiny tinyint unsigned, big bigint, ubig bigint unsigned, \
         zero int(8) zerofill, amount decimal(65,30),
                         price decimal(8,2) zerofill, f float, d double, yes bool, seven tinyint(1), flag bit, mask \
                         bit(64), day date, t time(3), at timestamp(6),
                         naive datetime(3), never datetime, y year, doc json, c char(8), v varchar(40) collate \
                         utf8mb4_bin, latin varchar(40) charset latin1,
                         long_text longtext, e enum('happy', 'sad'), s set('a', 'b', 'c'), b binary(3), vb \
                         varbinary(9), bb blob, nul int, u uuid, ip inet6, g point);
         SET sql_mode = '';
         INSERT INTO t VALUES (1, -128, 255, -9223372036854775808, 18446744073709551615, 42, \
         12345678901234567890123456789012345.123456789012345678901234567890,
                         12.5, 0.1, 0.1, true, 7, b'1', 18446744073709551615, '2024-05-06', '-100:00:01.5', \
                         '2024-05-06 07:08:09.000123',
                         '2024-05-06 07:08:09.120', '0000-00-00', 2024, '{\"a\": [1.50, null]}', 'pad', 'é \"q\"', \
                         'é', '{\"no\": \"json\"}', 'sad', 'a,c', 'x', x'00ff', x'ff', NULL,
                         '67E55044-10B1-426F-9247-BB680E5FE0C8', '::1', NULL)";

#[tokio::test]
async fn every_type_of_mysql_is_rendered_exactly() {
    let database = Database::create();
    database.sql(EVERY_TYPE);
    let backend = open(&config(&database.url(), "SELECT * FROM t WHERE id = ?"), KeyForm::Integer);
    assert_eq!(
        text(&backend, KeyForm::Integer, "1").await,
        concat!(
            r#"{"id":1,"tiny":-128,"utiny":255,"big":-9223372036854775808,"ubig":18446744073709551615,"zero":42,"#,
            r#""amount":12345678901234567890123456789012345.123456789012345678901234567890,"price":12.50,"f":0.1,"d":0.1,"yes":true,"seven":7,"#,
            r#""flag":1,"mask":18446744073709551615,"day":"2024-05-06","t":"-100:00:01.5","at":"2024-05-06T05:08:09.000123+00:00","#,
            r#""naive":"2024-05-06T07:08:09.12","never":"0000-00-00T00:00:00","y":2024,"doc":{"a": [1.50, null]},"c":"pad","v":"é \"q\"","latin":"é","#,
            r#""long_text":"{\"no\": \"json\"}","e":"sad","s":"a,c","b":"eAAA","vb":"AP8=","bb":"/w==","nul":null,"#,
            r#""u":"67e55044-10b1-426f-9247-bb680e5fe0c8","ip":"::1","g":null}"#
        )
    );
}

#[tokio::test]
async fn json_column_that_is_added_later_becomes_known() {
    let database = Database::create();
    database.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let backend = open(&config(&database.url(), "SELECT * FROM t WHERE id = ?"), KeyForm::Integer);
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1}));
    database.sql("ALTER TABLE t ADD doc json DEFAULT '[1]'");
    let (old, new) = (json!({"id": 1, "doc": "[1]"}), json!({"id": 1, "doc": [1]}));
    let mut found = old.clone();
    assert_eventually!(
        {
            assert!(found == old, "{found}");
            found = row(&backend, KeyForm::Integer, "1").await;
            found == new
        },
        "{found}"
    );
}

#[tokio::test]
async fn text_is_never_read_as_a_number() {
    let database = Database::create();
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, code varchar(20), e enum('7', '1'), d decimal(10,2));
         INSERT INTO t VALUES (42, '42abc', '7', 1.5), (43, '043', '1', 2.5)",
    );
    let open =
        |column: &str, form| open(&config(&database.url(), &format!("SELECT id FROM t WHERE {column} = ?")), form);
    // To the server '42abc' = 42 and '043' = 43, and an enum equals the number of its place.
    for absent in ["42", "43"] {
        assert_eq!(
            open("code", KeyForm::Integer)
                .fetch(&key(KeyForm::Integer, absent), &FetchContext::default())
                .await
                .unwrap(),
            None,
            "{absent}"
        );
    }
    assert_eq!(row(&open("e", KeyForm::Integer), KeyForm::Integer, "7").await, json!({"id": 42}));
    assert_eq!(row(&open("e", KeyForm::Integer), KeyForm::Integer, "1").await, json!({"id": 43}));
    assert_eq!(row(&open("d", KeyForm::Text), KeyForm::Text, "1.5").await, json!({"id": 42}));
    for (column, spelling) in [("id", "42abc"), ("id", "042"), ("id", " 42"), ("d", "1.50")] {
        let error = fetch(&open(column, KeyForm::Text), spelling).await.unwrap_err();
        assert!(
            matches!(&error, BackendError::Invalid(message) if message.starts_with("the key can't be a")),
            "{spelling}: {error}"
        );
    }
    assert_eq!(row(&open("id", KeyForm::Text), KeyForm::Text, "42").await, json!({"id": 42}));
}

#[tokio::test]
async fn integers_are_compared_exactly_at_the_ends_of_their_types() {
    let database = Database::create();
    database.sql(
        "CREATE TABLE t (s bigint, u bigint unsigned);
         INSERT INTO t VALUES (9223372036854775807, 18446744073709551615), (-9223372036854775808, 0), \
         (9007199254740993, 9007199254740993)",
    );
    for (column, present, absent) in [
        (
            "s",
            ["9223372036854775807", "-9223372036854775808", "9007199254740993"],
            ["9223372036854775808", "18446744073709551615", "9007199254740992"],
        ),
        (
            "u",
            ["18446744073709551615", "0", "9007199254740993"],
            ["-1", "-9223372036854775808", "18446744073709551614"],
        ),
    ] {
        let backend = open(
            &config(&database.url(), &format!("SELECT {column} AS k FROM t WHERE {column} = ?")),
            KeyForm::Integer,
        );
        for present in present {
            assert_eq!(text(&backend, KeyForm::Integer, present).await, format!("{{\"k\":{present}}}"));
        }
        for absent in absent {
            assert_eq!(
                backend.fetch(&key(KeyForm::Integer, absent), &FetchContext::default()).await.unwrap(),
                None,
                "{column} {absent}"
            );
        }
        let mut sorted = present.map(str::to_owned);
        sorted.sort();
        assert_eq!(keys(&source(&database.url(), &format!("SELECT {column} FROM t")), KeyForm::Integer).await, sorted);
    }
}

#[tokio::test]
async fn uuids_are_found_however_they_are_stored() {
    let database = Database::create();
    database.sql(&format!(
        "CREATE TABLE t (raw binary(16), var varbinary(16), txt char(36), bytes varbinary(36), native uuid);
         INSERT INTO t VALUES (UNHEX(REPLACE('{UUID}', '-', '')), UNHEX(REPLACE('{UUID}', '-', '')), '{UUID}', \
         '{UUID}', '{UUID}')"
    ));
    for column in ["raw", "var", "txt", "bytes", "native"] {
        let backend =
            open(&config(&database.url(), &format!("SELECT 1 AS one FROM t WHERE {column} = ?")), KeyForm::Uuid);
        assert_eq!(row(&backend, KeyForm::Uuid, &UUID.to_uppercase()).await, json!({"one": 1}), "{column}");
        assert_eq!(
            backend
                .fetch(&key(KeyForm::Uuid, "00000000-0000-0000-0000-000000000000"), &FetchContext::default())
                .await
                .unwrap(),
            None,
            "{column}"
        );
        let source = source(&database.url(), &format!("SELECT {column} FROM t"));
        assert_eq!(keys(&source, KeyForm::Uuid).await, [UUID], "{column}");
        assert_eq!(source.form_conflict(KeyForm::Uuid).await.unwrap(), None, "{column}");
    }
}

#[tokio::test]
async fn index_of_the_key_column_is_used() {
    let database = Database::create();
    database.sql(
        "CREATE TABLE t (id int PRIMARY KEY, code varchar(20) UNIQUE, digits varchar(20) UNIQUE, ci varchar(20) \
            COLLATE utf8mb4_general_ci UNIQUE,
                         latin varchar(20) CHARSET latin1 UNIQUE, raw binary(16) UNIQUE, u bigint unsigned UNIQUE, d \
                         decimal(20) UNIQUE);
         INSERT INTO t SELECT seq, CONCAT('c', seq), seq, CONCAT('c', seq), CONCAT('c', seq), UNHEX(LPAD(HEX(seq), \
         32, '0')), seq, seq FROM seq_1_to_20000",
    );
    let read = || -> u64 {
        let rows = database.sql(
            "SELECT SUM(rows_read) FROM information_schema.table_statistics WHERE table_schema = DATABASE() AND \
                table_name = 't'",
        );
        rows.parse().unwrap()
    };
    for (condition, form, present) in [
        ("id = ?", KeyForm::Integer, "7"),
        ("u = ?", KeyForm::Integer, "7"),
        ("d = ?", KeyForm::Integer, "7"),
        ("digits = ?", KeyForm::Integer, "7"),
        ("code = ?", KeyForm::Text, "c7"),
        ("code = ?", KeyForm::Bytes, "c7"),
        ("ci = ?", KeyForm::Text, "c7"),
        ("latin = ?", KeyForm::Text, "c7"),
        ("raw = ?", KeyForm::Uuid, "00000000-0000-0000-0000-000000000007"),
    ] {
        let before = read();
        let backend = open(&config(&database.url(), &format!("SELECT id FROM t WHERE {condition}")), form);
        assert_eq!(row(&backend, form, present).await, json!({"id": 7}), "{condition}");
        database.kill_sessions();
        // Sessions hand in their counts when they end.
        eventually("the lookup is counted", || read() > before).await;
        assert!(read() - before < 10, "{condition} as {form}: {} rows were read", read() - before);
    }
}

#[tokio::test]
async fn column_that_can_not_be_a_key_is_refused_by_type() {
    let database = Database::create();
    database.sql("CREATE TABLE t (y year, at datetime, d double, g point, b bit(8))");
    for (column, type_name) in [("y", "YEAR"), ("at", "DATETIME"), ("d", "DOUBLE"), ("g", "GEOMETRY"), ("b", "BIT")] {
        let error = source(&database.url(), &format!("SELECT {column} FROM t")).key_form().await.unwrap_err();
        assert!(error.to_string().contains(&format!("is of type {type_name}, which can't be a key")), "{error}");
        let error = fetch(
            &open(&config(&database.url(), &format!("SELECT 1 AS one FROM t WHERE {column} = ?")), KeyForm::Text),
            "1",
        )
        .await
        .unwrap_err();
        assert!(
            error.to_string().contains(&format!("compared with a column of type {type_name}, which can't take a key")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn columns_that_take_other_spellings_conflict_with_text() {
    let database = Database::create();
    database.sql(
        "CREATE TABLE t (general varchar(20) COLLATE utf8mb4_general_ci, bin varchar(20) COLLATE utf8mb4_bin, accents \
            varchar(20) COLLATE utf8mb4_uca1400_nopad_as_ci,
                         exact varchar(20) COLLATE utf8mb4_nopad_bin, padded char(8) COLLATE utf8mb4_nopad_bin, e \
                         enum('a') COLLATE utf8mb4_general_ci, u uuid, ip inet6,
                         raw binary(8), var varbinary(20), id int);
         CREATE VIEW v AS SELECT general AS k FROM t",
    );
    let url = database.url();
    for (column, why) in [
        ("general", Some("collation utf8mb4_general_ci")),
        ("bin", Some("trailing spaces")),
        ("accents", Some("invisible characters")),
        ("e", Some("accents")),
        ("u", Some("set key = \"uuid\"")),
        ("ip", Some("type INET6")),
        ("id", Some("set key = \"integer\"")),
        ("exact", None),
        ("padded", None),
        ("raw", None),
        ("var", None),
    ] {
        let source = source(&url, &format!("SELECT {column} FROM t"));
        let backend = open(&config(&url, &format!("SELECT 1 AS one FROM t WHERE {column} = ?")), KeyForm::Text);
        for form in [KeyForm::Text, KeyForm::TextCi, KeyForm::Bytes] {
            for told in [source.form_conflict(form).await.unwrap(), backend.form_conflict(form).await.unwrap()] {
                assert_eq!(told.is_some(), why.is_some(), "{column} {form}: {told:?}");
                assert!(told.unwrap_or_default().contains(why.unwrap_or_default()), "{column}");
            }
        }
    }
    for (query, lax) in [
        ("SELECT 1 AS one FROM v WHERE k = ?", true),
        ("SELECT 1 AS one FROM (SELECT general COLLATE utf8mb4_nopad_bin AS k FROM t) AS q WHERE q.k = ?", false),
        ("WITH q AS (SELECT CONCAT(general, '') AS k FROM t) SELECT 1 AS one FROM q WHERE (q.k = ?)", true),
        ("SELECT 1 AS one FROM t WHERE exact = ?", false),
    ] {
        let backend = open(&config(&url, query), KeyForm::Text);
        assert_eq!(backend.form_conflict(KeyForm::Text).await.unwrap().is_some(), lax, "{query}");
    }
    for (query, lax) in [
        ("SELECT k FROM v", true),
        ("SELECT exact COLLATE utf8mb4_unicode_ci FROM t", true),
        ("SELECT general COLLATE utf8mb4_nopad_bin FROM t", false),
        ("SELECT CAST(general AS BINARY) FROM t", false),
        ("SELECT CONCAT('u', id) FROM t", true),
    ] {
        assert_eq!(source(&url, query).form_conflict(KeyForm::Text).await.unwrap().is_some(), lax, "{query}");
    }
}

/// Guards `codes` by `column`; `condition` is the backend's.
fn codes(url: &str, form: &str, column: &str, condition: &str) -> Config {
    Config::new().keyspace("codes", |k| {
        k.set("key", form)
            .set("freshness", "static")
            .set("deadline", "10s")
            .backend(url, &format!("SELECT id FROM codes WHERE {condition}"))
            .set("backend.timeout", "10s")
            .source_sql(&format!("SELECT {column} FROM codes"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn column_that_ignores_case_never_rejects_and_says_why() {
    let database = Database::create();
    database.sql(
        "CREATE TABLE codes (id int PRIMARY KEY, code varchar(20) COLLATE utf8mb4_general_ci UNIQUE, exact \
            varchar(20) COLLATE utf8mb4_nopad_bin UNIQUE);
         INSERT INTO codes SELECT seq, CONCAT('Foo', seq), CONCAT('Foo', seq) FROM seq_1_to_100",
    );
    let url = database.url();
    for (form, column, condition, why) in [
        ("text", "code", "code = ?", "collation utf8mb4_general_ci"),
        ("text-ci", "code", "code = ?", "collation utf8mb4_general_ci"),
        // The source hides its column's collation, the backend shows it.
        ("text", "exact", "code = ?", "collation utf8mb4_general_ci"),
        // Neither shows it, but the row is found under another spelling.
        ("text", "exact", "CONCAT(code) = ?", "another spelling"),
        ("text-ci", "exact", "LOWER(code) LIKE ?", "another spelling"),
    ] {
        let app = TestApp::start(&codes(&url, form, column, condition)).await;
        app.wait_for("degraded").await;
        let reason = app.status("codes").await["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains(why), "{condition}: {reason}");
        for spelling in ["Foo7", "foo7", "F%C3%B3o7"] {
            let answer = app.get(&format!("/v1/keys/codes/{spelling}")).await;
            assert_eq!((answer.status, answer.text()), (200, "{\"id\":7}"), "{condition} {spelling}");
        }
        assert_eq!(app.get("/v1/keys/codes/absent").await.told(), "404 backend");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_column_rejects_what_it_does_not_hold() {
    let database = Database::create();
    database.sql(
        "CREATE TABLE codes (id int PRIMARY KEY, code varchar(20) COLLATE utf8mb4_nopad_bin UNIQUE, folded \
            varchar(20) COLLATE utf8mb4_nopad_bin AS (LOWER(code)) UNIQUE);
         INSERT INTO codes (id, code) SELECT seq, CONCAT('Foo', seq) FROM seq_1_to_100",
    );
    let app = TestApp::enforcing(&codes(&database.url(), "text", "code", "code = ?")).await;
    assert_eq!(app.get("/v1/keys/codes/Foo7").await.told(), "200 backend");
    for spelling in ["foo7", "F%C3%B3o7", "Foo7%20", "Foo7%E2%80%8B"] {
        assert_eq!(app.get(&format!("/v1/keys/codes/{spelling}")).await.told(), "404 filter", "{spelling}");
        assert_eq!(
            database.sql("SELECT COUNT(*) FROM codes WHERE code IN ('foo7', 'Fóo7', 'Foo7 ', 'Foo7\u{200b}')"),
            "0"
        );
    }
    // Case is ignored by a column that holds the keys as the key form writes them.
    let app = TestApp::enforcing(&codes(&database.url(), "text-ci", "folded", "folded = ?")).await;
    for spelling in ["Foo8", "foo8", "FOO8"] {
        assert!(app.get(&format!("/v1/keys/codes/{spelling}")).await.told().starts_with("200 "), "{spelling}");
    }
    assert_eq!(app.get("/v1/keys/codes/f%C3%B3o8").await.told(), "404 filter");
}

#[tokio::test]
async fn slow_query_times_out_here_and_at_the_server() {
    let database = Database::create();
    let mut config = config(&database.url(), "SELECT SLEEP(3600) AS slept FROM (SELECT ? AS k) AS t");
    config.timeout = Duration::from_millis(500);
    let backend = open(&config, KeyForm::Text);
    let started = Instant::now();
    let error = fetch(&backend, "x").await.unwrap_err();
    assert!(matches!(error, BackendError::Timeout(limit) if limit == config.timeout), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60));
    eventually("the server has stopped it", || {
        database.sql(
            "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'SELECT SLEEP%'",
        ) == "0"
    })
    .await;
}

#[tokio::test]
async fn timed_out_lookups_leave_the_pool_usable() {
    let database = Database::create();
    database.sql("CREATE TABLE t (id int, n int); INSERT INTO t VALUES (0, 0), (1, 1)");
    let mut config = config(&database.url(), "SELECT n, IF(n = 0, SLEEP(3600), 0) AS slept FROM t WHERE id = ?");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_scan_is_an_error_and_not_a_shorter_list() {
    let database = Database::create();
    for kill in ["CONNECTION", "QUERY"] {
        // More than any buffer on the way holds.
        let source = source(&database.url(), "SELECT CONCAT(REPEAT('x', 1000), seq) FROM seq_1_to_2000000");
        let (sender, mut receiver) = mpsc::channel(1);
        let scan = tokio::spawn(async move { source.scan(KeyForm::Text, sender).await });
        receiver.recv().await.expect("keys flow");
        let sessions = database.sessions();
        assert_eq!(sessions.len(), 1);
        database.sql(&format!("KILL {kill} {}", sessions[0]));
        while receiver.recv().await.is_some() {}
        let ended = scan.await.unwrap();
        assert!(matches!(ended, Err(SourceError::Unavailable(_))), "{kill}: {ended:?}");
        eventually("the session is over", || database.sessions().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_sees_one_snapshot() {
    let database = Database::create();
    let rows = 100_000;
    database.sql(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, k varchar(700)) ENGINE=InnoDB; INSERT INTO t SELECT \
        seq, CONCAT(seq, REPEAT('x', 600)) FROM seq_1_to_{rows}"
    ));
    let source = source(&database.url(), "SELECT k FROM t");
    let (sender, mut receiver) = mpsc::channel(1);
    let scan = tokio::spawn(async move { source.scan(KeyForm::Text, sender).await });
    let first = receiver.recv().await.expect("keys flow");
    database.sql("DELETE FROM t WHERE id % 2 = 0; INSERT INTO t SELECT seq, 'new' FROM seq_1000001_to_1000100");
    let mut keys: Vec<_> = first.into_iter().collect();
    while let Some(batch) = receiver.recv().await {
        keys.extend(batch);
    }
    assert_eq!(scan.await.unwrap().unwrap(), rows);
    assert!(keys.iter().all(|key| key.as_str().unwrap() != "new"));
}

#[tokio::test]
async fn silent_scan_is_cancelled_as_well() {
    let database = Database::create();
    let source = source(&database.url(), "SELECT SLEEP(3600) + 1");
    let (sender, receiver) = mpsc::channel(1);
    let scan = tokio::spawn(async move { source.scan(KeyForm::Integer, sender).await });
    drop(receiver);
    let ended = tokio::time::timeout(Duration::from_secs(30), scan).await.expect("the scan ends").unwrap();
    assert!(matches!(ended, Err(SourceError::Cancelled)), "{ended:?}");
}

/// A server whose settings would each make the answers wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_do_not_depend_on_how_the_server_is_set_up() {
    let mut server = Mariadb::start_with(&[
        "--autocommit=OFF",
        "--transaction-isolation=READ-UNCOMMITTED",
        "--sql-mode=PAD_CHAR_TO_FULL_LENGTH",
        "--default-time-zone=+05:00",
        "--max-statement-time=0.3",
        "--init-connect=SET sql_select_limit = 2",
    ]);
    let database = server.create_database();
    database.sql(
        "SET autocommit = 1; CREATE TABLE t (id int PRIMARY KEY, c char(8), at timestamp DEFAULT '2024-01-01 \
            05:00:00') ENGINE=InnoDB;
         INSERT INTO t (id, c) VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, NULL);
         CREATE USER app@'127.0.0.1'; GRANT SELECT ON *.* TO app@'127.0.0.1'",
    );
    let url = database.url().replace("root@", "app@");
    let backend = open(&config(&url, "SELECT at FROM t WHERE id = ?"), KeyForm::Integer);
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"at": "2024-01-01T00:00:00+00:00"}));
    // A first statement outside of autocommit would have opened a transaction whose snapshot all others see.
    assert_eq!(backend.fetch(&key(KeyForm::Integer, "6"), &FetchContext::default()).await.unwrap(), None);
    database.sql("SET autocommit = 1; INSERT INTO t (id, c) VALUES (6, 'f')");
    assert!(backend.fetch(&key(KeyForm::Integer, "6"), &FetchContext::default()).await.unwrap().is_some());

    // Every key, without its padding, and for longer than the server would let a statement run.
    let padded = source(&url, "SELECT c FROM t WHERE SLEEP(0.1) = 0");
    assert_eq!(keys(&padded, KeyForm::Text).await, ["a", "b", "c", "d", "f"]);

    // Removed, but not committed: it is not absent.
    let mut other = sqlx::MySqlConnection::connect(&database.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; DELETE FROM t WHERE id = 3").execute(&mut other).await.unwrap();
    assert!(backend.fetch(&key(KeyForm::Integer, "3"), &FetchContext::default()).await.unwrap().is_some());
    drop(other);

    // Nothing is left prepared where nothing may be.
    let prepared = || {
        server
            .sql("", "SHOW GLOBAL STATUS LIKE 'Prepared_stmt_count'")
            .split('\t')
            .nth(1)
            .unwrap()
            .parse::<u32>()
            .unwrap()
    };
    drop((backend, padded));
    eventually("the sessions are over", || prepared() == 0).await;
    let mut unprepared = config(&url, "SELECT c FROM t WHERE id = ?");
    unprepared.statement_cache = 0;
    let without = open(&unprepared, KeyForm::Integer);
    assert_eq!(row(&without, KeyForm::Integer, "1").await, json!({"c": "a"}));
    assert_eq!(prepared(), 0);
    unprepared.statement_cache = 100;
    let with = open(&unprepared, KeyForm::Integer);
    assert_eq!(row(&with, KeyForm::Integer, "1").await, json!({"c": "a"}));
    assert_eq!(prepared(), 1);

    drop(database);
    server.stop();
    for _ in 0..3 {
        let error = with.fetch(&key(KeyForm::Integer, "1"), &FetchContext::default()).await.unwrap_err();
        assert!(matches!(error, BackendError::Unavailable(_)), "{error}");
    }
    server.start_again();
    assert_eq!(row(&with, KeyForm::Integer, "1").await, json!({"c": "a"}));
}

#[tokio::test]
async fn killed_sessions_cost_no_lookup() {
    let database = Database::create();
    database.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let backend = open(&config(&database.url(), "SELECT id FROM t WHERE id = ?"), KeyForm::Integer);
    for _ in 0..3 {
        assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1}));
        assert!(database.kill_sessions() > 0);
    }
    assert_eq!(row(&backend, KeyForm::Integer, "1").await, json!({"id": 1}));
}

#[tokio::test]
async fn refused_password_and_missing_tls_are_unavailable() {
    let database = Database::create();
    for (url, why) in [
        (database.url().replace("root@", "nobody:hunter2@"), "error 1045"),
        (format!("{}_missing", database.url()), "error 1049"),
        (format!("{}?ssl-mode=REQUIRED", database.url()), "TLS"),
    ] {
        let error = fetch(&open(&config(&url, "SELECT 1 AS one FROM (SELECT ? AS k) AS t"), KeyForm::Text), "x")
            .await
            .unwrap_err();
        assert!(matches!(&error, BackendError::Unavailable(message) if message.contains(why)), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn key_that_a_columns_character_set_lacks_is_not_found_by_another() {
    let database = Database::create();
    database.sql(
        "CREATE TABLE t (k varchar(20) CHARSET latin1 COLLATE latin1_nopad_bin, n int); INSERT INTO t VALUES \
        ('?', 1), ('é', 2)",
    );
    let backend = open(&config(&database.url(), "SELECT n FROM t WHERE k = ?"), KeyForm::Text);
    assert_eq!(row(&backend, KeyForm::Text, "é").await, json!({"n": 2}));
    for foreign in ["日", "本", "\u{200b}"] {
        assert!(!matches!(fetch(&backend, foreign).await, Ok(Some(_))), "{foreign}");
    }
}
