//! Rows of PostgreSQL, which renders them itself: it knows every type, and numbers stay exact.

mod batch;

use std::sync::{Arc, Once};

use bytes::Bytes;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::{
    Arguments, AssertSqlSafe, Column, Connection, Either, Encode, Executor, Postgres, Row, SqlSafeStr, SqlStr,
    Statement, Type, TypeInfo, ValueRef,
};

use self::batch::{KeyArray, PLACE, PostgresBatch, RENDERED};
use super::reader::{Answer, Answers, RowQuery, counted, each_row};
use super::{RAW_COLUMN, unique_names};
use crate::backend::context::RowBudget;
use crate::backend::{ContentType, Value};
use crate::key::Key;
use crate::sql::postgres::PostgresParameter;
use crate::sql::{SqlError, identifier};
use crate::sqltext::{Dialect, SingleStatement};

/// A query of PostgreSQL.
#[derive(Debug)]
pub(super) struct PostgresRows {
    query: String,
    /// Whether statements may be prepared under a name and kept. Not behind a transaction-mode pooler, where each
    /// transaction can run on another server connection.
    named: bool,
    refusal_logged: Arc<Once>,
}

/// The statement that is run instead of the query, and how its answer is read.
#[derive(Debug)]
pub(super) struct PostgresPlan {
    statement: SqlStr,
    parameter: PostgresParameter,
    content_type: ContentType,
    batch: PostgresBatch,
}

impl PostgresRows {
    pub(super) fn new(query: &str, named: bool) -> Result<Self, SqlError> {
        let query = SingleStatement::parse(query, Dialect::Postgres)
            .map_err(|why| SqlError::invalid(format!("the query can't be used: {why}")))?;
        Ok(Self { query: query.text.to_owned(), named, refusal_logged: Arc::new(Once::new()) })
    }

    async fn rows(
        &self,
        connection: &mut PgConnection,
        statement: SqlStr,
        arguments: PgArguments,
        take: impl FnMut(PgRow) -> Result<(), SqlError> + Send,
    ) -> Result<(), SqlError> {
        if self.named {
            return each_row(sqlx::query_with(statement, arguments).fetch(connection), take).await;
        }
        // The driver prepares and runs in two round trips; the transaction keeps both on one server connection.
        let mut transaction = connection.begin().await?;
        each_row(sqlx::query_with(statement, arguments).persistent(false).fetch(&mut *transaction), take).await?;
        transaction.commit().await?;
        Ok(())
    }
}

impl RowQuery for PostgresRows {
    type Connection = PgConnection;
    type Plan = PostgresPlan;

    const BATCH: usize = batch::LIMIT;

    async fn describe(&self, connection: &mut PgConnection) -> Result<PostgresPlan, SqlError> {
        let mut transaction = connection.begin().await?;
        let described = (&mut *transaction).prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        // A kept description would be returned again after the tables have changed, and must not survive behind a
        // pooler.
        transaction.clear_cached_statements().await?;
        transaction.rollback().await?;

        let parameter = match described.parameters() {
            Some(Either::Left([only])) => PostgresParameter::new(only.clone()),
            Some(Either::Left(others)) => {
                Err(format!("it takes {} parameters instead of one, the key as $1", others.len()))
            }
            _ => Err("its parameters are unknown".to_owned()),
        };
        let parameter = parameter.map_err(|why| SqlError::invalid(format!("the query can't be used: {why}")))?;
        unique_names(described.columns().iter().map(Column::name), |a, b| a == b)?;
        let columns: Vec<_> =
            described.columns().iter().map(|column| (column.name(), column.type_info().name())).collect();
        let raw_type = match columns.as_slice() {
            [(RAW_COLUMN, type_name)] => Some(*type_name),
            _ => None,
        };
        let render = |query: &str| raw_type.map_or_else(|| object(query, &columns), |type_name| raw(query, type_name));
        let content_type = if raw_type.is_some() { ContentType::OctetStream } else { ContentType::Json };
        let statement = AssertSqlSafe(render(&self.query)).into_sql_str();
        Ok(PostgresPlan {
            statement,
            parameter,
            content_type,
            batch: PostgresBatch::of(&self.query, render, Arc::clone(&self.refusal_logged)),
        })
    }

    async fn read(&self, connection: &mut PgConnection, plan: &PostgresPlan, key: &Key) -> Answer {
        let Some(argument) = plan.parameter.bind(key).map_err(SqlError::invalid)? else { return Ok(None) };
        let arguments = arguments(argument)?;
        let mut found = None;
        let first = |row: PgRow| {
            found = Some(plan.value(&row, 0)?);
            Ok(())
        };
        self.rows(connection, plan.statement.clone(), arguments, first).await?;
        Ok(found)
    }

    async fn read_many(
        &self,
        connection: &mut PgConnection,
        plan: &PostgresPlan,
        keys: &[Key],
        room: &mut RowBudget,
    ) -> Result<Option<Answers>, SqlError> {
        let Some(asked) = plan.batch.settled(connection, &plan.parameter).await? else { return Ok(None) };
        let mut answers: Answers = vec![Some(Ok(None)); keys.len()];
        let (mut places, mut bound) = (Vec::new(), Vec::new());
        for (place, key) in keys.iter().enumerate() {
            match plan.parameter.bind(key) {
                Ok(Some(argument)) => {
                    places.push(place);
                    bound.push(argument);
                }
                Ok(None) => {}
                Err(why) => answers[place] = Some(Err(SqlError::invalid(why))),
            }
        }
        if bound.is_empty() {
            return Ok(Some(answers));
        }
        let arguments = arguments(KeyArray::new(bound, asked))?;
        let answer = |row: PgRow| {
            // Counted from 1.
            let ordinality: i64 = row.try_get(PLACE)?;
            let place = usize::try_from(ordinality - 1).ok().and_then(|index| places.get(index));
            let place =
                *place.ok_or_else(|| SqlError::invalid("the database answered for a key that it was not asked for"))?;
            // Without room it is not copied, and not called absent.
            answers[place] = if room.is_full() { None } else { Some(counted(plan.value(&row, RENDERED), room)) };
            Ok(())
        };
        self.rows(connection, asked.statement.clone(), arguments, answer).await?;
        Ok(Some(answers))
    }

    fn is_single(&self, plan: &PostgresPlan) -> bool {
        plan.batch.is_refused()
    }
}

impl PostgresPlan {
    fn value(&self, row: &PgRow, column: usize) -> Result<Value, SqlError> {
        let rendered = row.try_get_raw(column)?;
        let body = if rendered.is_null() {
            Bytes::new()
        } else {
            Bytes::copy_from_slice(rendered.as_bytes().map_err(|error| SqlError::invalid(error.to_string()))?)
        };
        Ok(Value { body, content_type: self.content_type.clone() })
    }
}

fn arguments<'t>(argument: impl Encode<'t, Postgres> + Type<Postgres>) -> Result<PgArguments, SqlError> {
    let mut arguments = PgArguments::default();
    arguments.add(argument).map_err(|error| SqlError::invalid(format!("the key can't be bound: {error}")))?;
    Ok(arguments)
}

/// Names that no column has: PostgreSQL prefers a column's name to a row's.
const ROW: &str = "bloomguard_row";
const OBJECT: &str = "bloomguard_object";

/// Binary values of these types are the bytes themselves; all others are sent in PostgreSQL's text form.
fn raw(query: &str, type_name: &str) -> String {
    let verbatim =
        ["TEXT", "VARCHAR", "CHAR", "NAME", "BYTEA", "CITEXT"].iter().any(|name| type_name.eq_ignore_ascii_case(name));
    let cast = if verbatim { "" } else { "::text" };
    format!("SELECT {ROW}.{RAW_COLUMN}{cast} FROM ({query}\n) AS {ROW} LIMIT 1")
}

/// The line break keeps a comment at the query's end from swallowing what follows it.
fn object(query: &str, columns: &[(&str, &str)]) -> String {
    // Without `bytea` the row is rendered as a whole, so that a column added later appears under `SELECT *`.
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
    format!(
        "SELECT row_to_json({OBJECT})::text FROM (SELECT {} FROM ({query}\n) AS {ROW} LIMIT 1) AS {OBJECT}",
        rendered.join(", ")
    )
}
