//! Rows of PostgreSQL, which renders them itself: no type is unknown to it, and numbers stay exact.

use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{Arguments, AssertSqlSafe, Column, Connection, Either, Executor, Row, SqlSafeStr, SqlStr, Statement, TypeInfo, ValueRef};

use super::{RAW_COLUMN, Rows, unique_names};
use crate::backend::{ContentType, Value};
use crate::key::Key;
use crate::sql::postgres::Parameter;
use crate::sql::{Dialect, SqlError, body, identifier};

/// A query of PostgreSQL.
#[derive(Debug)]
pub(super) struct PostgresRows {
    query: String,
    /// Statements may be prepared under a name and kept. Behind a transaction-mode pooler they may not: each transaction can
    /// run on another server connection.
    named: bool,
}

/// What is run instead of the query, and how its answer is read.
#[derive(Debug)]
pub(super) struct Plan {
    statement: SqlStr,
    parameter: Parameter,
    content_type: ContentType,
}

impl PostgresRows {
    pub(super) fn new(query: &str, named: bool) -> Result<Self, SqlError> {
        let (query, _) = body(query, Dialect::Postgres).map_err(|why| SqlError::invalid(format!("the query can't be used: {why}")))?;
        Ok(Self { query: query.to_owned(), named })
    }

    async fn row(&self, connection: &mut PgConnection, statement: SqlStr, arguments: PgArguments) -> Result<Option<PgRow>, sqlx::Error> {
        if self.named {
            return sqlx::query_with(statement, arguments).fetch_optional(connection).await;
        }
        // The driver prepares and runs in two round trips; the transaction keeps both on one server connection.
        let mut transaction = connection.begin().await?;
        let row = sqlx::query_with(statement, arguments).persistent(false).fetch_optional(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(row)
    }
}

impl Rows for PostgresRows {
    type Connection = PgConnection;
    type Plan = Plan;

    async fn describe(&self, connection: &mut PgConnection) -> Result<Plan, SqlError> {
        let mut transaction = connection.begin().await?;
        let described = (&mut *transaction).prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        // What the driver keeps of it would be told again when the tables have changed, and a pooler must not see it survive.
        transaction.clear_cached_statements().await?;
        transaction.rollback().await?;

        let parameter = match described.parameters() {
            Some(Either::Left([only])) => Parameter::new(only.clone()),
            Some(Either::Left(others)) => Err(format!("it takes {} parameters instead of one, the key as $1", others.len())),
            _ => Err("its parameters are unknown".to_owned()),
        };
        let parameter = parameter.map_err(|why| SqlError::invalid(format!("the query can't be used: {why}")))?;
        unique_names(described.columns().iter().map(Column::name), |a, b| a == b)?;
        let (statement, content_type) = match described.columns() {
            [only] if only.name() == RAW_COLUMN => (raw(&self.query, only.type_info().name()), ContentType::OctetStream),
            columns => {
                let columns: Vec<_> = columns.iter().map(|column| (column.name(), column.type_info().name())).collect();
                (object(&self.query, &columns), ContentType::Json)
            }
        };
        Ok(Plan { statement: AssertSqlSafe(statement).into_sql_str(), parameter, content_type })
    }

    async fn read(&self, connection: &mut PgConnection, plan: &Plan, key: &Key) -> Result<Option<Value>, SqlError> {
        let Some(argument) = plan.parameter.bind(key).map_err(SqlError::invalid)? else { return Ok(None) };
        let mut arguments = PgArguments::default();
        arguments.add(argument).map_err(|error| SqlError::invalid(format!("the key can't be bound: {error}")))?;
        let Some(row) = self.row(connection, plan.statement.clone(), arguments).await? else { return Ok(None) };
        let rendered = row.try_get_raw(0)?;
        let body = if rendered.is_null() {
            Bytes::new()
        } else {
            Bytes::copy_from_slice(rendered.as_bytes().map_err(|error| SqlError::invalid(error.to_string()))?)
        };
        Ok(Some(Value { body, content_type: plan.content_type.clone() }))
    }
}

/// Names that no column has: PostgreSQL takes a name for a column's before it takes it for a row's.
const ROW: &str = "bloomguard_row";
const OBJECT: &str = "bloomguard_object";

/// Binary values of these types are the bytes themselves; all others are sent as PostgreSQL writes them.
fn raw(query: &str, type_name: &str) -> String {
    let verbatim = ["TEXT", "VARCHAR", "CHAR", "NAME", "BYTEA", "CITEXT"].iter().any(|name| type_name.eq_ignore_ascii_case(name));
    let cast = if verbatim { "" } else { "::text" };
    format!("SELECT {ROW}.{RAW_COLUMN}{cast} FROM ({query}\n) AS {ROW} LIMIT 1")
}

/// The line break keeps a comment at the query's end from swallowing what follows it.
fn object(query: &str, columns: &[(&str, &str)]) -> String {
    // Without `bytea` the row is taken whole, so that a column added later appears by itself under `SELECT *`.
    if columns.iter().all(|(_, type_name)| *type_name != "BYTEA") {
        return format!("SELECT row_to_json({ROW})::text FROM ({query}\n) AS {ROW} LIMIT 1");
    }
    let rendered: Vec<String> = columns
        .iter()
        .map(|(name, type_name)| {
            let name = identifier(name);
            // `encode` breaks lines as MIME does.
            if *type_name == "BYTEA" {
                format!("translate(encode({ROW}.{name}, 'base64'), E'\\n', '') AS {name}")
            } else {
                format!("{ROW}.{name}")
            }
        })
        .collect();
    format!("SELECT row_to_json({OBJECT})::text FROM (SELECT {} FROM ({query}\n) AS {ROW} LIMIT 1) AS {OBJECT}", rendered.join(", "))
}
