//! Keys of SQLite.

mod step;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use rusqlite::types::ValueRef;
use sqlx::sqlite::{LockedSqliteHandle, SqliteConnectOptions, SqliteConnection, SqliteStatement};
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr, Statement};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{Batcher, KeyQuery, KeyReader, LONGEST_SILENCE, close, next_row, silent, without_parameters};
use crate::key::KeyForm;
use crate::source::SourceError;
use crate::sql::sqlite::{Affinity, StoredValue, declared_type, first_column_collation};
use crate::sql::{Connector, SqlError};
use crate::sqltext::Dialect;

/// A query whose first column is a key.
#[derive(Debug)]
pub(super) struct SqliteKeys {
    options: SqliteConnectOptions,
    query: String,
}

impl SqliteKeys {
    pub(super) fn new(options: SqliteConnectOptions, query: &str) -> Result<Self, SqlError> {
        Ok(Self { options, query: without_parameters(query, Dialect::Sqlite)? })
    }

    async fn describe(&self, connection: &mut SqliteConnection) -> Result<SqliteStatement, SqlError> {
        let described = connection.prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        if described.columns().is_empty() {
            return Err(SqlError::invalid("the query returns no columns: it must be a SELECT"));
        }
        Ok(described)
    }

    /// The query with a fixed name for its first column.
    fn keys(&self, columns: usize) -> String {
        let others: String = (1..columns).map(|i| format!(", c{i}")).collect();
        format!("WITH keys(c0{others}) AS ({}\n)", self.query)
    }
}

impl KeyQuery for SqliteKeys {
    type Connection = SqliteConnection;

    fn connector(&self) -> &impl Connector<SqliteConnection> {
        &self.options
    }

    async fn key_form(&self, connection: &mut SqliteConnection) -> Result<Option<KeyForm>, SourceError> {
        let described = self.describe(connection).await?;
        let declared = declared_type(connection, described.column(0)).await?;
        Ok(match Affinity::of(&declared) {
            _ if &*declared == "UUID" => Some(KeyForm::Uuid),
            Affinity::Integer => Some(KeyForm::Integer),
            Affinity::Text => Some(KeyForm::Text),
            Affinity::Blob if !declared.is_empty() => Some(KeyForm::Bytes),
            Affinity::Blob | Affinity::Number => None,
        })
    }

    async fn form_conflict(
        &self,
        connection: &mut SqliteConnection,
        form: KeyForm,
    ) -> Result<Option<String>, SourceError> {
        let described = self.describe(connection).await?;
        if form == KeyForm::Text
            && let Some(collation) = first_column_collation(connection, &self.keys(described.columns().len())).await?
        {
            let mend = if collation == "NOCASE" {
                "set key = \"text-ci\""
            } else {
                "compare it COLLATE BINARY in source and backend query"
            };
            return Ok(Some(format!(
                "the key column is compared under collation {collation}: it matches keys that key form \"{form}\" tells apart; {mend}"
            )));
        }
        let declared = declared_type(connection, described.column(0)).await?;
        if matches!(form, KeyForm::Text | KeyForm::TextCi) && matches!(Affinity::of(&declared), Affinity::Integer) {
            return Ok(Some(format!(
                "the key column is of type {declared}: 042 and 42 are one key to it, which key form \"{form}\" tells apart; set key = \"integer\""
            )));
        }
        Ok(None)
    }

    async fn count(&self, connection: &mut SqliteConnection) -> Result<u64, SourceError> {
        let described = self.describe(connection).await?;
        let statement = format!("{} SELECT count(c0) FROM keys", self.keys(described.columns().len()));
        let mut rows = sqlx::query_scalar::<_, i64>(AssertSqlSafe(statement)).persistent(false).fetch(connection);
        let counted = next_row(&mut rows).await?.unwrap_or(0);
        Ok(u64::try_from(counted).unwrap_or(0))
    }

    /// One statement, so one snapshot, on a thread that may block. It has normal priority: SQLite has locks for the
    /// whole process, of its cache and its allocator, which lookups of any SQLite database take too.
    async fn scan(&self, reader: &KeyReader<Self>, batcher: Batcher) -> Result<u64, SourceError> {
        let mut connection = reader.connect().await?;
        let described = self.describe(&mut connection).await?;
        // Other columns need not be copied.
        let statement = format!("{} SELECT c0 FROM keys", self.keys(described.columns().len()));
        drop(described);
        let (runtime, abandoned) = (Handle::current(), CancellationToken::new());
        let _on_drop = abandoned.clone().drop_guard();
        let scan = move || {
            let sent = runtime.block_on(connection.lock_handle()).map_err(|error| SqlError::from(error).into());
            let sent = sent.and_then(|mut handle| read(&mut handle, &statement, batcher, abandoned));
            (connection, sent)
        };
        let (connection, sent) = tokio::task::spawn_blocking(scan).await.map_err(|error| match error.is_panic() {
            true => SourceError::Unavailable("the thread that read the database panicked".to_owned()),
            false => SourceError::Cancelled,
        })?;
        close(connection, sent).await
    }
}

fn read(
    handle: &mut LockedSqliteHandle<'_>,
    statement: &str,
    mut batcher: Batcher,
    abandoned: CancellationToken,
) -> Result<u64, SourceError> {
    let recipient = batcher.recipient();
    let (rows_read, fell_silent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut watch = Watch::new(Arc::clone(&rows_read), Arc::clone(&fell_silent), LONGEST_SILENCE);
    let unwanted = move || watch.is_silent() || abandoned.is_cancelled() || recipient.is_gone();
    let read = step::on_driver_connection(handle, unwanted, |connection| {
        let mut prepared = connection.prepare(statement)?;
        let mut rows = prepared.raw_query();
        let mut raw = Vec::new();
        loop {
            batcher.begin_row();
            let Some(row) = rows.next()? else { return Ok(Ok(())) };
            rows_read.fetch_add(1, Relaxed);
            if let Err(error) = take(row.get_ref(0)?, &mut batcher, &mut raw) {
                return Ok(Err(error));
            }
        }
    });
    match read {
        Ok(read) => read?,
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            return Err(if fell_silent.load(Relaxed) { silent() } else { SourceError::Cancelled });
        }
        Err(error) => return Err(SqlError::from(error).into()),
    }
    batcher.finish_blocking()
}

/// Ends a statement that finds no row for too long, however busy it is. All orderings are relaxed: one thread does all
/// of it.
struct Watch {
    rows_read: Arc<AtomicU64>,
    fell_silent: Arc<AtomicBool>,
    longest: Duration,
    seen: u64,
    since: Instant,
}

impl Watch {
    fn new(rows_read: Arc<AtomicU64>, fell_silent: Arc<AtomicBool>, longest: Duration) -> Self {
        Self { rows_read, fell_silent, longest, seen: 0, since: Instant::now() }
    }

    /// Called while the statement runs: the time that a row waits for its reader does not count.
    fn is_silent(&mut self) -> bool {
        let rows = self.rows_read.load(Relaxed);
        if rows != self.seen {
            (self.seen, self.since) = (rows, Instant::now());
        } else if self.since.elapsed() > self.longest {
            self.fell_silent.store(true, Relaxed);
        }
        self.fell_silent.load(Relaxed)
    }
}

fn take(value: ValueRef<'_>, batcher: &mut Batcher, raw: &mut Vec<u8>) -> Result<(), SourceError> {
    let stored = StoredValue::try_from(value).map_err(|error| batcher.unreadable(error))?;
    if stored.write_key(raw).map_err(|why| batcher.unreadable(why))? { batcher.push_blocking(raw) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_statement_without_a_row_falls_silent() {
        let (rows, silent) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut watch = Watch::new(Arc::clone(&rows), Arc::clone(&silent), Duration::from_millis(20));
        assert!(!watch.is_silent());
        std::thread::sleep(Duration::from_millis(25));
        rows.store(1, Relaxed);
        assert!(!watch.is_silent(), "a row came");
        std::thread::sleep(Duration::from_millis(25));
        assert!(watch.is_silent() && silent.load(Relaxed));
    }
}
