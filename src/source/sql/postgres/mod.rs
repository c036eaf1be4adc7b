//! Keys of PostgreSQL.

mod copy;

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, TryStreamExt as _};
use sqlx::postgres::{PgColumn, PgConnectOptions, PgConnection, PgStatement};
use sqlx::{
    AssertSqlSafe, Column, Connection, Either, Executor, Row, SqlSafeStr, Statement, Transaction, TypeInfo, ValueRef,
};

use self::copy::{Copied, Next};
use super::{
    Batcher, KeyQuery, KeyReader, LONGEST_SILENCE, TAKES_PARAMETERS, close, next_row, next_scanned, next_wanted,
    silent, unusable,
};
use crate::key::KeyForm;
use crate::source::SourceError;
use crate::sql::postgres::{PostgresKeyType, write_key};
use crate::sql::{Connector, SqlError};
use crate::sqltext::{Dialect, SingleStatement};

/// How often, and how soon, to reconnect while the previous connection may still count.
const RECONNECTS: usize = 20;
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A query whose first column is a key.
pub(super) struct PostgresKeys {
    options: PgConnectOptions,
    query: String,
}

/// Without the options, which include the password.
impl std::fmt::Debug for PostgresKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresKeys")
    }
}

impl PostgresKeys {
    pub(super) fn new(options: PgConnectOptions, query: &str) -> Result<Self, SqlError> {
        let query = SingleStatement::parse(query, Dialect::Postgres).map_err(unusable)?;
        Ok(Self { options, query: query.text.to_owned() })
    }

    /// One transaction a call: it keeps to one server connection behind a pooler, and lifts its role's time limit for
    /// itself.
    async fn begin<'c>(&self, connection: &'c mut PgConnection) -> Result<Transaction<'c, sqlx::Postgres>, SqlError> {
        let mut transaction = connection.begin_with("BEGIN READ ONLY").await?;
        sqlx::raw_sql("SET LOCAL statement_timeout = 0").execute(&mut *transaction).await?;
        Ok(transaction)
    }

    async fn describe(&self, connection: &mut PgConnection) -> Result<PgStatement, SqlError> {
        let described = connection.prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        // Nothing prepared may outlive the transaction behind a pooler.
        connection.clear_cached_statements().await?;
        match described.parameters() {
            Some(Either::Left([])) => Ok(described),
            _ => Err(unusable(TAKES_PARAMETERS)),
        }
    }
}

impl KeyQuery for PostgresKeys {
    type Connection = PgConnection;

    fn connector(&self) -> &impl Connector<PgConnection> {
        &self.options
    }

    async fn key_form(&self, connection: &mut PgConnection) -> Result<Option<KeyForm>, SourceError> {
        let mut transaction = self.begin(connection).await?;
        let described = self.describe(&mut transaction).await?;
        let (_, kind) = key_column(&described)?;
        Ok(match kind {
            PostgresKeyType::Integer => Some(KeyForm::Integer),
            // The type does not show whether it holds fractions.
            PostgresKeyType::Numeric => None,
            PostgresKeyType::Text | PostgresKeyType::Padded => Some(KeyForm::Text),
            PostgresKeyType::TextCi => Some(KeyForm::TextCi),
            PostgresKeyType::Uuid => Some(KeyForm::Uuid),
            PostgresKeyType::Bytes => Some(KeyForm::Bytes),
        })
    }

    async fn form_conflict(&self, connection: &mut PgConnection, form: KeyForm) -> Result<Option<String>, SourceError> {
        let mut transaction = self.begin(connection).await?;
        let described = self.describe(&mut transaction).await?;
        let (column, kind) = key_column(&described)?;
        let (what, mend) = match kind {
            PostgresKeyType::Padded if !matches!(form, KeyForm::Integer | KeyForm::Uuid) => {
                ("of type CHAR(n)", "cast it to text in source and backend query")
            }
            PostgresKeyType::TextCi if matches!(form, KeyForm::Text | KeyForm::Bytes) => {
                ("of type citext", "set key = \"text-ci\", or cast it to text in source and backend query")
            }
            PostgresKeyType::Text
                if matches!(form, KeyForm::Text | KeyForm::Bytes)
                    && has_nondeterministic_collation(&mut transaction, column).await? =>
            {
                (
                    "under a nondeterministic collation",
                    "compare it under a deterministic one, such as COLLATE \"C\", in source and backend query",
                )
            }
            PostgresKeyType::Uuid if form != KeyForm::Uuid => {
                ("of type uuid", "set key = \"uuid\", or cast it to text in source and backend query")
            }
            PostgresKeyType::Numeric if form != KeyForm::Integer => (
                "of type numeric",
                "set key = \"integer\" where it holds whole numbers, or cast it to text in source and backend query",
            ),
            _ => return Ok(None),
        };
        Ok(Some(format!("the key column is {what}: it matches keys that key form \"{form}\" tells apart; {mend}")))
    }

    async fn count(&self, connection: &mut PgConnection) -> Result<u64, SourceError> {
        let mut transaction = self.begin(connection).await?;
        let statement = format!("SELECT count(keys.bloomguard_key) FROM ({}\n) AS keys (bloomguard_key)", self.query);
        let mut rows =
            sqlx::query_scalar::<_, i64>(AssertSqlSafe(statement)).persistent(false).fetch(&mut *transaction);
        let counted = next_row(&mut rows).await?.unwrap_or(0);
        Ok(u64::try_from(counted).unwrap_or(0))
    }

    /// One statement, so one snapshot. By `COPY` if the server supports it, which costs both sides less than a
    /// `SELECT`.
    async fn scan(&self, reader: &KeyReader<Self>, mut batcher: Batcher) -> Result<u64, SourceError> {
        let mut connection = reader.connect().await?;
        if let Copying::Refused(why) = self.copy(&mut connection, &mut batcher).await? {
            tracing::debug!(%why, "scanning by SELECT, as the server refuses COPY");
            // After a COPY that did not begin, the driver is out of step with the server. A role may be limited to one
            // connection, and the server takes time to notice that this one is gone.
            drop(connection);
            connection = reconnect(reader).await?;
            self.select(&mut connection, &mut batcher).await?;
        }
        close(connection, batcher.finish().await).await
    }
}

/// Result of an attempt to copy.
enum Copying {
    /// Every key was sent.
    Ended,
    /// No key was sent: other servers with PostgreSQL's protocol, and poolers, may not know this statement.
    Refused(String),
}

impl PostgresKeys {
    async fn copy(&self, connection: &mut PgConnection, batcher: &mut Batcher) -> Result<Copying, SourceError> {
        let mut transaction = self.begin(connection).await?;
        let described = self.describe(&mut transaction).await?;
        let (_, kind) = key_column(&described)?;
        // It runs as a simple query, which may be several statements. `describe` has shown that the configured one is
        // not.
        let statement = format!("COPY ({}) TO STDOUT (FORMAT binary)", self.keys());
        let begun = tokio::select! {
            begun = tokio::time::timeout(LONGEST_SILENCE, transaction.copy_out_raw(&statement)) => begun.map_err(|_| silent())?,
            () = batcher.closed() => return Err(SourceError::Cancelled),
        };
        let mut messages = match begun.map_err(SqlError::from) {
            Ok(messages) => messages,
            Err(SqlError::Invalid { message, .. }) => return Ok(Copying::Refused(message)),
            Err(error) => return Err(error.into()),
        };
        let mut copied = Copied::default();
        loop {
            match next_wanted(&mut messages, batcher).await? {
                Some(message) => copied.add(message),
                // Not even the head of an empty copy: this server writes another format.
                None => return Ok(Copying::Refused("a copy ended before its head".to_owned())),
            }
            match copied.head() {
                Ok(true) => break,
                Ok(false) => {}
                Err(why) => return Ok(Copying::Refused(why.to_owned())),
            }
        }
        let mut raw = Vec::new();
        loop {
            match copied.next().map_err(|why| SourceError::Invalid(why.to_owned()))? {
                Next::Field(value) => {
                    batcher.begin_row();
                    write_key(kind, value, &mut raw).map_err(|error| batcher.unreadable(error))?;
                    if let Some(full) = batcher.add(&raw)? {
                        batcher.send(full).await?;
                    }
                }
                Next::Null => batcher.begin_row(),
                Next::End => break,
                Next::Nothing => copied.add(match messages.try_next().now_or_never() {
                    // Almost always. A future for each row would slow the scan.
                    Some(Ok(Some(message))) => message,
                    Some(ended) => whole(ended.map_err(SqlError::from)?)?,
                    None => next_message(&mut messages, batcher).await?,
                }),
            }
        }
        // The server may still report a failure.
        match next_wanted(&mut messages, batcher).await? {
            None => Ok(Copying::Ended),
            Some(_) => Err(SourceError::Invalid("a copy goes on behind its trailer".to_owned())),
        }
    }

    async fn select(&self, connection: &mut PgConnection, batcher: &mut Batcher) -> Result<(), SourceError> {
        let mut transaction = self.begin(connection).await?;
        let described = self.describe(&mut transaction).await?;
        let (_, kind) = key_column(&described)?;
        let mut rows = sqlx::query(AssertSqlSafe(self.keys())).persistent(false).fetch(&mut *transaction);
        let mut raw = Vec::new();
        while let Some(row) = next_scanned(&mut rows, batcher).await? {
            let value = row.try_get_raw(0).map_err(SqlError::from)?;
            if value.is_null() {
                continue;
            }
            value
                .as_bytes()
                .and_then(|bytes| write_key(kind, bytes, &mut raw))
                .map_err(|error| batcher.unreadable(error))?;
            batcher.push(&raw).await?;
        }
        Ok(())
    }

    /// The query's first column alone: others need not be sent.
    fn keys(&self) -> String {
        format!("SELECT keys.bloomguard_key FROM ({}\n) AS keys (bloomguard_key)", self.query)
    }
}

async fn reconnect(reader: &KeyReader<PostgresKeys>) -> Result<PgConnection, SourceError> {
    for _ in 0..RECONNECTS {
        if let Ok(connection) = reader.connect().await {
            return Ok(connection);
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
    reader.connect().await
}

/// The next part of a copy. The stream's end is not the copy's end: without its trailer a copy is cut short, and a
/// shorter list of keys would be wrong.
async fn next_message<S>(messages: &mut S, batcher: &Batcher) -> Result<Bytes, SourceError>
where
    S: Stream<Item = Result<Bytes, sqlx::Error>> + Unpin + Send,
{
    whole(next_wanted(messages, batcher).await?)
}

fn whole(message: Option<Bytes>) -> Result<Bytes, SourceError> {
    message.ok_or_else(|| SourceError::Unavailable("the database ended a copy before its trailer".to_owned()))
}

fn key_column(described: &PgStatement) -> Result<(&PgColumn, PostgresKeyType), SqlError> {
    let column = described
        .columns()
        .first()
        .ok_or_else(|| SqlError::invalid("the query returns no columns: it must be a SELECT"))?;
    let kind = PostgresKeyType::of(column.type_info()).ok_or_else(|| {
        let (name, type_name) = (column.name(), column.type_info().name());
        SqlError::invalid(format!(
            "column \"{name}\" is of type {type_name}, which can't be a key: cast it to text in the source's query"
        ))
    })?;
    Ok((column, kind))
}

/// Of a table's own column; an expression's collation is unknown.
async fn has_nondeterministic_collation(connection: &mut PgConnection, column: &PgColumn) -> Result<bool, SqlError> {
    let (Some(table), Some(number)) = (column.relation_id(), column.relation_attribute_no()) else { return Ok(false) };
    let found: Option<bool> = sqlx::query_scalar(
        "SELECT NOT c.collisdeterministic FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation WHERE a.attrelid = $1 AND a.attnum = $2",
    )
    .bind(table)
    .bind(number)
    .persistent(false)
    .fetch_optional(connection)
    .await?;
    Ok(found.unwrap_or(false))
}
