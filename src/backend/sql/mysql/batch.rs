//! Many keys by one statement: the query once for each, joined by `UNION ALL`.
//!
//! ```sql
//! (SELECT name, email, 0 AS ordinal FROM users WHERE id = ? LIMIT 1) UNION ALL (SELECT name, email, 1 AS ordinal FROM …) … LIMIT …
//! ```
//!
//! Neither a derived table, which loses the query's order on MariaDB and is written out, nor `LATERAL`, which MariaDB lacks. Each part is a
//! query of its own, with its own index lookup; a union of all that is sorted nowhere is sent as it is read. Its columns are copies of the
//! query's and so of one type, but they are expressions: the width of `TINYINT(1)`, the labels of an `ENUM` and the table that tells
//! MariaDB's JSON from text are lost. So its values are read as the query's own columns, which were described when it was, as long as
//! theirs are of the same kind.

use std::sync::{Arc, Once};

use sqlx::mysql::{MySqlColumn, MySqlConnection};
use sqlx::{AssertSqlSafe, Column, Connection, Executor, SqlSafeStr, SqlStr, Statement};

use super::render::Kind;
use crate::backend::sql::verdict::Verdict;
use crate::sql::mysql::{Parts, parts};
use crate::sql::{SqlError, mysql::Argument};

/// A thirtieth of a round trip a key; the server keeps a plan for each part of each prepared statement in each session.
pub(super) const LIMIT: usize = 32;
/// Keys that the statements take, so that few have to be prepared: a batch is padded to the next.
const SIZES: [usize; 3] = [2, 8, LIMIT];

/// What can be asked for many keys, once the server has said so.
#[derive(Debug)]
pub(super) struct Batch {
    parts: Result<Parts, &'static str>,
    verdict: Verdict<[SqlStr; SIZES.len()]>,
}

impl Batch {
    pub(super) fn of(query: &str, logged: Arc<Once>) -> Self {
        Self { parts: parts(query), verdict: Verdict::open(logged) }
    }

    /// Whether it has turned out that the query takes one key at a time.
    pub(super) fn is_refused(&self) -> bool {
        self.verdict.is_refused()
    }

    /// Asks the server the first time; `false` where the query takes one key at a time.
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

    /// The statement for so many keys, padded by the last of them. `None` where there are none, or more than [`LIMIT`].
    pub(super) fn statement(&self, keys: &mut Vec<Argument>) -> Option<SqlStr> {
        let last = keys.last()?.clone();
        let index = SIZES.iter().position(|size| keys.len() <= *size)?;
        keys.resize(SIZES[index], last);
        Some(self.verdict.accepted()?[index].clone())
    }
}

fn union(parts: &Parts, size: usize) -> String {
    let each: Vec<String> =
        (0..size).map(|ordinal| format!("({}, {ordinal} AS bloomguard_ordinal {})", parts.list, parts.rest)).collect();
    // Without a limit of its own it is cut to the session's, one row.
    format!("{} LIMIT {}", each.join(" UNION ALL "), u64::MAX)
}

/// Whether a union has the columns of its query, and the ordinal behind them.
pub(super) fn has_columns_of(query: &[MySqlColumn], union: &[MySqlColumn]) -> bool {
    union.len() == query.len() + 1 && query.iter().zip(union).all(|(one, many)| one.name() == many.name())
}

/// Whether the values of a union are written as those of its query would be.
pub(super) fn can_be_read_as(query: &[MySqlColumn], union: &[MySqlColumn]) -> bool {
    query.iter().zip(union).all(|(one, many)| Kind::of(one).can_come_as(Kind::of(many)))
}
