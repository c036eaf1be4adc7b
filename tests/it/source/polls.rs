//! What every SQL source does when it is polled.

use std::time::Duration;

use bloomguard::config::{IncrementalConfig, SecretUrl, SourceConfig};
use bloomguard::key::KeyForm;
use bloomguard::source::{Incremental, PollPlan, PolledKey, Position, SourceError, SqlPolls, Watermark};
use tokio::sync::mpsc;

use crate::support::database::{Site, on_every_database};

on_every_database!(
    a_clock_that_was_set_back_loses_no_row,
    timestamps_beyond_the_clock_are_read_and_never_the_highest,
    more_rows_than_a_batch_arrive_whole,
    a_column_that_is_no_watermark_is_refused_by_type,
    rows_without_key_or_watermark_do_no_harm,
    unreachable_database_is_unavailable,
    a_killed_session_is_replaced_at_once,
);

/// A source of `query`, `$1` where the watermark goes.
fn polls(site: &Site, query: &str, watermark: Option<&str>) -> SqlPolls {
    at(&site.url(), &site.query(query), watermark)
}

fn at(url: &str, query: &str, watermark: Option<&str>) -> SqlPolls {
    let incremental = IncrementalConfig {
        query: query.to_owned(),
        watermark: watermark.map(str::to_owned),
        ..IncrementalConfig::default()
    };
    let config = SourceConfig { query: "SELECT 1".into(), incremental: Some(incremental), ..SourceConfig::default() };
    SqlPolls::new(&config, &SecretUrl::new(url.to_owned())).unwrap().unwrap()
}

/// The keys, sorted, and where the source stood.
async fn since(polls: &SqlPolls, from: Watermark, reach: Duration) -> Result<(Vec<i64>, Position), SourceError> {
    let (sender, mut receiver) = mpsc::channel::<Vec<PolledKey>>(2);
    let collected = async {
        let mut keys = Vec::new();
        while let Some(batch) = receiver.recv().await {
            keys.extend(batch.iter().map(|row| row.key.as_str().unwrap().parse::<i64>().unwrap()));
        }
        keys.sort_unstable();
        keys
    };
    let plan = PollPlan { from, reach };
    let (position, keys) = tokio::join!(polls.since(&plan, KeyForm::Integer, sender), collected);
    Ok((keys, position?))
}

const fn timestamp(site: &Site) -> &'static str {
    match site {
        Site::Sqlite(_) => "DATETIME DEFAULT CURRENT_TIMESTAMP",
        Site::Postgres(_) => "timestamptz DEFAULT now()",
        Site::Mariadb(_) => "TIMESTAMP(6) NULL DEFAULT CURRENT_TIMESTAMP(6)",
    }
}

const STAMPED: &str = "SELECT id, at FROM t WHERE at >= $1";

/// Invariant: polls-find-every-row
async fn a_clock_that_was_set_back_loses_no_row(site: Site) {
    site.run(&format!("CREATE TABLE t (id INTEGER, at {}); INSERT INTO t (id) VALUES (1)", timestamp(&site))).await;
    // As where an hour ago the clock had been two hours ahead of what it is now.
    let ahead = Watermark::Timestamp(4_102_444_800_000_000); // 2100
    let (keys, _) = since(&polls(&site, STAMPED, None), ahead, Duration::from_secs(600)).await.unwrap();
    assert_eq!(keys, [1]);
}

async fn timestamps_beyond_the_clock_are_read_and_never_the_highest(site: Site) {
    site.run(&format!("CREATE TABLE t (id INTEGER, at {})", timestamp(&site))).await;
    site.run("INSERT INTO t VALUES (1, '2020-01-01 00:00:00'), (2, '2037-12-31 00:00:00'), (3, '2020-01-01 00:00:01')")
        .await;
    let reach = Duration::from_secs(60);
    let first = polls(&site, STAMPED, None).position().await.unwrap().watermark.unwrap();
    let (keys, position) = since(&polls(&site, STAMPED, None), first, reach).await.unwrap();
    assert_eq!((keys.as_slice(), position.watermark), (&[2][..], None));
    let (keys, position) = since(&polls(&site, STAMPED, None), Watermark::Timestamp(0), reach).await.unwrap();
    // 2020-01-01 00:00:01
    assert_eq!(
        (keys.as_slice(), position.watermark),
        (&[1, 2, 3][..], Some(Watermark::Timestamp(1_577_836_801_000_000)))
    );
}

async fn more_rows_than_a_batch_arrive_whole(site: Site) {
    let series = site.series(10_000);
    site.run(&format!("CREATE TABLE t (id INTEGER, v BIGINT); INSERT INTO t SELECT i, 5 FROM ({series}) AS n")).await;
    let polls = polls(&site, "SELECT id, v, v, 'x' FROM t WHERE v > $1 ORDER BY v", Some("SELECT max(v) FROM t"));
    assert_eq!(polls.position().await.unwrap().watermark, Some(Watermark::Integer(5)));
    let (keys, position) = since(&polls, Watermark::Integer(5), Duration::ZERO).await.unwrap();
    assert!(keys.iter().copied().eq(1..=10_000), "{}", keys.len());
    assert_eq!(position.watermark, Some(Watermark::Integer(5)));
}

async fn a_column_that_is_no_watermark_is_refused_by_type(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, v NUMERIC(10, 3))").await;
    let error = polls(&site, "SELECT id, v FROM t WHERE v >= $1", None).position().await.unwrap_err();
    assert!(matches!(&error, SourceError::Invalid(why) if why.contains("can't be a watermark")), "{error}");
    let error = polls(&site, "SELECT id FROM t WHERE v >= $1", None).position().await.unwrap_err();
    assert!(matches!(&error, SourceError::Invalid(why) if why.contains("two columns")), "{error}");
}

async fn rows_without_key_or_watermark_do_no_harm(site: Site) {
    site.run("CREATE TABLE t (id INTEGER, v BIGINT); INSERT INTO t VALUES (1, 1), (NULL, 2), (3, NULL)").await;
    let polls = polls(&site, "SELECT id, v FROM t WHERE v >= $1 OR v IS NULL", Some("SELECT max(v) FROM t"));
    let (keys, position) = since(&polls, Watermark::Integer(0), Duration::ZERO).await.unwrap();
    assert_eq!((keys.as_slice(), position.watermark), (&[1, 3][..], Some(Watermark::Integer(2))));
}

async fn unreachable_database_is_unavailable(site: Site) {
    let error = at(&site.unreachable_url(), &site.query(STAMPED), None).position().await.unwrap_err();
    assert!(matches!(error, SourceError::Unavailable(_)), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

async fn a_killed_session_is_replaced_at_once(site: Site) {
    site.run(&format!("CREATE TABLE t (id INTEGER, at {}); INSERT INTO t (id) VALUES (1)", timestamp(&site))).await;
    let polls = polls(&site, STAMPED, None);
    let first = polls.position().await.unwrap().watermark.unwrap();
    site.end_sessions();
    assert_eq!(since(&polls, first, Duration::from_secs(600)).await.unwrap().0, [1]);
}

#[tokio::test]
async fn numbers_in_a_text_column_of_sqlite_are_refused() {
    let site = Site::sqlite();
    site.run("CREATE TABLE t (id INTEGER, at DATETIME); INSERT INTO t VALUES (1, 1700000000)").await;
    let error = polls(&site, STAMPED, None).position().await.unwrap_err();
    assert!(matches!(&error, SourceError::Invalid(why) if why.contains("holds numbers")), "{error}");
}
