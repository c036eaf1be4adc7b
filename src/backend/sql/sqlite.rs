//! Rows of SQLite, rendered by storage class and declared type.

use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde_json::value::RawValue;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Column, Connection, Executor, Row, SqlSafeStr, SqlStr, Statement};

use super::reader::RowQuery;
use super::{RAW_COLUMN, unique_names};
use crate::backend::{ContentType, Value};
use crate::key::{Key, KeyForm};
use crate::sql::SqlError;
use crate::sql::sqlite::{SqliteArgument, StoredValue, declared_type};
use crate::sqltext::{Dialect, SingleStatement};

/// A query of SQLite.
#[derive(Debug)]
pub(super) struct SqliteRows {
    query: String,
    form: Arc<OnceLock<KeyForm>>,
}

/// The statement that is run instead of the query, and its columns.
#[derive(Debug)]
pub(super) struct SqlitePlan {
    statement: SqlStr,
    columns: Vec<Field>,
    /// Changes with every change of a table.
    schema_version: i64,
}

#[derive(Debug)]
struct Field {
    /// As JSON writes it.
    name: String,
    declared: Arc<str>,
    raw: bool,
}

impl SqliteRows {
    pub(super) fn new(query: &str, form: Arc<OnceLock<KeyForm>>) -> Result<Self, SqlError> {
        let unusable = |why: String| SqlError::invalid(format!("the query can't be used: {why}"));
        let SingleStatement { text: query, parameters } =
            SingleStatement::parse(query, Dialect::Sqlite).map_err(|why| unusable(why.to_string()))?;
        // SQLite reads an unbound parameter as NULL, which finds no row: a false absence.
        match parameters.as_slice() {
            ["?"] => {}
            [first, rest @ ..] if matches!(*first, "?1" | "$1") && rest.iter().all(|other| other == first) => {}
            [] => return Err(unusable("it takes no parameter: write the key as $1".to_owned())),
            others => {
                return Err(unusable(format!(
                    "its parameters are {}: the key is the only one, written $1",
                    others.join(", ")
                )));
            }
        }
        Ok(Self { query: query.to_owned(), form })
    }
}

impl RowQuery for SqliteRows {
    type Connection = SqliteConnection;
    type Plan = SqlitePlan;

    async fn describe(&self, connection: &mut SqliteConnection) -> Result<SqlitePlan, SqlError> {
        // First of all: any change from here on makes the plan outdated.
        let schema_version =
            sqlx::query_scalar("PRAGMA schema_version").persistent(false).fetch_one(&mut *connection).await?;
        // A kept description would be returned again after the tables have changed.
        connection.clear_cached_statements().await?;
        let described = connection.prepare(AssertSqlSafe(self.query.as_str()).into_sql_str()).await?;
        connection.clear_cached_statements().await?;
        unique_names(described.columns().iter().map(Column::name), |a, b| a == b)?;
        let mut columns = Vec::with_capacity(described.columns().len());
        for column in described.columns() {
            let name = serde_json::to_string(column.name()).map_err(|error| SqlError::invalid(error.to_string()))?;
            let raw = described.columns().len() == 1 && column.name() == RAW_COLUMN;
            columns.push(Field { name, declared: declared_type(connection, column).await?, raw });
        }
        // Columns are named by position. If their number changes, the statement fails, because the driver never updates
        // the columns of a kept statement. Other names or types show by the version.
        let names: Vec<String> = (0..columns.len()).map(|i| format!("c{i}")).collect();
        let names = names.join(", ");
        let statement = format!(
            "WITH q({names}) AS ({}\n) SELECT {names}, (SELECT schema_version FROM pragma_schema_version) FROM q LIMIT 1",
            self.query
        );
        Ok(SqlitePlan { statement: AssertSqlSafe(statement).into_sql_str(), columns, schema_version })
    }

    async fn read(
        &self,
        connection: &mut SqliteConnection,
        plan: &SqlitePlan,
        key: &Key,
    ) -> Result<Option<Value>, SqlError> {
        let form = *self
            .form
            .get()
            .ok_or_else(|| SqlError::Unavailable("the form of the keys is not known yet".to_owned()))?;
        let argument = SqliteArgument::new(form, key).map_err(SqlError::invalid)?;
        let Some(row) = sqlx::query(plan.statement.clone()).bind(argument).fetch_optional(connection).await? else {
            return Ok(None);
        };
        if row.try_get::<i64, _>(plan.columns.len())? != plan.schema_version {
            return Err(SqlError::Invalid { message: "the tables keep changing".to_owned(), stale: true });
        }
        render(&row, &plan.columns).map(Some)
    }
}

fn render(row: &SqliteRow, columns: &[Field]) -> Result<Value, SqlError> {
    let stored = |index: usize, field: &Field| {
        let value = row.try_get_raw(index)?;
        StoredValue::read(value)
            .map_err(|error| SqlError::invalid(format!("column {} can't be read: {error}", field.name)))
    };
    if let [only] = columns
        && only.raw
    {
        return Ok(Value { body: raw(stored(0, only)?), content_type: ContentType::OctetStream });
    }
    let mut json = String::from("{");
    for (index, field) in columns.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str(&field.name);
        json.push(':');
        json.push_str(
            &rendered(stored(index, field)?, &field.declared).map_err(|error| SqlError::invalid(error.to_string()))?,
        );
    }
    json.push('}');
    Ok(Value { body: Bytes::from(json), content_type: ContentType::Json })
}

/// The bytes of a column named `value`: NULL is an empty body.
fn raw(stored: StoredValue<'_>) -> Bytes {
    match stored {
        StoredValue::Null => Bytes::new(),
        StoredValue::Integer(value) => Bytes::from(value.to_string()),
        StoredValue::Real(value) => Bytes::from(value.to_string()),
        StoredValue::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        StoredValue::Blob(bytes) => Bytes::copy_from_slice(bytes),
    }
}

/// One value as JSON. Infinities become null, because JSON has no word for them.
fn rendered(stored: StoredValue<'_>, declared: &str) -> Result<String, serde_json::Error> {
    match stored {
        StoredValue::Null => Ok("null".to_owned()),
        StoredValue::Integer(value @ (0 | 1)) if matches!(declared, "BOOLEAN" | "BOOL") => {
            serde_json::to_string(&(value == 1))
        }
        StoredValue::Integer(value) => Ok(value.to_string()),
        StoredValue::Real(value) => serde_json::to_string(&value),
        StoredValue::Text(text) if declared == "JSON" && serde_json::from_str::<&RawValue>(text).is_ok() => {
            Ok(text.to_owned())
        }
        // Decimals with more digits than a float holds are stored as text.
        StoredValue::Text(text) if matches!(declared, "DECIMAL" | "NUMERIC") && is_json_number(text) => {
            Ok(text.to_owned())
        }
        StoredValue::Text(text) => serde_json::to_string(text),
        StoredValue::Blob(bytes) => match (declared, uuid::Uuid::from_slice(bytes)) {
            ("UUID", Ok(uuid)) => serde_json::to_string(&uuid.hyphenated().to_string()),
            _ => serde_json::to_string(&BASE64_STANDARD.encode(bytes)),
        },
    }
}

fn is_json_number(text: &str) -> bool {
    text.starts_with(|first: char| first == '-' || first.is_ascii_digit())
        && serde_json::from_str::<&RawValue>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rendered_by_class_and_declared_type() {
        let cases: &[(StoredValue<'_>, &str, &str)] = &[
            (StoredValue::Null, "TEXT", "null"),
            (StoredValue::Integer(i64::MAX), "INTEGER", "9223372036854775807"),
            (StoredValue::Integer(1), "BOOLEAN", "true"),
            (StoredValue::Integer(7), "BOOLEAN", "7"),
            (StoredValue::Real(0.1), "REAL", "0.1"),
            (StoredValue::Real(f64::INFINITY), "REAL", "null"),
            (StoredValue::Text("a\"b\u{1}"), "TEXT", "\"a\\\"b\\u0001\""),
            (StoredValue::Text("{\"a\":[1.50]}"), "JSON", "{\"a\":[1.50]}"),
            (StoredValue::Text("{broken"), "JSON", "\"{broken\""),
            (StoredValue::Text("12345678901234567890.12"), "DECIMAL", "12345678901234567890.12"),
            (StoredValue::Text("true"), "DECIMAL", "\"true\""),
            (StoredValue::Blob(b"\x00\xff"), "BLOB", "\"AP8=\""),
            (StoredValue::Blob(&[0x11; 16]), "UUID", "\"11111111-1111-1111-1111-111111111111\""),
        ];
        for (stored, declared, expected) in cases {
            assert_eq!(rendered(*stored, declared).unwrap(), *expected, "{stored:?} as {declared}");
        }
    }

    #[test]
    fn a_query_takes_the_key_and_nothing_else() {
        let new = |query| SqliteRows::new(query, Arc::default());
        for query in [
            "SELECT a FROM t WHERE id = ?",
            "SELECT a FROM t WHERE id = $1 OR id = $1;",
            "SELECT a FROM t WHERE id = ?1",
        ] {
            assert!(new(query).is_ok(), "{query}");
        }
        for query in [
            "SELECT 1",
            "SELECT a FROM t WHERE id = $2",
            "SELECT ? + ?",
            "SELECT $1 + ?1",
            "SELECT :id",
            "SELECT $1; SELECT 2",
        ] {
            assert!(new(query).is_err(), "{query}");
        }
    }
}
