//! Keys of SQLite.

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteStatement};
use sqlx::{AssertSqlSafe, Executor, Row, SqlSafeStr, Statement};

use super::{Batcher, Keys, next_row, next_scanned};
use crate::key::KeyForm;
use crate::source::SourceError;
use crate::sql::sqlite::{Affinity, Stored, declared_type, first_column_collation};
use crate::sql::{Connector, Dialect, SqlError, body};

/// A query whose first column is a key.
#[derive(Debug)]
pub(super) struct SqliteKeys {
    options: SqliteConnectOptions,
    query: String,
}

impl SqliteKeys {
    pub(super) fn new(options: SqliteConnectOptions, query: &str) -> Result<Self, SqlError> {
        let unusable = |why: String| SqlError::invalid(format!("the query can't be used: {why}"));
        let (query, parameters) = body(query, Dialect::Sqlite).map_err(unusable)?;
        if !parameters.is_empty() {
            return Err(unusable("it takes parameters, and there are none to give".to_owned()));
        }
        Ok(Self { options, query: query.to_owned() })
    }

    async fn describe(&self, connection: &mut SqliteConnection) -> Result<SqliteStatement, SqlError> {
        let described = connection.prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        if described.columns().is_empty() {
            return Err(SqlError::invalid("the query returns no columns: it must be a SELECT"));
        }
        Ok(described)
    }

    /// The query with its first column under a name of ours.
    fn keys(&self, columns: usize) -> String {
        let others: String = (1..columns).map(|i| format!(", c{i}")).collect();
        format!("WITH keys(c0{others}) AS ({}\n)", self.query)
    }
}

impl Keys for SqliteKeys {
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

    async fn form_conflict(&self, connection: &mut SqliteConnection, form: KeyForm) -> Result<Option<String>, SourceError> {
        let described = self.describe(connection).await?;
        if form == KeyForm::Text
            && let Some(collation) = first_column_collation(connection, &self.keys(described.columns().len())).await?
        {
            let mend =
                if collation == "NOCASE" { "set key = \"text-ci\"" } else { "compare it COLLATE BINARY in source and backend query" };
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

    /// One statement, so one snapshot.
    async fn scan(&self, connection: &mut SqliteConnection, mut batcher: Batcher) -> Result<u64, SourceError> {
        let described = self.describe(connection).await?;
        // Other columns need not be copied.
        let statement = format!("{} SELECT c0 FROM keys", self.keys(described.columns().len()));
        let mut rows = sqlx::query(AssertSqlSafe(statement)).persistent(false).fetch(connection);
        let mut raw = Vec::new();
        while let Some(row) = next_scanned(&mut rows, &mut batcher).await? {
            let present = {
                let value = row.try_get_raw(0).map_err(SqlError::from)?;
                let stored = Stored::read(value).map_err(|error| batcher.unreadable(error))?;
                stored.write_key(&mut raw).map_err(|why| batcher.unreadable(why))?
            };
            if present {
                batcher.push(&raw).await?;
            }
        }
        batcher.finish().await
    }
}
