//! Polls of SQLite.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Column, Connection, Executor, Row, SqlSafeStr, Statement};

use super::rows::{RowBatcher, parse_timestamp, write_timestamp};
use super::{Look, PolledDatabase, SourceError, WatermarkKind, next_row};
use crate::config::IncrementalConfig;
use crate::source::incremental::Watermark;
use crate::sql::sqlite::{Affinity, StoredValue, declared_type};
use crate::sql::{Connector, SqlError};
use crate::sqltext::{Dialect, SingleStatement};

/// A query whose columns are key and watermark.
#[derive(Debug)]
pub(super) struct SqliteFeed {
    options: SqliteConnectOptions,
    query: String,
}

impl SqliteFeed {
    pub(super) fn new(options: SqliteConnectOptions, config: &IncrementalConfig) -> Result<Self, SqlError> {
        let query = SingleStatement::parse(&config.query, Dialect::Sqlite)
            .map_err(|why| SqlError::invalid(format!("the incremental query can't be used: {why}")))?;
        Ok(Self { options, query: query.text.to_owned() })
    }

    /// The query with fixed names for its columns.
    fn marked(&self, shape: &SqliteShape) -> String {
        let others: String = (2..shape.columns).map(|i| format!(", c{i}")).collect();
        format!("WITH q(k, m{others}) AS ({}\n)", self.query)
    }
}

/// The description of the query.
#[derive(Debug)]
pub(super) struct SqliteShape {
    kind: WatermarkKind,
    columns: usize,
}

impl PolledDatabase for SqliteFeed {
    type Connection = SqliteConnection;
    type Shape = SqliteShape;

    fn connector(&self) -> &impl Connector<SqliteConnection> {
        &self.options
    }

    async fn begin(&self, connection: &mut SqliteConnection) -> Result<(), SqlError> {
        // A kept description would be returned again after the tables have changed.
        Ok(connection.clear_cached_statements().await?)
    }

    async fn end(&self, _: &mut SqliteConnection) -> Result<(), SqlError> {
        Ok(())
    }

    async fn describe(&self, connection: &mut SqliteConnection) -> Result<(WatermarkKind, SqliteShape), SqlError> {
        let described = connection.prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        let [_, watermark, ..] = described.columns() else {
            return Err(SqlError::invalid("the incremental query must return two columns, key and watermark"));
        };
        let declared = declared_type(connection, watermark).await?;
        let kind = match Affinity::of(&declared) {
            _ if declared.starts_with("DATETIME") || declared.starts_with("TIMESTAMP") => {
                WatermarkKind::Timestamp { zoned: false }
            }
            Affinity::Integer => WatermarkKind::Integer,
            Affinity::Text => WatermarkKind::Text,
            Affinity::Blob | Affinity::Number => {
                return Err(SqlError::invalid(super::no_watermark(watermark.name(), &declared)));
            }
        };
        Ok((kind, SqliteShape { kind, columns: described.columns().len() }))
    }

    /// In SQLite every number is less than every text: a query from a text on leaves numbers out.
    async fn check(&self, connection: &mut SqliteConnection, shape: &SqliteShape) -> Result<(), SqlError> {
        if shape.kind == WatermarkKind::Integer {
            return Ok(());
        }
        let statement = AssertSqlSafe(format!(
            "{} SELECT 1 FROM q WHERE typeof(m) IN ('integer', 'real') LIMIT 1",
            self.marked(shape)
        ));
        let found: Option<i64> =
            sqlx::query_scalar(statement).bind(i64::MIN).persistent(false).fetch_optional(connection).await?;
        found.map_or(Ok(()), |_| {
            let kind = shape.kind.name();
            Err(SqlError::invalid(format!(
                "the watermark column was declared as {kind} and holds numbers: select CAST(… AS INTEGER) of it"
            )))
        })
    }

    /// One writer at a time: a row stamped within its statement becomes visible before any that is stamped later.
    async fn look(&self, connection: &mut SqliteConnection) -> Result<Look, SqlError> {
        let now: String = sqlx::query_scalar("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')")
            .persistent(false)
            .fetch_one(connection)
            .await?;
        let now = parse_timestamp(&now).ok_or_else(|| SqlError::invalid("the clock can't be read"))?;
        Ok(Look { now, open_for: Duration::ZERO, hidden: None })
    }

    async fn highest(
        &self,
        connection: &mut SqliteConnection,
        kind: WatermarkKind,
        query: &str,
    ) -> Result<Option<Watermark>, SourceError> {
        let query = SingleStatement::parse(query, Dialect::Sqlite).map_err(|why| SqlError::invalid(why.to_string()))?;
        let row = sqlx::query(AssertSqlSafe(query.text))
            .persistent(false)
            .fetch_optional(connection)
            .await
            .map_err(SqlError::from)?;
        let Some(row) = row else { return Ok(None) };
        let value = row.try_get_raw(0).map_err(SqlError::from)?;
        let stored = StoredValue::read(value).map_err(|error| SourceError::Invalid(error.to_string()))?;
        let unfit =
            || SourceError::Invalid(format!("the watermark query does not tell a value of type {}", kind.name()));
        if stored == StoredValue::Null { Ok(None) } else { read(stored, kind).map(Some).ok_or_else(unfit) }
    }

    async fn rows(
        &self,
        connection: &mut SqliteConnection,
        shape: &SqliteShape,
        from: &Watermark,
        sink: &mut RowBatcher,
    ) -> Result<(), SourceError> {
        let statement = AssertSqlSafe(format!("{} SELECT k, m FROM q", self.marked(shape)));
        let query = match from {
            Watermark::Integer(number) => sqlx::query(statement).bind(i64::try_from(*number).unwrap_or(i64::MIN)),
            Watermark::Timestamp(micros) => sqlx::query(statement).bind(write_timestamp(*micros)),
            Watermark::Text(text) => sqlx::query(statement).bind(text.clone()),
        };
        let mut rows = query.persistent(false).fetch(connection);
        let mut raw = Vec::new();
        while let Some(row) = next_row(&mut rows).await? {
            let (present, mark) = {
                let stored = |column| {
                    let value = row.try_get_raw(column).map_err(SqlError::from)?;
                    StoredValue::read(value).map_err(|error| sink.unreadable(error))
                };
                let mark = read(stored(1)?, shape.kind);
                (stored(0)?.write_key(&mut raw).map_err(|why| sink.unreadable(why))?, mark)
            };
            sink.push(present.then_some(&raw), mark.as_ref()).await?;
        }
        Ok(())
    }
}

/// `None` for a value of another class than its column was declared with.
fn read(stored: StoredValue<'_>, kind: WatermarkKind) -> Option<Watermark> {
    match (kind, stored) {
        (WatermarkKind::Integer, StoredValue::Integer(number)) => Some(Watermark::Integer(number.into())),
        (WatermarkKind::Text, StoredValue::Text(text)) => Some(Watermark::Text(text.to_owned())),
        (WatermarkKind::Timestamp { .. }, StoredValue::Text(text)) => parse_timestamp(text).map(Watermark::Timestamp),
        _ => None,
    }
}
