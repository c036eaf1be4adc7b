//! Keys listed by a SQL query: [`SqlSource`].

mod mysql;
mod polls;
mod postgres;
mod sqlite;

use std::fmt::Display;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt as _, Stream, TryStreamExt as _};
use sqlx::Connection;

use self::mysql::MySqlKeys;
pub use self::polls::SqlPolls;
use self::postgres::PostgresKeys;
use self::sqlite::SqliteKeys;
use super::batch::Batcher;
use super::{KeyBatches, KeySource, SourceError};
use crate::config::{SecretUrl, SourceConfig};
use crate::key::KeyForm;
use crate::sql::{Connector, Database, Purpose, SqlError};
use crate::sqltext::{Dialect, SingleStatement};

/// How long connecting may take. Otherwise only silence is bounded: a scan takes as long as it needs.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A database that sends no row for this long is abandoned. A sort of everything before the first row fits within it.
const LONGEST_SILENCE: Duration = Duration::from_secs(900);

/// Reads keys from the first column of a query on PostgreSQL, MySQL or SQLite.
#[derive(Debug)]
pub struct SqlSource(ScanDriver);

#[derive(Debug)]
enum ScanDriver {
    Postgres(KeyReader<PostgresKeys>),
    MySql(KeyReader<MySqlKeys>),
    Sqlite(KeyReader<SqliteKeys>),
}

impl SqlSource {
    /// Reads the configuration and connects to nothing. `backend` is used if the source has no URL of its own.
    ///
    /// # Errors
    /// [`SourceError::Invalid`] if URL or query can never be used.
    pub fn new(config: &SourceConfig, backend: &SecretUrl) -> Result<Self, SourceError> {
        let url = if config.url.is_empty() { backend } else { &config.url };
        let target = url.redacted();
        Ok(Self(match Database::parse(&url.for_driver(), Purpose::Scans)? {
            Database::Postgres(options) => {
                ScanDriver::Postgres(KeyReader { keys: PostgresKeys::new(options, &config.query)?, target })
            }
            Database::MySql(session) => {
                ScanDriver::MySql(KeyReader { keys: MySqlKeys::new(session, &config.query)?, target })
            }
            Database::Sqlite(options) => {
                ScanDriver::Sqlite(KeyReader { keys: SqliteKeys::new(options, &config.query)?, target })
            }
        }))
    }

    fn reader(&self) -> &dyn KeySource {
        match &self.0 {
            ScanDriver::Postgres(reader) => reader,
            ScanDriver::MySql(reader) => reader,
            ScanDriver::Sqlite(reader) => reader,
        }
    }
}

#[async_trait]
impl KeySource for SqlSource {
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        self.reader().key_form().await
    }

    async fn form_conflict(&self, form: KeyForm) -> Result<Option<String>, SourceError> {
        self.reader().form_conflict(form).await
    }

    async fn count(&self) -> Result<Option<u64>, SourceError> {
        self.reader().count().await
    }

    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        self.reader().scan(form, batches).await
    }
}

/// Why a query can't list keys, on any database.
const TAKES_PARAMETERS: &str = "it takes parameters, and there are none to give";

fn unusable(why: impl Display) -> SqlError {
    SqlError::invalid(format!("the query can't be used: {why}"))
}

/// The one statement of a configured query, which takes no parameter.
fn without_parameters(query: &str, dialect: Dialect) -> Result<String, SqlError> {
    let SingleStatement { text: query, parameters } = SingleStatement::parse(query, dialect).map_err(unusable)?;
    if parameters.is_empty() { Ok(query.to_owned()) } else { Err(unusable(TAKES_PARAMETERS)) }
}

/// How one kind of database lists keys.
trait KeyQuery: std::fmt::Debug + Send + Sync {
    type Connection: Connection;

    fn connector(&self) -> &impl Connector<Self::Connection>;

    fn key_form(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<Option<KeyForm>, SourceError>> + Send;

    fn form_conflict(
        &self,
        connection: &mut Self::Connection,
        form: KeyForm,
    ) -> impl Future<Output = Result<Option<String>, SourceError>> + Send;

    fn count(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<u64, SourceError>> + Send;

    /// Connects by `reader`, as often as needed.
    fn scan(&self, reader: &KeyReader<Self>, batcher: Batcher) -> impl Future<Output = Result<u64, SourceError>> + Send
    where
        Self: Sized;
}

/// Opens a connection for each call and closes it afterwards: calls are minutes apart, and a cancelled scan must not
/// leave a half-read result on a connection for the next one.
#[derive(Debug)]
struct KeyReader<K> {
    keys: K,
    /// Where it connects, without the password.
    target: String,
}

impl<K: KeyQuery> KeyReader<K> {
    async fn connect(&self) -> Result<K::Connection, SourceError> {
        let target = &self.target;
        match tokio::time::timeout(CONNECT_TIMEOUT, self.keys.connector().connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(SqlError::connecting(target, &error).into()),
            Err(_) => Err(SourceError::Unavailable(format!("{target}: no connection within {CONNECT_TIMEOUT:?}"))),
        }
    }
}

#[async_trait]
impl<K: KeyQuery> KeySource for KeyReader<K> {
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        let mut connection = self.connect().await?;
        let form = self.keys.key_form(&mut connection).await;
        close(connection, form).await
    }

    async fn form_conflict(&self, form: KeyForm) -> Result<Option<String>, SourceError> {
        let mut connection = self.connect().await?;
        let conflict = self.keys.form_conflict(&mut connection, form).await;
        close(connection, conflict).await
    }

    async fn count(&self) -> Result<Option<u64>, SourceError> {
        let mut connection = self.connect().await?;
        let count = self.keys.count(&mut connection).await.map(Some);
        close(connection, count).await
    }

    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        self.keys.scan(self, Batcher::new(form, batches)).await
    }
}

/// Closes a healthy connection in good order. One that failed, or is in the middle of a result, is simply dropped.
async fn close<C: Connection, T>(connection: C, result: Result<T, SourceError>) -> Result<T, SourceError> {
    if result.is_ok()
        && let Err(error) = connection.close().await
    {
        tracing::debug!(%error, "closing a key source's connection");
    }
    result
}

/// The next row of a scan, or its end.
async fn next_scanned<S, T>(rows: &mut S, batcher: &mut Batcher) -> Result<Option<T>, SourceError>
where
    S: Stream<Item = Result<T, sqlx::Error>> + Unpin + Send,
{
    batcher.begin_row();
    next_wanted(rows, batcher).await
}

/// The next item of a scan, or its end: the end of the items, or the reader's departure, however slow the database is.
async fn next_wanted<S, T>(items: &mut S, batcher: &Batcher) -> Result<Option<T>, SourceError>
where
    S: Stream<Item = Result<T, sqlx::Error>> + Unpin + Send,
{
    // An item that is there already needs neither a clock nor a check of the reader. A poll without a waker is
    // harmless: the next one follows at once.
    if let Some(next) = items.try_next().now_or_never() {
        return next.map_err(|error| SqlError::from(error).into());
    }
    tokio::select! {
        biased;
        next = next_row(items) => next,
        () = batcher.closed() => Err(SourceError::Cancelled),
    }
}

/// The next item of a stream of rows, unless the database is silent.
async fn next_row<S, T>(rows: &mut S) -> Result<Option<T>, SourceError>
where
    S: Stream<Item = Result<T, sqlx::Error>> + Unpin + Send,
{
    match tokio::time::timeout(LONGEST_SILENCE, rows.try_next()).await {
        Ok(next) => next.map_err(|error| SqlError::from(error).into()),
        Err(_) => Err(silent()),
    }
}

fn silent() -> SourceError {
    SourceError::Unavailable(format!("the database sent nothing for {LONGEST_SILENCE:?}"))
}

impl From<SqlError> for SourceError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Unavailable(reason) | SqlError::Timeout(reason) => Self::Unavailable(reason),
            SqlError::Invalid { message, .. } => Self::Invalid(message),
        }
    }
}
