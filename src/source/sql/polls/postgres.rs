//! Polls of PostgreSQL.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgConnectOptions, PgConnection, PgRow, PgTypeInfo, PgTypeKind};
use sqlx::{
    AssertSqlSafe, Column, Connection, Either, Encode, Executor, Postgres, Row, SqlSafeStr, Statement, Type, TypeInfo,
    ValueRef,
};

use super::rows::RowBatcher;
use super::unseen::Unseen;
use super::{Look, PolledDatabase, SourceError, WatermarkKind, next_row};
use crate::config::IncrementalConfig;
use crate::source::incremental::Watermark;
use crate::sql::postgres::{PostgresKeyType, write_key};
use crate::sql::{Connector, SqlError};
use crate::sqltext::{Dialect, SingleStatement};

/// 2000-01-01, PostgreSQL's epoch, in microseconds since 1970.
const EPOCH: i64 = 946_684_800_000_000;

/// Open transactions of this database, except those that write no rows of a table: our own scans and vacuum. Then those
/// without a known begin, see [`Unseen`], each with the latest moment before its begin, or by which it had begun.
const LOOK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8, \
     coalesce((SELECT (extract(epoch FROM max(clock_timestamp() - xact_start)) * 1000000)::int8 FROM pg_stat_activity \
       WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type NOT IN ('autovacuum worker', 'walsender') \
       AND NOT (usename = current_user AND application_name = 'bloomguard')), 0), \
     pg_is_in_recovery(), pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), \
     array(SELECT unseen.id || ' ' || (extract(epoch FROM unseen.since) * 1000000)::int8 FROM ( \
       SELECT locks.virtualxid AS id, backend_start AS since FROM pg_locks AS locks JOIN pg_stat_activity USING (pid) \
         WHERE locktype = 'virtualxid' AND virtualxid = virtualtransaction AND state = 'disabled' \
         AND datname = current_database() AND pid <> pg_backend_pid() AND backend_type NOT IN ('autovacuum worker', 'walsender') \
         AND NOT (usename = current_user AND application_name = 'bloomguard') \
       UNION ALL SELECT 'prepared/' || transaction, prepared FROM pg_prepared_xacts WHERE database = current_database()) AS unseen)";

/// A query whose columns are key and watermark.
pub(super) struct PostgresFeed {
    options: PgConnectOptions,
    query: String,
    unseen: Mutex<Unseen>,
}

/// Without the options, which include the password.
impl std::fmt::Debug for PostgresFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresFeed")
    }
}

impl PostgresFeed {
    pub(super) fn new(options: PgConnectOptions, config: &IncrementalConfig) -> Result<Self, SqlError> {
        let query = SingleStatement::parse(&config.query, Dialect::Postgres)
            .map_err(|why| SqlError::invalid(format!("the incremental query can't be used: {why}")))?;
        Ok(Self { options, query: query.text.to_owned(), unseen: Mutex::default() })
    }
}

/// The description of the query.
#[derive(Debug)]
pub(super) struct PostgresShape {
    key: PostgresKeyType,
    kind: WatermarkKind,
    parameter: PgTypeInfo,
}

impl PolledDatabase for PostgresFeed {
    type Connection = PgConnection;
    type Shape = PostgresShape;

    fn connector(&self) -> &impl Connector<PgConnection> {
        &self.options
    }

    /// One transaction a poll, which keeps to one server connection behind a pooler. Each statement sees what is
    /// committed when it begins: a snapshot older than the look at open transactions would miss commits between the
    /// two.
    async fn begin(&self, connection: &mut PgConnection) -> Result<(), SqlError> {
        sqlx::raw_sql("BEGIN READ ONLY, ISOLATION LEVEL READ COMMITTED").execute(&mut *connection).await?;
        sqlx::raw_sql("SET LOCAL statement_timeout = 0").execute(connection).await?;
        Ok(())
    }

    async fn end(&self, connection: &mut PgConnection) -> Result<(), SqlError> {
        sqlx::raw_sql("COMMIT").execute(connection).await?;
        Ok(())
    }

    async fn describe(&self, connection: &mut PgConnection) -> Result<(WatermarkKind, PostgresShape), SqlError> {
        let described = connection.prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        // Nothing prepared may outlive the transaction behind a pooler.
        connection.clear_cached_statements().await?;
        let [key, watermark, ..] = described.columns() else {
            return Err(SqlError::invalid("the incremental query must return two columns, key and watermark"));
        };
        let Some(Either::Left([parameter])) = described.parameters() else {
            return Err(SqlError::invalid("the incremental query must take one parameter, the watermark"));
        };
        let kind = kind_of(watermark.type_info())
            .ok_or_else(|| SqlError::invalid(super::no_watermark(watermark.name(), watermark.type_info().name())))?;
        if kind_of(parameter) != Some(kind) {
            let (name, other) = (watermark.type_info().name(), parameter.name());
            return Err(SqlError::invalid(format!(
                "the watermark is of type {name} and compared with a parameter of type {other}: cast one"
            )));
        }
        let name = key.type_info().name();
        let key = PostgresKeyType::of(key.type_info()).ok_or_else(|| {
            SqlError::invalid(format!("the first column is of type {name}, which can't be a key: cast it to text"))
        })?;
        Ok((kind, PostgresShape { key, kind, parameter: parameter.clone() }))
    }

    async fn look(&self, connection: &mut PgConnection) -> Result<Look, SqlError> {
        let row = sqlx::query(LOOK).persistent(false).fetch_one(connection).await?;
        let (now, seen): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let (unseen, prepared_before) = self.unseen.lock().look(now, seen, &row.try_get::<Vec<String>, _>(4)?);
        let hidden = if row.try_get(2)? {
            Some("the source is a replica, which does not show the transactions that are open at its primary")
        } else if row.try_get(3)? {
            prepared_before.then_some(
                "a transaction had been prepared before polls began, and the database does not tell when it was begun",
            )
        } else {
            Some("the database's user may not see other users' transactions: GRANT pg_read_all_stats to it")
        };
        Ok(Look { now, open_for: Duration::from_micros(u64::try_from(seen.max(unseen)).unwrap_or(0)), hidden })
    }

    async fn highest(
        &self,
        connection: &mut PgConnection,
        kind: WatermarkKind,
        query: &str,
    ) -> Result<Option<Watermark>, SourceError> {
        let query =
            SingleStatement::parse(query, Dialect::Postgres).map_err(|why| SqlError::invalid(why.to_string()))?;
        let Some(row) = sqlx::query(AssertSqlSafe(query.text))
            .persistent(false)
            .fetch_optional(connection)
            .await
            .map_err(SqlError::from)?
        else {
            return Ok(None);
        };
        let told = row.columns().first().and_then(|column| kind_of(column.type_info()));
        if !told.is_some_and(|told| std::mem::discriminant(&told) == std::mem::discriminant(&kind)) {
            return Err(SourceError::Invalid(format!(
                "the watermark query does not tell a value of type {}",
                kind.name()
            )));
        }
        Ok(watermark(&row, 0, kind)?)
    }

    async fn rows(
        &self,
        connection: &mut PgConnection,
        shape: &PostgresShape,
        from: &Watermark,
        sink: &mut RowBatcher,
    ) -> Result<(), SourceError> {
        let statement = format!(
            "SELECT q.bloomguard_key, q.bloomguard_mark FROM ({}\n) AS q (bloomguard_key, bloomguard_mark)",
            self.query
        );
        let argument = WatermarkArgument::new(from, &shape.parameter)?;
        let mut rows = sqlx::query(AssertSqlSafe(statement)).bind(argument).persistent(false).fetch(connection);
        let mut raw = Vec::new();
        while let Some(row) = next_row(&mut rows).await? {
            let mark = watermark(&row, 1, shape.kind)?;
            let value = row.try_get_raw(0).map_err(SqlError::from)?;
            let present = !value.is_null();
            if present {
                value
                    .as_bytes()
                    .and_then(|bytes| write_key(shape.key, bytes, &mut raw))
                    .map_err(|error| sink.unreadable(error))?;
            }
            sink.push(present.then_some(&raw), mark.as_ref()).await?;
        }
        Ok(())
    }
}

fn kind_of(info: &PgTypeInfo) -> Option<WatermarkKind> {
    match info.name().to_ascii_lowercase().as_str() {
        "int2" | "int4" | "int8" => Some(WatermarkKind::Integer),
        "timestamptz" => Some(WatermarkKind::Timestamp { zoned: true }),
        "timestamp" => Some(WatermarkKind::Timestamp { zoned: false }),
        "text" | "varchar" | "name" | "char" => Some(WatermarkKind::Text),
        _ => match info.kind() {
            PgTypeKind::Domain(base) => kind_of(base),
            _ => None,
        },
    }
}

fn watermark(row: &PgRow, column: usize, kind: WatermarkKind) -> Result<Option<Watermark>, SqlError> {
    let value = row.try_get_raw(column)?;
    if value.is_null() {
        return Ok(None);
    }
    let unreadable = |error: BoxDynError| SqlError::invalid(format!("the watermark can't be read: {error}"));
    let bytes = value.as_bytes().map_err(unreadable)?;
    Ok(Some(match kind {
        WatermarkKind::Text => Watermark::Text(String::from_utf8_lossy(bytes).into_owned()),
        WatermarkKind::Integer => Watermark::Integer(integer(bytes).map_err(unreadable)?.into()),
        // The two infinities are the ends of the range.
        WatermarkKind::Timestamp { .. } => {
            Watermark::Timestamp(integer(bytes).map_err(unreadable)?.saturating_add(EPOCH))
        }
    }))
}

fn integer(bytes: &[u8]) -> Result<i64, BoxDynError> {
    Ok(match *bytes {
        [a, b] => i16::from_be_bytes([a, b]).into(),
        [a, b, c, d] => i32::from_be_bytes([a, b, c, d]).into(),
        _ => i64::from_be_bytes(bytes.try_into()?),
    })
}

/// A watermark as a value of the parameter's own type, so that an index on the column can be used.
#[derive(Debug)]
struct WatermarkArgument {
    info: PgTypeInfo,
    bytes: Bytes,
}

impl WatermarkArgument {
    fn new(watermark: &Watermark, parameter: &PgTypeInfo) -> Result<Self, SqlError> {
        let (info, bytes) = match watermark {
            Watermark::Integer(number) => {
                let wide =
                    i64::try_from(*number).map_err(|_| SqlError::invalid("the watermark does not fit a bigint"))?;
                (<i64 as Type<Postgres>>::type_info(), Bytes::copy_from_slice(&wide.to_be_bytes()))
            }
            Watermark::Timestamp(micros) => {
                (parameter.clone(), Bytes::copy_from_slice(&micros.saturating_sub(EPOCH).to_be_bytes()))
            }
            Watermark::Text(text) => (parameter.clone(), Bytes::copy_from_slice(text.as_bytes())),
        };
        Ok(Self { info, bytes })
    }
}

impl Type<Postgres> for WatermarkArgument {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }
}

impl Encode<'_, Postgres> for WatermarkArgument {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        Encode::<Postgres>::encode(&self.bytes[..], buf)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.info.clone())
    }
}
