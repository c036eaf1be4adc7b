//! Rows of MySQL and MariaDB, rendered by column type.

mod batch;
mod render;

use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use sqlx::mysql::{MySqlArguments, MySqlColumn, MySqlConnection, MySqlRow};
use sqlx::{
    Arguments, AssertSqlSafe, Column, Connection, Either, Executor, MySql, Row, SqlSafeStr, SqlStr, Statement, Type,
    TypeInfo,
};

use self::batch::MySqlBatch;
use self::render::{object, raw};
use super::reader::{Answer, Answers, RowQuery, counted, each_row};
use super::{RAW_COLUMN, unique_names};
use crate::backend::context::RowBudget;
use crate::backend::{ContentType, Value};
use crate::key::{Key, KeyForm};
use crate::sql::SqlError;
use crate::sql::mysql::{
    MySqlArgument, MySqlKeyType, MySqlParameter, TableColumn, collation, column_info, comparison, is_json_text,
    is_mariadb,
};
use crate::sqltext::{Dialect, SingleStatement};

/// No error shows that the compared column has another type now, so the query is described again at this interval.
const PLAN_LIFETIME: Duration = Duration::from_secs(60);
/// A plan this young is not described again for a column that it does not know.
const FRESH: Duration = Duration::from_secs(1);

/// A query of MySQL.
#[derive(Debug)]
pub(super) struct MySqlRows {
    query: SqlStr,
    form: Arc<OnceLock<KeyForm>>,
    /// Whether statements are kept prepared.
    kept: bool,
    refusal_logged: Arc<Once>,
}

/// The description of the query. It is run unchanged: MariaDB drops the order of a query that is wrapped in another.
#[derive(Debug)]
pub(super) struct MySqlPlan {
    parameter: MySqlParameter,
    /// Text columns, and whether they were declared JSON.
    texts: Vec<(TableColumn, bool)>,
    columns: Vec<MySqlColumn>,
    batch: MySqlBatch,
    described: Instant,
}

impl MySqlRows {
    pub(super) fn new(query: &str, form: Arc<OnceLock<KeyForm>>, kept: bool) -> Result<Self, SqlError> {
        let unusable = |why: String| SqlError::invalid(format!("the query can't be used: {why}"));
        let SingleStatement { text: query, parameters } =
            SingleStatement::parse(query, Dialect::MySql).map_err(|why| unusable(why.to_string()))?;
        match parameters.as_slice() {
            ["?"] => {}
            [] => return Err(unusable("it takes no parameter: write the key as ?".to_owned())),
            others if others.iter().any(|other| other.starts_with('$')) => {
                return Err(unusable(format!("MySQL writes a parameter as ?, not {}", others.join(", "))));
            }
            others => {
                return Err(unusable(format!("it takes {} parameters instead of one, the key as ?", others.len())));
            }
        }
        Ok(Self { query: AssertSqlSafe(query).into_sql_str(), form, kept, refusal_logged: Arc::new(Once::new()) })
    }

    fn form(&self) -> Result<KeyForm, SqlError> {
        self.form
            .get()
            .copied()
            .ok_or_else(|| SqlError::Unavailable("the form of the keys is not known yet".to_owned()))
    }

    /// The column that the key is compared with, if the query's text shows it.
    async fn parameter(&self, connection: &mut MySqlConnection) -> Result<MySqlParameter, SqlError> {
        let Some(comparison) = comparison(self.query.as_str()) else { return Ok(MySqlParameter::default()) };
        let described =
            (&mut *connection).prepare(AssertSqlSafe(comparison.as_str()).into_sql_str()).await.map_err(SqlError::from);
        // Not every part of a query is a query of its own.
        let Some(described) = unless_invalid(described)? else { return Ok(MySqlParameter::default()) };
        let Some(column) = described.columns().first() else { return Ok(MySqlParameter::default()) };
        let mut column_info = column_info(connection, column).await?;
        // For views and other expressions the catalogue has nothing, and the query may give the column another
        // collation.
        if MySqlKeyType::of(column.type_info()) == Some(MySqlKeyType::Text)
            && let Some(told) = unless_invalid(collation(connection, &comparison, 1, 1).await)?
        {
            column_info.collation = told;
        }
        MySqlParameter::compared_with(column.type_info(), column_info)
            .map_err(|why| SqlError::invalid(format!("the query can't be used: {why}")))
    }

    /// Reads all rows: an error behind the first row must not reach the connection's next user.
    async fn first_row(
        &self,
        connection: &mut MySqlConnection,
        arguments: MySqlArguments,
    ) -> Result<Option<MySqlRow>, sqlx::Error> {
        let mut rows = sqlx::query_with(self.query.clone(), arguments).persistent(self.kept).fetch(connection);
        let first = rows.try_next().await?;
        while rows.try_next().await?.is_some() {}
        Ok(first)
    }
}

impl RowQuery for MySqlRows {
    type Connection = MySqlConnection;
    type Plan = MySqlPlan;

    const BATCH: usize = batch::LIMIT;

    async fn describe(&self, connection: &mut MySqlConnection) -> Result<MySqlPlan, SqlError> {
        // A kept description would be returned again after the tables have changed.
        connection.clear_cached_statements().await?;
        let described = (&mut *connection).prepare(self.query.clone()).await?;
        let parameters = described.parameters().and_then(Either::right).unwrap_or_default();
        if parameters != 1 {
            return Err(SqlError::invalid(format!(
                "the query can't be used: it takes {parameters} parameters instead of one, the key as ?"
            )));
        }
        unique_names(described.columns().iter().map(Column::name), |a, b| a == b)?;
        let parameter = self.parameter(connection).await?;
        let mut texts = Vec::new();
        let candidates: Vec<TableColumn> = described.columns().iter().filter_map(json_candidate).collect();
        if !candidates.is_empty() {
            // MySQL has a type of its own for JSON.
            let mariadb = is_mariadb(connection).await?;
            for column in candidates {
                let json = mariadb && is_json_text(connection, &column).await?;
                texts.push((column, json));
            }
        }
        connection.clear_cached_statements().await?;
        let columns = described.columns().to_vec();
        let batch = MySqlBatch::of(self.query.as_str(), Arc::clone(&self.refusal_logged));
        Ok(MySqlPlan { parameter, texts, columns, batch, described: Instant::now() })
    }

    async fn read(&self, connection: &mut MySqlConnection, plan: &MySqlPlan, key: &Key) -> Answer {
        if plan.described.elapsed() > PLAN_LIFETIME {
            return Err(outdated());
        }
        let argument = plan.parameter.bind(self.form()?, key).map_err(SqlError::invalid)?;
        let mut arguments = MySqlArguments::default();
        bind(&mut arguments, argument)?;
        let Some(row) = self.first_row(connection, arguments).await? else { return Ok(None) };
        plan.value(&row, row.columns()).map(Some)
    }

    async fn read_many(
        &self,
        connection: &mut MySqlConnection,
        plan: &MySqlPlan,
        keys: &[Key],
        room: &mut RowBudget,
    ) -> Result<Option<Answers>, SqlError> {
        if plan.described.elapsed() > PLAN_LIFETIME {
            return Err(outdated());
        }
        if !plan.batch.settled(connection, &plan.columns).await? {
            return Ok(None);
        }
        let mut answers: Answers = vec![Some(Ok(None)); keys.len()];
        let (mut places, mut bound) = (Vec::new(), Vec::new());
        let form = self.form()?;
        for (place, key) in keys.iter().enumerate() {
            match plan.parameter.bind(form, key) {
                Ok(argument) => {
                    places.push(place);
                    bound.push(argument);
                }
                Err(why) => answers[place] = Some(Err(SqlError::invalid(why))),
            }
        }
        if bound.is_empty() {
            return Ok(Some(answers));
        }
        let Some(statement) = plan.batch.statement(&mut bound) else { return Ok(None) };
        let mut arguments = MySqlArguments::default();
        for argument in bound {
            bind(&mut arguments, argument)?;
        }
        let mut found = vec![false; places.len()];
        let mut readable = true;
        let answer = |row: MySqlRow| {
            if !batch::has_columns_of(&plan.columns, row.columns()) {
                return Err(outdated());
            }
            // A column has another type now. A single lookup sees this at once, a plan when it is renewed.
            readable = readable && batch::can_be_read_as(&plan.columns, row.columns());
            if !readable {
                return Ok(());
            }
            let ordinal: i64 = row.try_get(plan.columns.len())?;
            let ordinal = usize::try_from(ordinal).map_err(|error| SqlError::invalid(error.to_string()))?;
            // The first of a key's rows. Those behind the last key are padding.
            if found.get(ordinal) == Some(&false) {
                found[ordinal] = true;
                // Without room it is not rendered, and not called absent.
                answers[places[ordinal]] =
                    if room.is_full() { None } else { Some(counted(plan.value(&row, &plan.columns), room)) };
            }
            Ok(())
        };
        each_row(sqlx::query_with(statement, arguments).persistent(self.kept).fetch(connection), answer).await?;
        Ok(readable.then_some(answers))
    }

    fn is_single(&self, plan: &MySqlPlan) -> bool {
        plan.batch.is_refused()
    }

    fn conflict(&self, plan: &MySqlPlan, form: KeyForm) -> Option<String> {
        plan.parameter.conflict(form)
    }
}

impl MySqlPlan {
    /// The row's first columns, rendered as `columns`.
    fn value(&self, row: &MySqlRow, columns: &[MySqlColumn]) -> Result<Value, SqlError> {
        if let [only] = columns
            && only.name() == RAW_COLUMN
        {
            return Ok(Value { body: raw(row, only)?, content_type: ContentType::OctetStream });
        }
        let mut json = Vec::with_capacity(columns.len());
        for column in columns {
            json.push(match self.is_json(column) {
                Some(json) => json,
                None if self.described.elapsed() > FRESH => return Err(outdated()),
                None => false,
            });
        }
        Ok(Value { body: object(row, columns, &json)?, content_type: ContentType::Json })
    }

    /// Whether a column holds JSON as text; `None` if the plan does not know the column.
    fn is_json(&self, column: &MySqlColumn) -> Option<bool> {
        let Some(origin) = json_candidate(column) else { return Some(false) };
        self.texts.iter().find(|(known, _)| *known == origin).map(|(_, json)| *json)
    }
}

fn outdated() -> SqlError {
    SqlError::Invalid { message: "the tables keep changing".to_owned(), stale: true }
}

fn bind(arguments: &mut MySqlArguments, argument: MySqlArgument) -> Result<(), SqlError> {
    arguments.add(argument).map_err(|error| SqlError::invalid(format!("the key can't be bound: {error}")))
}

/// `None` if the statement did not fit; other errors stay errors.
fn unless_invalid<T>(result: Result<T, SqlError>) -> Result<Option<T>, SqlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(SqlError::Invalid { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A column that may hold MariaDB's JSON: LONGTEXT with a check, which the protocol calls a BLOB of text.
fn json_candidate(column: &MySqlColumn) -> Option<TableColumn> {
    let info = column.type_info();
    let long =
        matches!(info.name(), "LONGTEXT" | "LONGBLOB" | "TEXT" | "BLOB") && <str as Type<MySql>>::compatible(info);
    if long { TableColumn::of(column) } else { None }
}
