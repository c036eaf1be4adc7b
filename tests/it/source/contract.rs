//! What every SQL key source does, and what only PostgreSQL can be asked.

use std::time::{Duration, Instant};

use bloomguard::config::{SecretUrl, SourceConfig};
use bloomguard::key::{KeyError, KeyForm};
use bloomguard::source::{BATCH_KEYS, KeySource, SourceError, SqlSource};
use tokio::sync::mpsc;

use crate::support::database::{Site, on_every_database};
use crate::support::postgres::Database;
use crate::support::scan::{scan, sorted};

const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

on_every_database!(
    every_key_arrives_once_in_bounded_batches,
    null_keys_are_left_out_and_not_counted,
    text_and_uuid_and_bytes_keys_are_canonical,
    empty_table_has_no_keys,
    only_the_first_column_counts,
    form_is_suggested_by_the_column,
    key_without_the_form_fails_with_its_row,
    reader_that_left_cancels_the_scan,
    wrong_table_is_invalid,
    query_with_a_parameter_is_refused,
    unreachable_database_is_unavailable,
    trailing_semicolon_and_comments_do_no_harm,
    plain_columns_have_no_conflict,
);

fn source(site: &Site, query: &str) -> SqlSource {
    at(&site.url(), query)
}

fn at(url: &str, query: &str) -> SqlSource {
    let config = SourceConfig { query: query.to_owned(), ..Default::default() };
    SqlSource::new(&config, &SecretUrl::new(url.to_owned())).unwrap()
}

async fn every_key_arrives_once_in_bounded_batches(site: Site) {
    let count = BATCH_KEYS * 3 + 5;
    site.run(&format!("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t {}", site.series(count))).await;
    let source = source(&site, "SELECT id FROM t");
    assert_eq!(source.count().await.unwrap(), Some(count as u64));
    let mut keys: Vec<u64> = scan(&source, KeyForm::Integer)
        .await
        .unwrap()
        .iter()
        .map(|key| key.as_str().unwrap().parse().unwrap())
        .collect();
    keys.sort_unstable();
    assert!(keys.iter().copied().eq(1..=count as u64));
}

async fn null_keys_are_left_out_and_not_counted(site: Site) {
    site.run(
        "CREATE TABLE t (id INTEGER, name TEXT); INSERT INTO t VALUES (1, 'a'), (NULL, 'b'), (3, NULL), (NULL, NULL)",
    )
    .await;
    let source = source(&site, "SELECT id, name FROM t");
    assert_eq!(sorted(&source, KeyForm::Integer).await, ["1", "3"]);
    assert_eq!(source.count().await.unwrap(), Some(2));
}

async fn text_and_uuid_and_bytes_keys_are_canonical(site: Site) {
    let (kind, literal) = if site.is_postgres() { ("BYTEA", r"'\x00ff'") } else { ("BLOB", "x'00ff'") };
    site.run(&format!(
        "CREATE TABLE t (name VARCHAR(20), u UUID, b {kind}, n NUMERIC); INSERT INTO t VALUES ('É Straße', '{}', \
            {literal}, 42.00), ('042', '{UUID}', {literal}, -1)",
        UUID.to_uppercase()
    ))
    .await;
    for (form, expected) in [(KeyForm::Text, ["042", "É Straße"]), (KeyForm::TextCi, ["042", "é straße"])] {
        let mut text = scan(&source(&site, "SELECT name FROM t"), form).await.unwrap();
        text.sort();
        assert_eq!(text.iter().map(|key| key.as_str().unwrap()).collect::<Vec<_>>(), expected);
    }
    assert_eq!(sorted(&source(&site, "SELECT u FROM t"), KeyForm::Uuid).await, [UUID, UUID]);
    assert_eq!(sorted(&source(&site, "SELECT b FROM t"), KeyForm::Bytes).await, [r"\x00\xff", r"\x00\xff"]);
    assert_eq!(sorted(&source(&site, "SELECT n FROM t"), KeyForm::Integer).await, ["-1", "42"]);
}

async fn empty_table_has_no_keys(site: Site) {
    site.run("CREATE TABLE t (id INTEGER)").await;
    let source = source(&site, "SELECT id FROM t");
    assert_eq!(source.count().await.unwrap(), Some(0));
    assert!(scan(&source, KeyForm::Integer).await.unwrap().is_empty());
}

async fn only_the_first_column_counts(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, bloomguard_key INTEGER); INSERT INTO t VALUES (1, 100)").await;
    for query in ["SELECT id, id, 'x' FROM t", "SELECT * FROM t ORDER BY 1 LIMIT 5"] {
        let source = source(&site, query);
        if query.contains('*') && site.is_postgres() {
            continue;
        }
        assert_eq!(sorted(&source, KeyForm::Integer).await, ["1"], "{query}");
    }
}

async fn form_is_suggested_by_the_column(site: Site) {
    let bytes = if site.is_postgres() { "BYTEA" } else { "BLOB" };
    site.run(&format!(
        "CREATE TABLE t (i INTEGER PRIMARY KEY, s SMALLINT, b BIGINT, t TEXT, v VARCHAR(9), u UUID, y \
        {bytes}, n NUMERIC)"
    ))
    .await;
    for (column, form) in [
        ("i", Some(KeyForm::Integer)),
        ("s", Some(KeyForm::Integer)),
        ("b", Some(KeyForm::Integer)),
        ("t", Some(KeyForm::Text)),
        ("v", Some(KeyForm::Text)),
        ("u", Some(KeyForm::Uuid)),
        ("y", Some(KeyForm::Bytes)),
        ("n", None),
    ] {
        assert_eq!(source(&site, &format!("SELECT {column} FROM t")).key_form().await.unwrap(), form, "{column}");
    }
}

async fn key_without_the_form_fails_with_its_row(site: Site) {
    site.run("CREATE TABLE t (n INTEGER, name TEXT); INSERT INTO t VALUES (1, '1'), (2, NULL), (3, 'three')").await;
    let error = scan(&source(&site, "SELECT name FROM t ORDER BY n"), KeyForm::Integer).await.unwrap_err();
    assert!(matches!(error, SourceError::Key { row: 3, error: KeyError::NotAnInteger }), "{error}");
}

async fn reader_that_left_cancels_the_scan(site: Site) {
    site.run("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1)").await;
    let source = source(&site, &site.series(1_000_000_000));
    let (sender, mut receiver) = mpsc::channel(1);
    let scan = tokio::spawn(async move { source.scan(KeyForm::Integer, sender).await });
    if !site.is_postgres() {
        receiver.recv().await.unwrap();
    }
    drop(receiver);
    let ended = tokio::time::timeout(Duration::from_secs(30), scan).await.expect("the scan ends").unwrap();
    assert!(matches!(ended, Err(SourceError::Cancelled)), "{ended:?}");
}

async fn wrong_table_is_invalid(site: Site) {
    let source = source(&site, "SELECT id FROM userz");
    let expected = &site.no_table("userz");
    for error in [
        source.count().await.unwrap_err(),
        source.key_form().await.unwrap_err(),
        scan(&source, KeyForm::Text).await.unwrap_err(),
    ] {
        assert!(matches!(&error, SourceError::Invalid(message) if message == expected), "{error}");
    }
}

async fn query_with_a_parameter_is_refused(site: Site) {
    site.run("CREATE TABLE t (id INTEGER)").await;
    let config = SourceConfig { query: site.query("SELECT id FROM t WHERE id > $1"), ..Default::default() };
    let error = match SqlSource::new(&config, &SecretUrl::new(site.url())) {
        Ok(source) => scan(&source, KeyForm::Integer).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(&error, SourceError::Invalid(message) if message.contains("it takes parameters")), "{error}");
}

async fn unreachable_database_is_unavailable(site: Site) {
    let source = at(&site.unreachable_url(), "SELECT id FROM t");
    for error in [
        source.count().await.unwrap_err(),
        source.key_form().await.unwrap_err(),
        scan(&source, KeyForm::Text).await.unwrap_err(),
    ] {
        assert!(matches!(error, SourceError::Unavailable(_)), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    assert!(!site.unreachable_exists());
}

async fn trailing_semicolon_and_comments_do_no_harm(site: Site) {
    site.run("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1)").await;
    let source = source(&site, "SELECT id FROM t; -- every user");
    assert_eq!(
        (sorted(&source, KeyForm::Integer).await, source.count().await.unwrap()),
        (vec!["1".to_owned()], Some(1))
    );
}

async fn plain_columns_have_no_conflict(site: Site) {
    site.run("CREATE TABLE t (i INTEGER, t TEXT, u UUID)").await;
    for (column, form) in [("i", KeyForm::Integer), ("t", KeyForm::Text), ("t", KeyForm::TextCi), ("u", KeyForm::Uuid)]
    {
        assert_eq!(
            source(&site, &format!("SELECT {column} FROM t")).form_conflict(form).await.unwrap(),
            None,
            "{column} {form}"
        );
    }
}

#[tokio::test]
async fn padded_and_case_insensitive_columns_of_postgresql_conflict_with_text() {
    let database = Database::create();
    database.psql(
        "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE TABLE t (padded char(8), folded text COLLATE ci)",
    );
    let conflict = async |column: &str, form| {
        at(&database.url(), &format!("SELECT {column} FROM t")).form_conflict(form).await.unwrap()
    };
    assert_eq!(
        conflict("padded", KeyForm::Text).await.as_deref(),
        Some(
            "the key column is of type CHAR(n): it treats keys as equal that key form \"text\" keeps apart; cast it to text in source and backend query"
        )
    );
    assert!(conflict("padded", KeyForm::TextCi).await.is_some());
    assert_eq!(conflict("padded::text", KeyForm::Text).await, None);
    assert!(conflict("folded", KeyForm::Text).await.unwrap().contains("nondeterministic collation"));
    assert_eq!(conflict("folded", KeyForm::TextCi).await, None);
}

#[tokio::test]
async fn types_of_postgresql_with_several_spellings_need_their_form() {
    let database = Database::create();
    database.psql("CREATE TABLE t (u uuid, n numeric)");
    let conflict = async |column: &str, form| {
        at(&database.url(), &format!("SELECT {column} FROM t")).form_conflict(form).await.unwrap()
    };
    assert!(conflict("u", KeyForm::Text).await.unwrap().contains("set key = \"uuid\""));
    assert!(conflict("n", KeyForm::Text).await.unwrap().contains("set key = \"integer\""));
    for (column, form) in
        [("u", KeyForm::Uuid), ("n", KeyForm::Integer), ("u::text", KeyForm::Text), ("n::text", KeyForm::Text)]
    {
        assert_eq!(conflict(column, form).await, None, "{column}");
    }
}

#[tokio::test]
async fn citext_suggests_its_form_and_conflicts_with_text() {
    let database = Database::create();
    database.psql("CREATE EXTENSION citext; CREATE TABLE t (id citext); INSERT INTO t VALUES ('Foo')");
    let source = at(&database.url(), "SELECT id FROM t");
    assert_eq!(source.key_form().await.unwrap(), Some(KeyForm::TextCi));
    assert_eq!(sorted(&source, KeyForm::TextCi).await, ["foo"]);
    assert!(source.form_conflict(KeyForm::Text).await.unwrap().unwrap().contains("citext"));
    assert_eq!(source.form_conflict(KeyForm::TextCi).await.unwrap(), None);
}

#[tokio::test]
async fn collations_and_integer_columns_of_sqlite_conflict_with_text() {
    let site = Site::sqlite();
    site.run(
        "CREATE TABLE t (a TEXT COLLATE NOCASE, b TEXT COLLATE RTRIM, c TEXT, i INTEGER); CREATE VIEW v AS \
        SELECT a AS k FROM t",
    )
    .await;
    let conflict = async |query: &str, form| source(&site, query).form_conflict(form).await.unwrap();
    assert_eq!(
        conflict("SELECT a FROM t", KeyForm::Text).await.as_deref(),
        Some(
            "the key column is compared under collation NOCASE: it treats keys as equal that key form \"text\" keeps apart; set key = \"text-ci\""
        )
    );
    assert!(conflict("SELECT k FROM v", KeyForm::Text).await.unwrap().contains("NOCASE"));
    assert!(conflict("SELECT b, a FROM t", KeyForm::Text).await.unwrap().contains("RTRIM"));
    assert_eq!(conflict("SELECT a FROM t", KeyForm::TextCi).await, None);
    // Another column's collation is not the key's.
    assert_eq!(conflict("SELECT c, a FROM t WHERE a = 'x'", KeyForm::Text).await, None);
    assert!(conflict("SELECT i FROM t", KeyForm::Text).await.unwrap().contains("042 and 42"));
}

/// Invariant: failure-is-no-absence
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_connection_is_an_error_and_not_a_shorter_list() {
    let database = Database::create();
    // More than any buffer on the way holds.
    let source = at(&database.url(), "SELECT repeat('x', 1000) || i FROM generate_series(1, 2000000) i");
    let (sender, mut receiver) = mpsc::channel(1);
    let scan = tokio::spawn(async move { source.scan(KeyForm::Text, sender).await });
    receiver.recv().await.expect("keys flow");
    assert_eq!(database.terminate_sessions(), 1);
    while receiver.recv().await.is_some() {}
    let ended = scan.await.unwrap();
    assert!(matches!(ended, Err(SourceError::Unavailable(_))), "{ended:?}");
}

#[tokio::test]
async fn scan_outlives_the_time_limit_of_its_role() {
    let database = Database::create();
    let role = format!("limited_{}", std::process::id());
    database.psql(&format!("CREATE ROLE {role} LOGIN; ALTER ROLE {role} SET statement_timeout = '200ms'"));
    let source = at(
        &database.url().replace("postgres@", &format!("{role}@")),
        "SELECT i FROM generate_series(1, 3) i, pg_sleep(0.2)",
    );
    let started = Instant::now();
    assert_eq!(sorted(&source, KeyForm::Integer).await, ["1", "2", "3"]);
    assert!(started.elapsed() >= Duration::from_millis(200));
    database.psql(&format!("DROP ROLE {role}"));
}

#[tokio::test]
async fn silent_scan_is_cancelled_as_well() {
    let database = Database::create();
    let source = at(&database.url(), "SELECT 1 AS id FROM pg_sleep(3600)");
    let (sender, receiver) = mpsc::channel(1);
    let scan = tokio::spawn(async move { source.scan(KeyForm::Integer, sender).await });
    drop(receiver);
    let ended = tokio::time::timeout(Duration::from_secs(30), scan).await.expect("the scan ends").unwrap();
    assert!(matches!(ended, Err(SourceError::Cancelled)), "{ended:?}");
}

#[tokio::test]
async fn column_that_can_not_be_a_key_is_refused_by_type() {
    let database = Database::create();
    let error = scan(&at(&database.url(), "SELECT now() AS at"), KeyForm::Text).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the key source's answer can't be used: column \"at\" is of type TIMESTAMPTZ, which can't be a key: cast it \
            to text in the source's query"
    );
}
