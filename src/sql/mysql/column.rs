//! What the server's catalogue knows about a column and the protocol does not send.

use sqlx::mysql::{MySqlColumn, MySqlConnection};
use sqlx::{AssertSqlSafe, Column, ColumnOrigin, Row};

use crate::sql::SqlError;

/// What the catalogue has on a column. Empty for expressions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnInfo {
    /// In lower case, without length: `varchar`, `uuid`.
    pub data_type: Option<String>,
    /// Characters of a text type, bytes of a binary one.
    pub length: Option<u64>,
    /// Of a text type.
    pub collation: Option<String>,
}

/// A table's own column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableColumn {
    schema: String,
    table: String,
    name: String,
}

impl TableColumn {
    /// `None` for an expression.
    #[must_use]
    pub fn of(column: &MySqlColumn) -> Option<Self> {
        let ColumnOrigin::Table(origin) = column.origin() else { return None };
        let (schema, table) = origin.table.split_once('.')?;
        Some(Self { schema: schema.to_owned(), table: table.to_owned(), name: origin.name.to_string() })
    }
}

/// # Errors
/// [`SqlError`] if the catalogue can't be read.
pub async fn column_info(connection: &mut MySqlConnection, column: &MySqlColumn) -> Result<ColumnInfo, SqlError> {
    let Some(TableColumn { schema, table, name }) = TableColumn::of(column) else { return Ok(ColumnInfo::default()) };
    // The casts: server versions differ in the types of their catalogues.
    let row = sqlx::query(
        "SELECT CAST(data_type AS CHAR), CAST(character_maximum_length AS SIGNED), CAST(collation_name AS CHAR) \
         FROM information_schema.columns WHERE table_schema = ? AND table_name = ? AND column_name = ? LIMIT 1",
    )
    .bind(schema)
    .bind(table)
    .bind(name)
    .persistent(false)
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(ColumnInfo::default()) };
    let data_type: Option<String> = row.try_get(0)?;
    let length: Option<i64> = row.try_get(1)?;
    Ok(ColumnInfo {
        data_type: data_type.map(|name| name.to_lowercase()),
        length: length.and_then(|length| u64::try_from(length).ok()),
        collation: row.try_get(2)?,
    })
}

/// The collation of the first of a query's `columns`, which may be an expression.
///
/// Asks the query itself, with NULL for its parameters. The join reads no row.
///
/// # Errors
/// [`SqlError`].
pub async fn collation(
    connection: &mut MySqlConnection,
    query: &str,
    columns: usize,
    parameters: usize,
) -> Result<Option<String>, SqlError> {
    let others: String = (1..columns).map(|i| format!(", c{i}")).collect();
    let statement = format!(
        "WITH bloomguard_query (c0{others}) AS ({query}\n) SELECT COLLATION(c0) FROM (SELECT 1 AS one) AS o LEFT JOIN bloomguard_query ON FALSE"
    );
    let mut asked = sqlx::query_scalar(AssertSqlSafe(statement)).persistent(false);
    for _ in 0..parameters {
        asked = asked.bind(None::<&str>);
    }
    Ok(asked.fetch_one(connection).await?)
}

/// # Errors
/// [`SqlError`].
pub async fn is_mariadb(connection: &mut MySqlConnection) -> Result<bool, SqlError> {
    let version: String =
        sqlx::query_scalar("SELECT CAST(VERSION() AS CHAR)").persistent(false).fetch_one(connection).await?;
    Ok(version.contains("MariaDB"))
}

/// Returns true if a column was declared JSON on MariaDB, where JSON is text with a check.
///
/// # Errors
/// [`SqlError`].
pub async fn is_json_text(connection: &mut MySqlConnection, column: &TableColumn) -> Result<bool, SqlError> {
    let found: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM information_schema.check_constraints \
         WHERE constraint_schema = ? AND table_name = ? AND check_clause = CONCAT('json_valid(`', ?, '`)')",
    )
    .bind(&column.schema)
    .bind(&column.table)
    .bind(&column.name)
    .persistent(false)
    .fetch_one(connection)
    .await?;
    Ok(found > 0)
}
