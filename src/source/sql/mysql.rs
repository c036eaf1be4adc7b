//! Keys of MySQL and MariaDB.

use sqlx::mysql::{MySqlColumn, MySqlConnection, MySqlStatement};
use sqlx::{AssertSqlSafe, Column, Either, Executor, Row, SqlSafeStr, Statement, TypeInfo, ValueRef};

use super::{
    Batcher, KeyQuery, KeyReader, TAKES_PARAMETERS, close, next_row, next_scanned, unusable, without_parameters,
};
use crate::key::KeyForm;
use crate::source::SourceError;
use crate::sql::mysql::{ColumnInfo, MySqlKeyType, MySqlSession, collation, column_info, conflict, write_key};
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

    /// The query with a fixed name for its first column, then `rest`.
    fn statement(&self, columns: usize, rest: &str) -> AssertSqlSafe<String> {
        let others: String = (1..columns).map(|i| format!(", c{i}")).collect();
        AssertSqlSafe(format!("WITH bloomguard_keys (bloomguard_key{others}) AS ({}\n) {rest}", self.query))
    }
}

impl KeyQuery for MySqlKeys {
    type Connection = MySqlConnection;

    fn connector(&self) -> &impl Connector<MySqlConnection> {
        &self.session
    }

    async fn key_form(&self, connection: &mut MySqlConnection) -> Result<Option<KeyForm>, SourceError> {
        let described = self.describe(connection).await?;
        let (column, kind) = key_column(&described)?;
        Ok(match kind {
            MySqlKeyType::Integer => Some(KeyForm::Integer),
            // The type does not show whether it holds fractions.
            MySqlKeyType::Decimal => None,
            MySqlKeyType::Text if column_info(connection, column).await?.data_type.as_deref() == Some("uuid") => {
                Some(KeyForm::Uuid)
            }
            MySqlKeyType::Text => Some(KeyForm::Text),
            MySqlKeyType::Binary => Some(KeyForm::Bytes),
        })
    }

    async fn form_conflict(
        &self,
        connection: &mut MySqlConnection,
        form: KeyForm,
    ) -> Result<Option<String>, SourceError> {
        let described = self.describe(connection).await?;
        let (column, kind) = key_column(&described)?;
        let mut column_info = column_info(connection, column).await?;
        if kind == MySqlKeyType::Text {
            // The collation of the query and not of its column: the query may give it another one.
            let collation = collation(connection, &self.query, described.columns().len(), 0).await?;
            column_info = ColumnInfo { collation, ..column_info };
        }
        Ok(conflict(kind, &column_info, form))
    }

    async fn count(&self, connection: &mut MySqlConnection) -> Result<u64, SourceError> {
        let described = self.describe(connection).await?;
        let statement = self.statement(described.columns().len(), "SELECT count(bloomguard_key) FROM bloomguard_keys");
        let mut rows = sqlx::query_scalar::<_, i64>(statement).persistent(false).fetch(connection);
        let counted = next_row(&mut rows).await?.unwrap_or(0);
        Ok(u64::try_from(counted).unwrap_or(0))
    }

    /// One statement, so one snapshot. Its rows are sent as they are read, and neither side holds them.
    async fn scan(&self, reader: &KeyReader<Self>, mut batcher: Batcher) -> Result<u64, SourceError> {
        let mut connection = reader.connect().await?;
        self.select(&mut connection, &mut batcher).await?;
        close(connection, batcher.finish().await).await
    }
}

impl MySqlKeys {
    async fn select(&self, connection: &mut MySqlConnection, batcher: &mut Batcher) -> Result<(), SourceError> {
        let described = self.describe(connection).await?;
        let (_, kind) = key_column(&described)?;
        // Other columns need not be sent.
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

fn key_column(described: &MySqlStatement) -> Result<(&MySqlColumn, MySqlKeyType), SqlError> {
    let column = described
        .columns()
        .first()
        .ok_or_else(|| SqlError::invalid("the query returns no columns: it must be a SELECT"))?;
    let kind = MySqlKeyType::of(column.type_info()).ok_or_else(|| {
        let (name, type_name) = (column.name(), column.type_info().name());
        SqlError::invalid(format!(
            "column \"{name}\" is of type {type_name}, which can't be a key: cast it to CHAR in the source's query"
        ))
    })?;
    Ok((column, kind))
}
