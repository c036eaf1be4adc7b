//! Rows of a SQL database: [`SqlBackend`].

mod mysql;
mod pace;
mod postgres;
mod reader;
mod sqlite;
mod verdict;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use xxhash_rust::xxh3::Xxh3Default;

use self::mysql::MySqlRows;
use self::pace::BatchPace;
use self::postgres::PostgresRows;
use self::reader::{Answer, RowReader};
use self::sqlite::SqliteRows;
use super::context::RowBudget;
use super::{Backend, BackendError, FetchContext, Value};
use crate::config::{BackendConfig, SecretUrl};
use crate::key::{Key, KeyForm};
use crate::sql::{Database, LookupConnections, Purpose, SqlError};

/// Changes whenever the same row is rendered as another body, so that values cached under the old rendering are not
/// served.
const RENDERING: u64 = 1;
/// Beyond `backend.timeout`, how long an abandoned statement may keep its connection.
const SETTLE: Duration = Duration::from_secs(2);
/// A closed connection does not stop SQLite, so its slot waits longer.
const SQLITE_SETTLE: Duration = Duration::from_secs(60);

/// Reads rows of PostgreSQL, MySQL or SQLite as JSON objects, or as raw bytes if the only column is named `value`.
#[derive(Debug)]
pub struct SqlBackend {
    timeout: Duration,
    fingerprint: u64,
    pace: BatchPace,
    driver: LookupDriver,
}

#[derive(Debug)]
enum LookupDriver {
    Postgres(RowReader<PostgresRows>),
    MySql(RowReader<MySqlRows>),
    Sqlite(RowReader<SqliteRows>),
}

impl SqlBackend {
    /// Reads the configuration and connects to nothing: the database may be down. Must be called within a Tokio
    /// runtime.
    ///
    /// `form` is set before the first lookup; SQLite and MySQL, which describe no parameter types, bind by it.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if URL or query can never be used.
    pub fn new(config: &BackendConfig, form: Arc<OnceLock<KeyForm>>) -> Result<Self, BackendError> {
        let refused = |error: SqlError| BackendError::Invalid(error.to_string());
        let purpose = Purpose::Lookups { timeout: config.timeout, statement_cache: config.statement_cache };
        let connections = |settle| LookupConnections {
            max: config.max_concurrency,
            min: usize::try_from(config.min_connections).unwrap_or(usize::MAX),
            settle: config.timeout + settle,
        };
        let target = config.url.redacted();
        let driver = match Database::parse(&config.url.for_driver(), purpose).map_err(refused)? {
            Database::Postgres(options) => {
                let rows = PostgresRows::new(&config.query, config.statement_cache > 0).map_err(refused)?;
                LookupDriver::Postgres(RowReader::new(rows, connections(SETTLE).pool(options, target)))
            }
            Database::MySql(session) => {
                let rows = MySqlRows::new(&config.query, form, config.statement_cache > 0).map_err(refused)?;
                LookupDriver::MySql(RowReader::new(rows, connections(SETTLE).pool(session, target)))
            }
            Database::Sqlite(options) => {
                let rows = SqliteRows::new(&config.query, form).map_err(refused)?;
                LookupDriver::Sqlite(RowReader::new(rows, connections(SQLITE_SETTLE).pool(options, target)))
            }
        };
        Ok(Self {
            timeout: config.timeout,
            fingerprint: fingerprint(&config.url, &config.query),
            pace: BatchPace::new(config.timeout),
            driver,
        })
    }

    async fn within_timeout<T>(&self, read: impl Future<Output = Result<T, SqlError>>) -> Result<T, BackendError> {
        match tokio::time::timeout(self.timeout, read).await {
            Ok(read) => read.map_err(|error| self.failure(error)),
            Err(_) => Err(BackendError::Timeout(self.timeout)),
        }
    }

    fn failure(&self, error: SqlError) -> BackendError {
        match error {
            SqlError::Unavailable(reason) => BackendError::Unavailable(reason),
            SqlError::Invalid { message, .. } => BackendError::Invalid(message),
            SqlError::Timeout(_) => BackendError::Timeout(self.timeout),
        }
    }
}

#[async_trait]
impl Backend for SqlBackend {
    fn admits_all(&self, _form: KeyForm) -> bool {
        true
    }

    async fn fetch(&self, key: &Key, _: &FetchContext) -> Result<Option<Value>, BackendError> {
        self.within_timeout(async {
            match &self.driver {
                LookupDriver::Postgres(reader) => reader.fetch(key).await,
                LookupDriver::MySql(reader) => reader.fetch(key).await,
                LookupDriver::Sqlite(reader) => reader.fetch(key).await,
            }
        })
        .await
    }

    async fn fetch_many(&self, keys: &[Key], context: &FetchContext) -> Vec<Result<Option<Value>, BackendError>> {
        let mut room = RowBudget::of(context);
        let mut answers: Vec<Option<Answer>> = vec![None; keys.len()];
        let started = Instant::now();
        let read = async {
            match &self.driver {
                LookupDriver::Postgres(reader) => reader.fetch_many(keys, &mut answers, &mut room).await,
                LookupDriver::MySql(reader) => reader.fetch_many(keys, &mut answers, &mut room).await,
                LookupDriver::Sqlite(reader) => reader.fetch_many(keys, &mut answers, &mut room).await,
            }
        };
        // Answers that came in time are kept.
        let late = tokio::time::timeout(self.timeout, read).await.is_err();
        debug_assert!(late || room.is_full() || answers.iter().all(Option::is_some), "each key has its answer");
        let unanswered = if late { BackendError::Timeout(self.timeout) } else { BackendError::NoRoom };
        // The server's own statement timeout may come first.
        let late = late || answers.iter().any(|answer| matches!(answer, Some(Err(SqlError::Timeout(_)))));
        self.pace.took(keys.len(), started.elapsed(), late);
        let told = |answer: Option<Answer>| answer.map(|row| row.map_err(|error| self.failure(error)));
        answers.into_iter().map(|answer| told(answer).unwrap_or_else(|| Err(unanswered.clone()))).collect()
    }

    fn batch_limit(&self) -> usize {
        let limit = match &self.driver {
            LookupDriver::Postgres(reader) => reader.batch_limit(),
            LookupDriver::MySql(reader) => reader.batch_limit(),
            LookupDriver::Sqlite(reader) => reader.batch_limit(),
        };
        limit.min(self.pace.limit())
    }

    async fn form_conflict(&self, form: KeyForm) -> Result<Option<String>, BackendError> {
        self.within_timeout(async {
            match &self.driver {
                LookupDriver::MySql(reader) => reader.conflict(form).await,
                LookupDriver::Postgres(_) | LookupDriver::Sqlite(_) => Ok(None),
            }
        })
        .await
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Each part with its length, so that different parts never have the same bytes.
fn fingerprint(url: &SecretUrl, query: &str) -> u64 {
    let mut hasher = Xxh3Default::new();
    for part in ["sql", url.identity().as_str(), query] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update(&RENDERING.to_le_bytes());
    hasher.digest()
}

/// Rejects names that would be the same member of a JSON object.
fn unique_names<'a>(names: impl Iterator<Item = &'a str>, same: impl Fn(&str, &str) -> bool) -> Result<(), SqlError> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if seen.iter().any(|other| same(other, name)) {
            return Err(SqlError::invalid(format!("the query has two columns named \"{name}\": rename one with AS")));
        }
        seen.push(name);
    }
    if seen.is_empty() { Err(SqlError::invalid("the query returns no columns: it must be a SELECT")) } else { Ok(()) }
}

/// The column whose bytes are sent as they are.
const RAW_COLUMN: &str = "value";
