//! Keys listed by a SQL query: [`SqlSource`].

mod mysql;
mod polls;
mod postgres;
mod reader;
mod sqlite;

use async_trait::async_trait;

use self::mysql::MySqlKeys;
pub use self::polls::SqlPolls;
use self::postgres::PostgresKeys;
use self::reader::KeyReader;
use self::sqlite::SqliteKeys;
use super::{KeyBatches, KeySource, SourceError};
use crate::config::{SecretUrl, SourceConfig};
use crate::key::KeyForm;
use crate::sql::{Database, Purpose};

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
