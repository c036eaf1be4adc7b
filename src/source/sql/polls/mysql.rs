//! Polls of MySQL and MariaDB.

use std::time::Duration;

use sqlx::mysql::{MySqlConnection, MySqlRow, MySqlTypeInfo};
use sqlx::{AssertSqlSafe, Column, Either, Executor, Row, SqlSafeStr, Statement, TypeInfo, ValueRef};

use super::rows::{RowBatcher, parse_timestamp, write_timestamp};
use super::{Look, PolledDatabase, SourceError, WatermarkKind, next_row};
use crate::config::IncrementalConfig;
use crate::source::incremental::Watermark;
use crate::sql::mysql::{MySqlKeyType, MySqlSession, write_key};
use crate::sql::{Connector, SqlError};
use crate::sqltext::{Dialect, SingleStatement};

/// The session's zone is UTC. A server that accepts no writes is usually a replica.
const CLOCK: &str = "SELECT CAST(NOW(6) AS CHAR), CAST(@@global.read_only AS CHAR)";
/// Times of transactions are in the server's own zone and without fraction.
const TRANSACTIONS: &str = "SELECT CAST(MAX(TIMESTAMPDIFF(SECOND, trx_started, CONVERT_TZ(NOW(), '+00:00', 'SYSTEM'))) AS SIGNED) \
     FROM information_schema.innodb_trx WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_is_read_only = 0";
/// One second for the lost fraction, and one for a transaction that is not in the server's list yet, which is renewed
/// every tenth.
const ROUNDED: Duration = Duration::from_secs(2);

/// A query whose columns are key and watermark.
#[derive(Debug)]
pub(super) struct MySqlFeed {
    session: MySqlSession,
    query: String,
}

impl MySqlFeed {
    pub(super) fn new(session: MySqlSession, config: &IncrementalConfig) -> Result<Self, SqlError> {
        let query = SingleStatement::parse(&config.query, Dialect::MySql)
            .map_err(|why| SqlError::invalid(format!("the incremental query can't be used: {why}")))?;
        Ok(Self { session, query: query.text.to_owned() })
    }
}

/// The description of the query.
#[derive(Debug)]
pub(super) struct MySqlShape {
    key: MySqlKeyType,
    kind: WatermarkKind,
    columns: usize,
}

impl PolledDatabase for MySqlFeed {
    type Connection = MySqlConnection;
    type Shape = MySqlShape;

    fn connector(&self) -> &impl Connector<MySqlConnection> {
        &self.session
    }

    /// Each statement is a transaction of its own, and so sees what is committed when it begins.
    async fn begin(&self, _: &mut MySqlConnection) -> Result<(), SqlError> {
        Ok(())
    }

    async fn end(&self, _: &mut MySqlConnection) -> Result<(), SqlError> {
        Ok(())
    }

    async fn describe(&self, connection: &mut MySqlConnection) -> Result<(WatermarkKind, MySqlShape), SqlError> {
        let described = connection.prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        let [key, watermark, ..] = described.columns() else {
            return Err(SqlError::invalid("the incremental query must return two columns, key and watermark"));
        };
        if !matches!(described.parameters(), Some(Either::Right(1))) {
            return Err(SqlError::invalid("the incremental query must take one parameter, the watermark"));
        }
        let kind = kind_of(watermark.type_info())
            .ok_or_else(|| SqlError::invalid(super::no_watermark(watermark.name(), watermark.type_info().name())))?;
        let name = key.type_info().name();
        let key = MySqlKeyType::of(key.type_info()).ok_or_else(|| {
            SqlError::invalid(format!("the first column is of type {name}, which can't be a key: cast it to CHAR"))
        })?;
        Ok((kind, MySqlShape { key, kind, columns: described.columns().len() }))
    }

    async fn look(&self, connection: &mut MySqlConnection) -> Result<Look, SqlError> {
        let row = sqlx::query(CLOCK).persistent(false).fetch_one(&mut *connection).await?;
        let (now, read_only): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let now = parse_timestamp(&now).ok_or_else(|| SqlError::invalid("the database's clock can't be read"))?;
        let (open_for, hidden) = match open_for(connection).await {
            Ok(open_for) if matches!(read_only.as_str(), "0" | "OFF") => (open_for, None),
            Ok(open_for) => (
                open_for,
                Some(
                    "the source is read only, as replicas are, and they don't show the transactions that are open at their primary",
                ),
            ),
            Err(SqlError::Invalid { .. }) => {
                (Duration::ZERO, Some("the database's user may not see transactions: GRANT PROCESS ON *.* to it"))
            }
            Err(error) => return Err(error),
        };
        Ok(Look { now, open_for, hidden })
    }

    async fn highest(
        &self,
        connection: &mut MySqlConnection,
        kind: WatermarkKind,
        query: &str,
    ) -> Result<Option<Watermark>, SourceError> {
        let query =
            SingleStatement::parse(query, Dialect::MySql).map_err(|why| SqlError::invalid(why.to_string()))?.text;
        let statement = format!("WITH bloomguard_mark (m) AS ({query}\n) SELECT CAST(m AS CHAR) FROM bloomguard_mark");
        let row = sqlx::query(AssertSqlSafe(statement))
            .persistent(false)
            .fetch_optional(connection)
            .await
            .map_err(SqlError::from)?;
        let Some(text) =
            row.map(|row| row.try_get::<Option<String>, _>(0)).transpose().map_err(SqlError::from)?.flatten()
        else {
            return Ok(None);
        };
        let unfit =
            || SourceError::Invalid(format!("the watermark query does not tell a value of type {}", kind.name()));
        read(&text, kind).map(Some).ok_or_else(unfit)
    }

    async fn rows(
        &self,
        connection: &mut MySqlConnection,
        shape: &MySqlShape,
        from: &Watermark,
        sink: &mut RowBatcher,
    ) -> Result<(), SourceError> {
        let others: String = (2..shape.columns).map(|i| format!(", c{i}")).collect();
        let statement = AssertSqlSafe(format!(
            "WITH bloomguard_rows (bloomguard_key, bloomguard_mark{others}) AS ({}\n) \
             SELECT bloomguard_key, CAST(bloomguard_mark AS CHAR) FROM bloomguard_rows",
            self.query
        ));
        let query = match from {
            Watermark::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => sqlx::query(statement).bind(number),
                (_, Ok(number)) => sqlx::query(statement).bind(number),
                _ => return Err(SourceError::Invalid("the watermark does not fit a bigint".to_owned())),
            },
            Watermark::Timestamp(micros) => sqlx::query(statement).bind(write_timestamp(*micros)),
            Watermark::Text(text) => sqlx::query(statement).bind(text.clone()),
        };
        let mut rows = query.persistent(false).fetch(connection);
        let mut raw = Vec::new();
        while let Some(row) = next_row(&mut rows).await? {
            let mark = mark(&row, shape.kind)?;
            let value = row.try_get_raw(0).map_err(SqlError::from)?;
            let present = !value.is_null();
            if present {
                write_key(shape.key, sink.form(), value, &mut raw).map_err(|error| sink.unreadable(error))?;
            }
            sink.push(present.then_some(&raw), mark.as_ref()).await?;
        }
        Ok(())
    }
}

async fn open_for(connection: &mut MySqlConnection) -> Result<Duration, SqlError> {
    let oldest: Option<i64> = sqlx::query_scalar(TRANSACTIONS).persistent(false).fetch_one(connection).await?;
    Ok(oldest.map_or(Duration::ZERO, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)) + ROUNDED))
}

fn kind_of(info: &MySqlTypeInfo) -> Option<WatermarkKind> {
    match (info.name(), MySqlKeyType::of(info)) {
        ("TIMESTAMP", _) => Some(WatermarkKind::Timestamp { zoned: true }),
        ("DATETIME", _) => Some(WatermarkKind::Timestamp { zoned: false }),
        (_, Some(MySqlKeyType::Integer)) => Some(WatermarkKind::Integer),
        (_, Some(MySqlKeyType::Text)) => Some(WatermarkKind::Text),
        _ => None,
    }
}

/// `None` also for an impossible date, such as 0000-00-00.
fn mark(row: &MySqlRow, kind: WatermarkKind) -> Result<Option<Watermark>, SqlError> {
    Ok(row.try_get::<Option<String>, _>(1)?.and_then(|text| read(&text, kind)))
}

fn read(text: &str, kind: WatermarkKind) -> Option<Watermark> {
    match kind {
        WatermarkKind::Integer => text.parse().ok().map(Watermark::Integer),
        WatermarkKind::Timestamp { .. } => parse_timestamp(text).map(Watermark::Timestamp),
        WatermarkKind::Text => Some(Watermark::Text(text.to_owned())),
    }
}
