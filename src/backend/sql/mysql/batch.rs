//! Many keys by one statement: the query once for each, joined by `UNION ALL`.
//!
//! ```sql
//! (SELECT name, email, 0 AS ordinal FROM users WHERE id = ? LIMIT 1) UNION ALL (SELECT name, email, 1 AS ordinal FROM …) … LIMIT …
//! ```
//!
//! Neither a derived table, which loses the query's order on MariaDB and is materialised, nor `LATERAL`, which MariaDB
//! lacks. Each part is a query of its own, with its own index lookup, and the server sends an unsorted union as it
//! reads it. The union's columns have the query's types, but they are expressions: the width of `TINYINT(1)`, the
//! labels of an `ENUM` and the table that distinguishes MariaDB's JSON from text are lost. So its values are read as
//! the query's own columns, which were described with it, if the kinds are the same.

use std::sync::{Arc, Once};

use sqlx::mysql::{MySqlColumn, MySqlConnection};
use sqlx::{AssertSqlSafe, Column, Connection, Executor, SqlSafeStr, SqlStr, Statement};

use super::render::ColumnKind;
use crate::backend::sql::verdict::Verdict;
use crate::sql::mysql::{QueryHalves, parts};
use crate::sql::{SqlError, mysql::MySqlArgument};

/// A thirtieth of a round trip a key. The server keeps a plan for each part of each prepared statement in each session.
pub(super) const LIMIT: usize = 32;
/// Batch sizes of the prepared statements: a batch is padded to the next one, so that few statements are prepared.
const SIZES: [usize; 3] = [2, 8, LIMIT];

/// What is needed to ask for many keys, once the server has accepted it.
#[derive(Debug)]
pub(super) struct MySqlBatch {
    parts: Result<QueryHalves, &'static str>,
    verdict: Verdict<[SqlStr; SIZES.len()]>,
}

impl MySqlBatch {
    pub(super) fn of(query: &str, logged: Arc<Once>) -> Self {
        Self { parts: parts(query), verdict: Verdict::open(logged) }
    }

    /// Returns true if the query is known to take one key at a time.
    pub(super) fn is_refused(&self) -> bool {
        self.verdict.is_refused()
    }

    /// Asks the server the first time. Returns false if the query takes one key at a time.
    pub(super) async fn settled(
        &self,
        connection: &mut MySqlConnection,
        columns: &[MySqlColumn],
    ) -> Result<bool, SqlError> {
        if self.verdict.is_open() {
            self.verdict.settle(self.ask(connection, columns).await)?;
        }
        Ok(!self.verdict.is_refused())
    }

    async fn ask(
        &self,
        connection: &mut MySqlConnection,
        columns: &[MySqlColumn],
    ) -> Result<[SqlStr; SIZES.len()], SqlError> {
        let parts = self.parts.as_ref().map_err(|why| SqlError::invalid(*why))?;
        let statements = SIZES.map(|size| AssertSqlSafe(union(parts, size)).into_sql_str());
        let described = (&mut *connection).prepare(statements[0].clone()).await?;
        connection.clear_cached_statements().await?;
        if has_columns_of(columns, described.columns()) && can_be_read_as(columns, described.columns()) {
            Ok(statements)
        } else {
            Err(SqlError::invalid("a union of it has columns of other types"))
        }
    }

    /// The statement for this many keys, padded by the last of them. `None` for no keys, or for more than [`LIMIT`].
    pub(super) fn statement(&self, keys: &mut Vec<MySqlArgument>) -> Option<SqlStr> {
        let last = keys.last()?.clone();
        let index = SIZES.iter().position(|size| keys.len() <= *size)?;
        keys.resize(SIZES[index], last);
        Some(self.verdict.accepted()?[index].clone())
    }
}

fn union(parts: &QueryHalves, size: usize) -> String {
    let each: Vec<String> =
        (0..size).map(|ordinal| format!("({}, {ordinal} AS bloomguard_ordinal {})", parts.list, parts.rest)).collect();
    // Without a limit of its own it would be cut to the session's, one row.
    format!("{} LIMIT {}", each.join(" UNION ALL "), u64::MAX)
}

/// Returns true if a union has the columns of its query, and the ordinal behind them.
pub(super) fn has_columns_of(query: &[MySqlColumn], union: &[MySqlColumn]) -> bool {
    union.len() == query.len() + 1 && query.iter().zip(union).all(|(one, many)| one.name() == many.name())
}

/// Returns true if the values of a union are rendered like those of its query.
pub(super) fn can_be_read_as(query: &[MySqlColumn], union: &[MySqlColumn]) -> bool {
    query.iter().zip(union).all(|(one, many)| ColumnKind::of(one).can_come_as(ColumnKind::of(many)))
}
