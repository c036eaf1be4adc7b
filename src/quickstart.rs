//! The demo: a database of users, made once, and three `curl` lines that show the three outcomes.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection};

use crate::keyspace::Keyspace;
use crate::labels::{State, Verdict};

/// Users in the demo database.
const USERS: u32 = 1_000_000;
/// Users that are inserted at a time.
const CHUNK: u32 = 20_000;
/// The demo's keyspace in `config/quickstart.toml`.
pub const KEYSPACE: &str = "users";
/// A user that exists.
const PRESENT: u32 = 42;

/// Creates the demo database in `data_dir` if it is missing. It is written under another name and renamed, so an
/// incomplete one is never used.
///
/// # Errors
/// If the folder or the database can't be written.
pub async fn prepare(data_dir: &Path) -> anyhow::Result<()> {
    let database = data_dir.join("quickstart.db");
    if database.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(data_dir)
        .with_context(|| format!("server.data_dir: {} can't be made", data_dir.display()))?;
    let aside = data_dir.join("quickstart.db.new");
    if aside.exists() {
        std::fs::remove_file(&aside)?;
    }
    fill(&aside).await.with_context(|| format!("the demo database {} can't be made", aside.display()))?;
    std::fs::rename(&aside, &database)?;
    tracing::info!(users = USERS, file = %database.display(), "made the demo database");
    Ok(())
}

async fn fill(file: &Path) -> anyhow::Result<()> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Off)
        .synchronous(SqliteSynchronous::Off);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    sqlx::query("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, created_at DATETIME NOT NULL)")
        .execute(&mut connection)
        .await?;
    let bar = progress_bar();
    for first in (1..=USERS).step_by(CHUNK as usize) {
        sqlx::query(
            "INSERT INTO users WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2) \
             SELECT i, 'User ' || i, 'user' || i || '@example.com', datetime(1700000000 + i, 'unixepoch') FROM n",
        )
        .bind(first)
        .bind((first + CHUNK - 1).min(USERS))
        .execute(&mut connection)
        .await?;
        bar.inc(u64::from(CHUNK));
    }
    bar.finish_and_clear();
    connection.close().await?;
    // Without a journal this sync makes the file complete before it gets its name.
    std::fs::File::open(file)?.sync_all()?;
    Ok(())
}

fn progress_bar() -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(u64::from(USERS)), target);
    if let Ok(style) =
        ProgressStyle::with_template("making the demo database {wide_bar} {human_pos}/{human_len} users  eta {eta}")
    {
        bar.set_style(style);
    }
    bar
}

/// Waits until the demo's keyspace enforces, then prints one `curl` line for each outcome.
pub async fn greet(keyspace: Arc<Keyspace>, address: &str) {
    while keyspace.state() != State::Enforcing {
        prove(&keyspace).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let absent = absent_user(&keyspace).unwrap_or(USERS * 2);
    let lines = format!(
        "\nbloomguard guards {USERS} users. Try, in this order:\n\n\
         curl -i http://{address}/v1/keys/{KEYSPACE}/{absent}   # absent: 404 from the filter, no query\n\
         curl -i http://{address}/v1/keys/{KEYSPACE}/{PRESENT}        # found: 200 from the backend, one query\n\
         curl -i http://{address}/v1/keys/{KEYSPACE}/{PRESENT}        # found again within 10 s: 200 from the cache\n\n"
    );
    // If standard output is closed, there is no reader.
    let _ = std::io::stdout().lock().write_all(lines.as_bytes());
}

/// Compares absences with the database, so that the filter answers the first request of a user who tries the demo.
async fn prove(keyspace: &Keyspace) {
    let Some(needed) = keyspace.proof().filter(|_| keyspace.state() == State::Shadow).map(|proof| proof.needed) else {
        return;
    };
    let keys = (USERS * 2..USERS * 2 + needed * 2).filter_map(|id| keyspace.key(id.to_string().as_bytes()).ok());
    let absent = keys.filter(|key| keyspace.peek(key).verdict == Verdict::Absent).take(needed as usize).collect();
    if let Err(error) = keyspace.prove_by(absent).await {
        tracing::warn!(%error, "the demo database did not answer: absences are compared again");
    }
}

/// A user that does not exist and is no false positive of the active filter.
fn absent_user(keyspace: &Keyspace) -> Option<u32> {
    (USERS * 2..USERS * 2 + 1000).find(|id| {
        keyspace.key(id.to_string().as_bytes()).is_ok_and(|key| keyspace.peek(&key).verdict == Verdict::Absent)
    })
}
