//! How fast a filter is built from a source, beside readers that only count.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Instant;

use futures_util::TryStreamExt as _;

use super::goals::{Goal, Goals};
use super::{ROUNDS, most_keys, place_self};
use crate::contenders::{Built, build_from};
use crate::process::{Placement, write_keys};
use crate::support::mariadb::Mariadb;
use crate::support::postgres::Postgres;

const QUERY: &str = "SELECT id FROM users";

/// Reads all keys of a source, keeps none, and returns their number.
type Counter<'a> = &'a dyn Fn() -> io::Result<u64>;

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    place_self(Placement::Sharing)?;
    let keys = most_keys();
    println!("\nBuilding a filter of {keys} integer keys, both cores shared by all; the best of {ROUNDS}\n");
    println!(
        "| source | scan, M keys/s | whole build, M keys/s | processor ns a key | who only counts | M keys/s | scan / \
         it |\n|---|---|---|---|---|---|---|"
    );
    goals.reached("keys of PostgreSQL, scan / COPY BINARY that only counts", from_postgres(keys)?, Goal::AtLeast(0.9));
    from_mariadb(keys)?;
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("users.db");
    goals.reached("keys of SQLite, scan / step loop that only counts", from_sqlite(keys, &path)?, Goal::AtLeast(0.5));
    from_file(keys, &path)?;
    Ok(())
}

fn from_postgres(keys: u64) -> io::Result<f64> {
    let server = Postgres::start();
    let database = server.create_database();
    database.psql("CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL)");
    database.psql(&format!("INSERT INTO users SELECT 2 * i, 'User ' || i FROM generate_series(0, {keys} - 1) AS i"));
    // Otherwise the first reader would set the visibility bits of all rows.
    database.psql("VACUUM ANALYZE users");
    let url = database.url();
    let count = || copy_and_count(&url);
    row("PostgreSQL", keys, &sql(&url), Some(("tokio-postgres, COPY BINARY", &count)))
}

fn from_sqlite(keys: u64, path: &Path) -> io::Result<f64> {
    let written = rusqlite::Connection::open(path).and_then(|connection| {
        connection.execute_batch(&format!(
            "PRAGMA synchronous = OFF; CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL); \
             INSERT INTO users WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < {keys} - 1) \
             SELECT 2 * i, 'User ' || i FROM s"
        ))
    });
    written.map_err(io::Error::other)?;
    let count = || step_and_count(path).map_err(io::Error::other);
    row("SQLite", keys, &sql(&url_of(path)), Some(("its C interface, step by step", &count)))
}

fn from_mariadb(keys: u64) -> io::Result<f64> {
    let server = Mariadb::start_with(&[]);
    let database = server.create_database();
    database.sql(&format!(
        "CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL); INSERT INTO users SELECT 2 * seq, \
         concat('User ', seq) FROM seq_0_to_{}",
        keys - 1
    ));
    row("MariaDB", keys, &sql(&database.url()), None)
}

/// Keys in a file, rows in a database.
fn from_file(keys: u64, rows: &Path) -> io::Result<f64> {
    let path = rows.with_file_name("keys.txt");
    write_keys(&path, keys);
    let source =
        Source { source: format!("{{ kind = \"file\", path = \"{}\" }}", path.display()), ..sql(&url_of(rows)) };
    row("file", keys, &source, None)
}

/// The configuration of source and backend.
struct Source {
    source: String,
    backend: String,
}

fn url_of(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn sql(url: &str) -> Source {
    Source {
        source: format!("{{ query = \"{QUERY}\" }}"),
        backend: format!("{{ url = \"{url}\", query = \"SELECT name FROM users WHERE id = $1\" }}")
            .replace("$1", if url.starts_with("mysql") { "?" } else { "$1" }),
    }
}

/// In turn, so that other load of the machine affects both. Returns the scan's speed relative to the reader that only
/// counts.
fn row(name: &str, keys: u64, source: &Source, beside: Option<(&str, Counter<'_>)>) -> io::Result<f64> {
    let (mut best, mut counted): (Option<Built>, f64) = (None, 0.0);
    for _ in 0..ROUNDS {
        if let Some((_, count)) = beside {
            let begin = Instant::now();
            expect(keys, count()?)?;
            counted = counted.max(keys as f64 / begin.elapsed().as_secs_f64());
        }
        let built = build_from(&source.source, &source.backend, keys);
        expect(keys, built.keys)?;
        best = best.filter(|best| best.scan_seconds < built.scan_seconds).or(Some(built));
    }
    let Some(best) = best else { return Ok(f64::NAN) };
    let (scan, whole) = (keys as f64 / best.scan_seconds, keys as f64 / best.seconds);
    let (counter, speed, ratio) = match beside {
        Some((counter, _)) => (counter, format!("{:.2}", counted / 1e6), format!("{:.2}", scan / counted)),
        None => ("–", "–".to_owned(), "–".to_owned()),
    };
    let processor = best.processor_seconds * 1e9 / keys as f64;
    println!("| {name} | {:.2} | {:.2} | {processor:.0} | {counter} | {speed} | {ratio} |", scan / 1e6, whole / 1e6);
    Ok(scan / counted)
}

fn expect(keys: u64, read: u64) -> io::Result<()> {
    if read == keys { Ok(()) } else { Err(io::Error::other(format!("{read} of {keys} keys were read"))) }
}

/// Counts the messages of a copy, without its head, which comes with the first row or alone, and its trailer.
fn copy_and_count(url: &str) -> io::Result<u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let counted = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        let mut messages = pin!(client.copy_out(&format!("COPY ({QUERY}) TO STDOUT (FORMAT binary)")).await?);
        let mut rows = 0;
        while let Some(message) = messages.try_next().await? {
            // A row begins with a field count and a length; the head begins with a letter, and the trailer is its whole
            // message.
            rows += u64::from(
                message.starts_with(&[0, 1])
                    || message.len() > b"PGCOPY\n\xff\r\n\0".len() + 8 && message.starts_with(b"PGCOPY"),
            );
        }
        Ok::<_, tokio_postgres::Error>(rows)
    });
    counted.map_err(io::Error::other)
}

fn step_and_count(path: &Path) -> rusqlite::Result<u64> {
    let connection = rusqlite::Connection::open(path)?;
    let mut statement = connection.prepare(QUERY)?;
    let mut rows = statement.raw_query();
    let (mut count, mut sum) = (0, 0_i64);
    while let Some(row) = rows.next()? {
        count += 1;
        sum = sum.wrapping_add(row.get(0)?);
    }
    std::hint::black_box(sum);
    Ok(count)
}
