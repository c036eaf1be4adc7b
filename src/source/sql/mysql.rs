//! Keys of MySQL and MariaDB.

use sqlx::mysql::{MySqlColumn, MySqlConnection, MySqlStatement};
use sqlx::{AssertSqlSafe, Column, Either, Executor, Row, SqlSafeStr, Statement, TypeInfo, ValueRef};

use super::{Batcher, Keys, Reader, TAKES_PARAMETERS, close, next_row, next_scanned, unusable, without_parameters};
use crate::key::KeyForm;
use crate::source::SourceError;
use crate::sql::mysql::{Facts, KeyType, MySqlSession, collation, conflict, facts, write_key};
use crate::sql::{Connector, SqlError};
use crate::sqltext::Dialect;

/// A query whose first column is a key.
#[derive(Debug)]
pub(super) struct MySqlKeys {
    session: MySqlSession,
    query: String,
}

impl MySqlKeys {
    pub(super) fn new(session: MySqlSession, query: &str) -> Result<Self, SqlError> {
        Ok(Self { session, query: without_parameters(query, Dialect::MySql)? })
    }

    async fn describe(&self, connection: &mut MySqlConnection) -> Result<MySqlStatement, SqlError> {
        let described = connection.prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        match described.parameters() {
            Some(Either::Right(0)) => Ok(described),
            _ => Err(unusable(TAKES_PARAMETERS)),
        }
    }

    /// The query with its first column under a name of ours, then `rest`.
    fn statement(&self, columns: usize, rest: &str) -> AssertSqlSafe<String> {
        let others: String = (1..columns).map(|i| format!(", c{i}")).collect();
        AssertSqlSafe(format!("WITH bloomguard_keys (bloomguard_key{others}) AS ({}\n) {rest}", self.query))
    }
}

impl Keys for MySqlKeys {
    type Connection = MySqlConnection;

    fn connector(&self) -> &impl Connector<MySqlConnection> {
        &self.session
    }

    async fn key_form(&self, connection: &mut MySqlConnection) -> Result<Option<KeyForm>, SourceError> {
        let described = self.describe(connection).await?;
        let (column, kind) = key_column(&described)?;
        Ok(match kind {
            KeyType::Integer => Some(KeyForm::Integer),
            // Whether it holds fractions its type does not tell.
            KeyType::Decimal => None,
            KeyType::Text if facts(connection, column).await?.data_type.as_deref() == Some("uuid") => {
                Some(KeyForm::Uuid)
            }
            KeyType::Text => Some(KeyForm::Text),
            KeyType::Binary => Some(KeyForm::Bytes),
        })
    }

    async fn form_conflict(
        &self,
        connection: &mut MySqlConnection,
        form: KeyForm,
    ) -> Result<Option<String>, SourceError> {
        let described = self.describe(connection).await?;
        let (column, kind) = key_column(&described)?;
        let mut facts = facts(connection, column).await?;
        if kind == KeyType::Text {
            // Of the query and not of its column, which it may give another one.
            let collation = collation(connection, &self.query, described.columns().len(), 0).await?;
            facts = Facts { collation, ..facts };
        }
        Ok(conflict(kind, &facts, form))
    }

    async fn count(&self, connection: &mut MySqlConnection) -> Result<u64, SourceError> {
        let described = self.describe(connection).await?;
        let statement = self.statement(described.columns().len(), "SELECT count(bloomguard_key) FROM bloomguard_keys");
        let mut rows = sqlx::query_scalar::<_, i64>(statement).persistent(false).fetch(connection);
        let counted = next_row(&mut rows).await?.unwrap_or(0);
        Ok(u64::try_from(counted).unwrap_or(0))
    }

    /// One statement, so one snapshot; its rows are sent as they are read, and held by neither side.
    async fn scan(&self, reader: &Reader<Self>, mut batcher: Batcher) -> Result<u64, SourceError> {
        let mut connection = reader.connect().await?;
        self.select(&mut connection, &mut batcher).await?;
        close(connection, batcher.finish().await).await
    }
}

impl MySqlKeys {
    async fn select(&self, connection: &mut MySqlConnection, batcher: &mut Batcher) -> Result<(), SourceError> {
        let described = self.describe(connection).await?;
        let (_, kind) = key_column(&described)?;
        // Other columns need not travel.
        let statement = self.statement(described.columns().len(), "SELECT bloomguard_key FROM bloomguard_keys");
        let mut rows = sqlx::query(statement).persistent(false).fetch(connection);
        let mut raw = Vec::new();
        while let Some(row) = next_scanned(&mut rows, batcher).await? {
            let value = row.try_get_raw(0).map_err(SqlError::from)?;
            if value.is_null() {
                continue;
            }
            write_key(kind, batcher.form(), value, &mut raw).map_err(|error| batcher.unreadable(error))?;
            batcher.push(&raw).await?;
        }
        Ok(())
    }
}

fn key_column(described: &MySqlStatement) -> Result<(&MySqlColumn, KeyType), SqlError> {
    let column = described
        .columns()
        .first()
        .ok_or_else(|| SqlError::invalid("the query returns no columns: it must be a SELECT"))?;
    let kind = KeyType::of(column.type_info()).ok_or_else(|| {
        let (name, type_name) = (column.name(), column.type_info().name());
        SqlError::invalid(format!(
            "column \"{name}\" is of type {type_name}, which can't be a key: cast it to CHAR in the source's query"
        ))
    })?;
    Ok((column, kind))
}
