//! Scans of SQLite: what is stored in a column of any type, files that other processes hold, and statements without a
//! reader.

use std::time::Duration;

use bloomguard::config::{SecretUrl, SourceConfig};
use bloomguard::key::KeyForm;
use bloomguard::source::{BATCH_KEYS, KeySource, SourceError, SqlSource};
use tokio::sync::mpsc;

use crate::support::database::Site;
use crate::support::scan::{scan, sorted};

/// Takes minutes, and all of them before its first row.
const LONG: &str =
    "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 3000000000) SELECT count(*) FROM s";

fn source(site: &Site, query: &str) -> SqlSource {
    let config = SourceConfig { query: query.to_owned(), ..Default::default() };
    SqlSource::new(&config, &SecretUrl::new(site.url())).unwrap()
}

#[tokio::test]
async fn values_are_keys_by_how_they_are_stored_and_not_by_their_column() {
    let site = Site::sqlite();
    site.run(
        "CREATE TABLE t (any, i INTEGER, x TEXT, n NUMERIC, r REAL);
         INSERT INTO t VALUES (7, '042', 42, '1e2', 9007199254740992), ('7', -9223372036854775808, 'é', 'a', -3), \
         (x'c3a9', 'x', x'00', 5.0, NULL)",
    )
    .await;
    for (column, form, expected) in [
        ("any", KeyForm::Bytes, vec!["7", "7", r"\xc3\xa9"]),
        ("i", KeyForm::Bytes, vec!["-9223372036854775808", "42", "x"]),
        ("x", KeyForm::Bytes, vec!["42", r"\x00", r"\xc3\xa9"]),
        ("n", KeyForm::Text, vec!["100", "5", "a"]),
        ("r", KeyForm::Integer, vec!["-3", "9007199254740992"]),
    ] {
        assert_eq!(sorted(&source(&site, &format!("SELECT {column} FROM t")), form).await, expected, "{column}");
    }
}

#[tokio::test]
async fn what_can_be_no_key_fails_with_its_row() {
    let site = Site::sqlite();
    for (rows, why) in [
        ("VALUES ('a'), (NULL), (0.5)", "row 3: the number 0.5 can't be a key"),
        ("VALUES ('a'), (CAST(x'ff' AS TEXT))", "row 2: invalid utf-8 sequence of 1 bytes from index 0"),
    ] {
        let ended = scan(&source(&site, rows), KeyForm::Text).await;
        assert!(matches!(&ended, Err(SourceError::Invalid(told)) if told == why), "{ended:?}");
    }
}

/// Invariant: failure-is-no-absence
#[tokio::test]
async fn a_failure_among_the_rows_is_an_error_and_not_a_shorter_list() {
    let site = Site::sqlite();
    let count = BATCH_KEYS * 2;
    let query = format!(
        "SELECT CASE WHEN i < {count} THEN i ELSE abs(-9223372036854775807 - 1) END FROM ({})",
        site.series(count)
    );
    let ended = scan(&source(&site, &query), KeyForm::Integer).await;
    assert!(matches!(&ended, Err(SourceError::Invalid(why)) if why == "SQLite error 1: integer overflow"), "{ended:?}");
}

#[tokio::test]
async fn a_statement_before_its_first_row_ends_with_its_reader() {
    let site = Site::sqlite();
    let source = source(&site, LONG);
    let (sender, receiver) = mpsc::channel(1);
    let scan = tokio::spawn(async move { source.scan(KeyForm::Integer, sender).await });
    drop(receiver);
    let ended = tokio::time::timeout(Duration::from_secs(60), scan).await.expect("the scan ends").unwrap();
    assert!(matches!(ended, Err(SourceError::Cancelled)), "{ended:?}");
}

#[tokio::test]
async fn a_statement_before_its_first_row_ends_with_a_scan_that_is_given_up() {
    let site = Site::sqlite();
    let source = source(&site, LONG);
    let (sender, mut receiver) = mpsc::channel(1);
    let watched = sender.clone();
    let scan = tokio::spawn(async move { source.scan(KeyForm::Integer, sender).await });
    // Held by its thread too: it runs.
    crate::support::eventually("the statement runs", || watched.strong_count() > 2).await;
    drop(watched);
    scan.abort();
    let ended = tokio::time::timeout(Duration::from_secs(60), receiver.recv())
        .await
        .expect("its thread lets go of the channel");
    assert!(ended.is_none());
}

#[tokio::test]
async fn a_file_that_somebody_holds_is_waited_for() {
    let site = Site::sqlite();
    site.run("CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (1), (2)").await;
    let path = site.url().trim_start_matches("sqlite:").to_owned();
    let holder = rusqlite::Connection::open(path).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let source = source(&site, "SELECT id FROM t");
    let scan = tokio::spawn(async move { sorted(&source, KeyForm::Integer).await });
    // The time itself is tested: a scan that does not wait fails at once.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!scan.is_finished());
    holder.execute_batch("COMMIT").unwrap();
    assert_eq!(scan.await.unwrap(), ["1", "2"]);
}
