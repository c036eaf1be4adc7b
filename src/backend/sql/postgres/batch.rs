//! Many keys by one statement: an array of keys, joined with the statement for a single key.
//!
//! ```sql
//! SELECT k.ordinal, r.rendered FROM unnest($1) WITH ORDINALITY AS k (key, ordinal)
//! CROSS JOIN LATERAL (SELECT … FROM (SELECT name FROM users WHERE id = (k.key)) … LIMIT 1) AS r (rendered)
//! ```
//!
//! The inner statement is that for a single key, but for its parameter, so a row is rendered by the same text. The key
//! has the type that a single key is bound as, so it is compared in the same way and by the same index. Each key has at
//! most one line, and a key without a line has no row.

use std::sync::{Arc, Once};

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgConnection, PgTypeInfo};
use sqlx::{AssertSqlSafe, Connection, Encode, Executor, Postgres, SqlSafeStr, SqlStr, Type};

use crate::backend::sql::verdict::Verdict;
use crate::sql::postgres::{PostgresArgument, PostgresParameter};
use crate::sql::{SqlError, substitute};

/// A hundredth of a round trip a key is cheap enough, and one slow statement fails no more keys than that.
pub(super) const LIMIT: usize = 100;
/// Columns of the answer.
pub(super) const PLACE: usize = 0;
pub(super) const RENDERED: usize = 1;

/// What is needed to ask for many keys, once the server has accepted it.
#[derive(Debug)]
pub(super) struct PostgresBatch {
    text: Result<SqlStr, &'static str>,
    verdict: Verdict<Asked>,
}

/// A statement that the server has accepted.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) statement: SqlStr,
    element: Oid,
    array: Oid,
}

impl PostgresBatch {
    /// `render` makes the statement for one key from a query.
    pub(super) fn of(query: &str, render: impl Fn(&str) -> String, logged: Arc<Once>) -> Self {
        let keys = unused_name(query);
        let text = substitute(query, &format!("{keys}.{keys}_key")).map(|query| {
            let single = render(&query);
            AssertSqlSafe(format!(
                "SELECT {keys}.{keys}_ordinal, {keys}_row.{keys}_rendered \
                 FROM pg_catalog.unnest($1) WITH ORDINALITY AS {keys} ({keys}_key, {keys}_ordinal) \
                 CROSS JOIN LATERAL ({single}) AS {keys}_row ({keys}_rendered)"
            ))
            .into_sql_str()
        });
        Self { text, verdict: Verdict::open(logged) }
    }

    /// Returns true if the query is known to take one key at a time.
    pub(super) fn is_refused(&self) -> bool {
        self.verdict.is_refused()
    }

    /// Asks the server the first time; `None` if the query takes one key at a time.
    pub(super) async fn settled(
        &self,
        connection: &mut PgConnection,
        parameter: &PostgresParameter,
    ) -> Result<Option<&Asked>, SqlError> {
        if self.verdict.is_open() {
            self.verdict.settle(self.ask(connection, parameter).await)?;
        }
        Ok(self.verdict.accepted())
    }

    async fn ask(&self, connection: &mut PgConnection, parameter: &PostgresParameter) -> Result<Asked, SqlError> {
        let statement = self.text.clone().map_err(SqlError::invalid)?;
        let element = parameter
            .bound_as()
            .oid()
            .ok_or_else(|| SqlError::invalid("the type of its parameter is not known by number"))?;
        // The server rejects data-modifying statements in WITH, a key as a LIMIT and anything else that can't depend on
        // a row. In one transaction, so that behind a pooler one server connection prepares and forgets.
        let mut transaction = connection.begin().await?;
        let asked = async {
            let array: Oid = sqlx::query_scalar("SELECT typarray FROM pg_catalog.pg_type WHERE oid = $1")
                .bind(element)
                .persistent(false)
                .fetch_one(&mut *transaction)
                .await?;
            if array == Oid(0) {
                return Err(SqlError::invalid("the type of its parameter has no arrays"));
            }
            (&mut *transaction).prepare_with(statement.clone(), &[PgTypeInfo::with_oid(array)]).await?;
            Ok(Asked { statement: statement.clone(), element, array })
        }
        .await;
        transaction.clear_cached_statements().await?;
        transaction.rollback().await?;
        asked
    }
}

/// A name that neither occurs in the query nor begins a name there.
fn unused_name(query: &str) -> String {
    let query = query.to_ascii_lowercase();
    let mut name = "bloomguard_many".to_owned();
    while query.contains(&name) {
        name.push('x');
    }
    name
}

/// Keys bound as the array.
pub(super) struct KeyArray<'a> {
    keys: Vec<PostgresArgument>,
    asked: &'a Asked,
}

impl<'a> KeyArray<'a> {
    pub(super) const fn new(keys: Vec<PostgresArgument>, asked: &'a Asked) -> Self {
        Self { keys, asked }
    }
}

impl Type<Postgres> for KeyArray<'_> {
    fn type_info() -> PgTypeInfo {
        <[String] as Type<Postgres>>::type_info()
    }
}

impl Encode<'_, Postgres> for KeyArray<'_> {
    /// The driver has no arrays of types that are known only by number. Format: dimensions, whether there are NULLs,
    /// the elements' type, their count, the first one's index; then each with its length.
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let count = i32::try_from(self.keys.len())?;
        buf.extend_from_slice(&1_i32.to_be_bytes());
        buf.extend_from_slice(&0_i32.to_be_bytes());
        buf.extend_from_slice(&self.asked.element.0.to_be_bytes());
        buf.extend_from_slice(&count.to_be_bytes());
        buf.extend_from_slice(&1_i32.to_be_bytes());
        for key in &self.keys {
            let start = buf.len() + size_of::<i32>();
            buf.extend_from_slice(&0_i32.to_be_bytes());
            // Keys are never NULL.
            let _ = key.encode_by_ref(buf)?;
            let length = i32::try_from(buf.len() - start)?;
            buf[start - size_of::<i32>()..start].copy_from_slice(&length.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(self.asked.array))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_meet_those_of_the_query() {
        assert_eq!(unused_name("SELECT a FROM t"), "bloomguard_many");
        assert_eq!(unused_name("SELECT BloomGuard_Many_key FROM bloomguard_manyx"), "bloomguard_manyxx");
    }

    #[test]
    fn one_statement_holds_the_single_one() {
        let batch = PostgresBatch::of(
            "SELECT a FROM t WHERE id = $1",
            |query| format!("SELECT r.a FROM ({query}) AS r LIMIT 1"),
            Arc::new(Once::new()),
        );
        let text = batch.text.unwrap();
        let inner = "LATERAL (SELECT r.a FROM (SELECT a FROM t WHERE id = (bloomguard_many.bloomguard_many_key)) AS r LIMIT 1) AS";
        assert!(text.as_str().contains(inner), "{}", text.as_str());
    }
}
