//! Rows of a SQL database: [`SqlBackend`].

mod mysql;
mod postgres;
mod sqlite;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sqlx::Connection;
use xxhash_rust::xxh3::Xxh3Default;

use self::mysql::MySqlRows;
use self::postgres::PostgresRows;
use self::sqlite::SqliteRows;
use super::{Backend, BackendError, FetchContext, Value};
use crate::config::{BackendConfig, SecretUrl};
use crate::key::{Key, KeyForm};
use crate::sql::{Database, Pool, PoolSettings, Purpose, SqlError};

/// Changes whenever the same row is rendered as another body, so that cached values of the old rendering are not served.
const RENDERING: u64 = 1;
/// Beyond `backend.timeout`, how long an abandoned statement may keep its connection.
const SETTLE: Duration = Duration::from_secs(2);
/// SQLite can't be told to stop by closing a connection, so its slot waits longer.
const SQLITE_SETTLE: Duration = Duration::from_secs(60);

/// Reads rows of PostgreSQL, MySQL or SQLite as JSON objects, or as raw bytes where the only column is named `value`.
#[derive(Debug)]
pub struct SqlBackend {
    timeout: Duration,
    fingerprint: u64,
    driver: Driver,
}

#[derive(Debug)]
enum Driver {
    Postgres(Reader<PostgresRows>),
    MySql(Reader<MySqlRows>),
    Sqlite(Reader<SqliteRows>),
}

impl SqlBackend {
    /// Reads the configuration and connects to nothing: the database may be down. Must be called within a Tokio runtime.
    ///
    /// `form` is set before the first key is looked up; SQLite and MySQL, which tell no type of a parameter, bind by it.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] where URL or query can never be used.
    pub fn new(config: &BackendConfig, form: Arc<OnceLock<KeyForm>>) -> Result<Self, BackendError> {
        let refused = |error: SqlError| BackendError::Invalid(error.to_string());
        let purpose = Purpose::Lookups { timeout: config.timeout, statement_cache: config.statement_cache };
        let settings = |settle| PoolSettings {
            max: config.max_concurrency,
            min: usize::try_from(config.min_connections).unwrap_or(usize::MAX),
            settle: config.timeout + settle,
        };
        let target = config.url.redacted();
        let driver = match Database::parse(config.url.expose(), purpose).map_err(refused)? {
            Database::Postgres(options) => {
                let rows = PostgresRows::new(&config.query, config.statement_cache > 0).map_err(refused)?;
                Driver::Postgres(Reader::new(rows, Pool::new(options, target, settings(SETTLE))))
            }
            Database::MySql(session) => {
                let rows = MySqlRows::new(&config.query, form, config.statement_cache > 0).map_err(refused)?;
                Driver::MySql(Reader::new(rows, Pool::new(session, target, settings(SETTLE))))
            }
            Database::Sqlite(options) => {
                let rows = SqliteRows::new(&config.query, form).map_err(refused)?;
                Driver::Sqlite(Reader::new(rows, Pool::new(options, target, settings(SQLITE_SETTLE))))
            }
        };
        Ok(Self { timeout: config.timeout, fingerprint: fingerprint(&config.url, &config.query), driver })
    }

    async fn within_timeout<T>(&self, read: impl Future<Output = Result<T, SqlError>>) -> Result<T, BackendError> {
        match tokio::time::timeout(self.timeout, read).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(SqlError::Unavailable(reason))) => Err(BackendError::Unavailable(reason)),
            Ok(Err(SqlError::Invalid { message, .. })) => Err(BackendError::Invalid(message)),
            Ok(Err(SqlError::Timeout(_))) | Err(_) => Err(BackendError::Timeout(self.timeout)),
        }
    }
}

#[async_trait]
impl Backend for SqlBackend {
    async fn fetch(&self, key: &Key, _: &FetchContext) -> Result<Option<Value>, BackendError> {
        self.within_timeout(async {
            match &self.driver {
                Driver::Postgres(reader) => reader.fetch(key).await,
                Driver::MySql(reader) => reader.fetch(key).await,
                Driver::Sqlite(reader) => reader.fetch(key).await,
            }
        })
        .await
    }

    async fn form_conflict(&self, form: KeyForm) -> Result<Option<String>, BackendError> {
        self.within_timeout(async {
            match &self.driver {
                Driver::MySql(reader) => reader.conflict(form).await,
                Driver::Postgres(_) | Driver::Sqlite(_) => Ok(None),
            }
        })
        .await
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Each part with its length, so that no two sequences of parts are the same bytes.
fn fingerprint(url: &SecretUrl, query: &str) -> u64 {
    let mut hasher = Xxh3Default::new();
    for part in ["sql", url.redacted().as_str(), query] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.update(&RENDERING.to_le_bytes());
    hasher.digest()
}

/// How one kind of database reads a row.
trait Rows: Send + Sync + 'static {
    type Connection: Connection + 'static;
    /// What is learnt of the query once: parameter, columns, and the statement that is really run.
    type Plan: Send + Sync;

    fn describe(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<Self::Plan, SqlError>> + Send;

    fn read(
        &self,
        connection: &mut Self::Connection,
        plan: &Self::Plan,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Value>, SqlError>> + Send;

    /// Why what the query compares the key with takes keys for equal that `form` tells apart, as far as the plan shows it.
    fn conflict(&self, _plan: &Self::Plan, _form: KeyForm) -> Option<String> {
        None
    }
}

/// Runs one query over a pool of connections.
#[derive(Debug)]
struct Reader<R: Rows> {
    rows: R,
    pool: Pool<R::Connection>,
    /// Empty until the database was first reached, and after the tables changed.
    plan: Mutex<Option<Arc<R::Plan>>>,
}

impl<R: Rows> Reader<R> {
    const fn new(rows: R, pool: Pool<R::Connection>) -> Self {
        Self { rows, pool, plan: Mutex::new(None) }
    }

    /// Tries twice where the first failure may come of what this process remembers: a connection that died while idle, or a
    /// plan older than the tables.
    async fn fetch(&self, key: &Key) -> Result<Option<Value>, SqlError> {
        let mut last_try = false;
        loop {
            let mut lease = self.pool.acquire().await?;
            let known = self.plan.lock().clone();
            let result = self.read(lease.connection(), known.clone(), key).await;
            let lost = result.as_ref().is_err_and(SqlError::is_unavailable);
            let outdated = known.is_some() && result.as_ref().is_err_and(SqlError::is_stale);
            let reused = lease.is_reused();
            if lost {
                lease.discard()
            } else {
                lease.finish()
            }
            if lost && reused {
                self.pool.discard_idle();
            }
            if outdated {
                *self.plan.lock() = None;
            }
            if last_try || !(outdated || (lost && reused)) {
                return result;
            }
            last_try = true;
        }
    }

    async fn conflict(&self, form: KeyForm) -> Result<Option<String>, SqlError> {
        let mut lease = self.pool.acquire().await?;
        let described = self.rows.describe(lease.connection()).await;
        if described.as_ref().is_err_and(SqlError::is_unavailable) {
            lease.discard();
        } else {
            lease.finish();
        }
        let plan = Arc::new(described?);
        *self.plan.lock() = Some(Arc::clone(&plan));
        Ok(self.rows.conflict(&plan, form))
    }

    async fn read(&self, connection: &mut R::Connection, known: Option<Arc<R::Plan>>, key: &Key) -> Result<Option<Value>, SqlError> {
        let plan = match known {
            Some(plan) => plan,
            // Several first lookups may each describe the query; nobody waits for another's connection.
            None => {
                let plan = Arc::new(self.rows.describe(connection).await?);
                *self.plan.lock() = Some(Arc::clone(&plan));
                plan
            }
        };
        self.rows.read(connection, &plan, key).await
    }
}

/// Refuses names that would be one and the same member of a JSON object.
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
