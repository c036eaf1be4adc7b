//! One query over a pool of connections: retries, and the description of the query.

use std::ops::Range;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt as _};
use parking_lot::Mutex;
use sqlx::Connection;

use crate::backend::Value;
use crate::backend::context::RowBudget;
use crate::key::{Key, KeyForm};
use crate::pool::Pool;
use crate::sql::{SqlConnect, SqlError};

/// The result for one key.
pub(super) type Answer = Result<Option<Value>, SqlError>;

/// The results for several keys, in their order; `None` if there was no room for the row.
pub(super) type Answers = Vec<Option<Answer>>;

/// How one kind of database reads a row.
pub(super) trait RowQuery: Send + Sync + 'static {
    type Connection: Connection + 'static;
    /// The description of the query: parameter, columns, and the statement that is actually run.
    type Plan: Send + Sync;

    /// The most keys that one statement answers for.
    const BATCH: usize = 1;

    fn describe(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<Self::Plan, SqlError>> + Send;

    fn read(
        &self,
        connection: &mut Self::Connection,
        plan: &Self::Plan,
        key: &Key,
    ) -> impl Future<Output = Answer> + Send;

    /// Reads several keys by one statement, which fails as a whole. `None` if this query takes one key at a time.
    fn read_many(
        &self,
        _connection: &mut Self::Connection,
        _plan: &Self::Plan,
        _keys: &[Key],
        _room: &mut RowBudget,
    ) -> impl Future<Output = Result<Option<Answers>, SqlError>> + Send {
        async { Ok(None) }
    }

    /// Whether the query is known to take one key at a time.
    fn is_single(&self, _plan: &Self::Plan) -> bool {
        Self::BATCH == 1
    }

    /// Why the column that the query compares the key with treats keys as equal that `form` keeps apart, if the plan
    /// shows it.
    fn conflict(&self, _plan: &Self::Plan, _form: KeyForm) -> Option<String> {
        None
    }
}

/// Runs one query over a pool of connections.
#[derive(Debug)]
pub(super) struct RowReader<R: RowQuery> {
    rows: R,
    pool: Pool<SqlConnect<R::Connection>>,
    /// Empty until the database was first reached, and after the tables changed.
    plan: Mutex<Option<Arc<R::Plan>>>,
}

impl<R: RowQuery> RowReader<R> {
    pub(super) const fn new(rows: R, pool: Pool<SqlConnect<R::Connection>>) -> Self {
        Self { rows, pool, plan: Mutex::new(None) }
    }

    pub(super) async fn fetch(&self, key: &Key) -> Answer {
        let rows = self.retrying(std::slice::from_ref(key), &mut RowBudget::unlimited()).await?;
        rows.and_then(|mut rows| rows.pop())
            .flatten()
            .unwrap_or_else(|| Err(SqlError::invalid("the key got no answer")))
    }

    /// Stores the result of each key in `answers` as soon as it is known: a caller that drops the future keeps the
    /// earlier ones. Stores nothing if there was no room.
    pub(super) async fn fetch_many(&self, keys: &[Key], answers: &mut [Option<Answer>], room: &mut RowBudget) {
        let mut parts: Vec<Range<usize>> = std::iter::once(0..keys.len()).collect();
        while let Some(part) = parts.pop().filter(|_| !room.is_full()) {
            match self.retrying(&keys[part.clone()], room).await {
                Ok(Some(rows)) => answers[part].iter_mut().zip(rows).for_each(|(answer, row)| *answer = row),
                Ok(None) => parts.extend(part.rev().map(|index| index..index + 1)),
                // One key can fail all of them, by a cast or a division in the query. Halving isolates it, and the
                // others get their answers.
                Err(SqlError::Invalid { .. }) if part.len() > 1 => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([middle..part.end, part.start..middle]);
                }
                Err(error) => answers[part].fill(Some(Err(error))),
            }
        }
    }

    /// Keys worth asking for at once.
    pub(super) fn batch_limit(&self) -> usize {
        if self.plan.lock().as_ref().is_some_and(|plan| self.rows.is_single(plan)) { 1 } else { R::BATCH }
    }

    /// Retries once if the first failure may come from state of this process: a connection that broke while idle, or a
    /// plan older than the tables.
    async fn retrying(&self, keys: &[Key], room: &mut RowBudget) -> Result<Option<Answers>, SqlError> {
        let mut last_try = false;
        loop {
            let mut connection = self.pool.acquire().await?;
            let known = self.plan.lock().clone();
            // Rows of a failed read take no room.
            let mut left = room.clone();
            let result = self.read(connection.connection(), known.clone(), keys, &mut left).await;
            if let Ok(Some(_)) = &result {
                *room = left;
            }
            let lost = result.as_ref().is_err_and(SqlError::is_unavailable);
            let outdated = known.is_some() && result.as_ref().is_err_and(SqlError::is_stale);
            let reused = connection.is_reused();
            if lost {
                connection.discard()
            } else {
                connection.finish()
            }
            if lost && reused {
                self.pool.discard_idle();
            }
            if outdated {
                *self.plan.lock() = None;
            }
            if last_try || !(outdated || (lost && reused)) {
                return result;
            }
            last_try = true;
        }
    }

    pub(super) async fn conflict(&self, form: KeyForm) -> Result<Option<String>, SqlError> {
        let mut connection = self.pool.acquire().await?;
        let described = self.rows.describe(connection.connection()).await;
        if described.as_ref().is_err_and(SqlError::is_unavailable) {
            connection.discard();
        } else {
            connection.finish();
        }
        let plan = Arc::new(described?);
        *self.plan.lock() = Some(Arc::clone(&plan));
        Ok(self.rows.conflict(&plan, form))
    }

    async fn read(
        &self,
        connection: &mut R::Connection,
        known: Option<Arc<R::Plan>>,
        keys: &[Key],
        room: &mut RowBudget,
    ) -> Result<Option<Answers>, SqlError> {
        let plan = match known {
            Some(plan) => plan,
            // Several first lookups may each describe the query; none waits for another's connection.
            None => {
                let plan = Arc::new(self.rows.describe(connection).await?);
                *self.plan.lock() = Some(Arc::clone(&plan));
                plan
            }
        };
        match keys {
            [key] => {
                let row = self.rows.read(connection, &plan, key).await?;
                room.take(row.as_ref().map_or(0, Value::bytes));
                Ok(Some(vec![Some(Ok(row))]))
            }
            keys => self.rows.read_many(connection, &plan, keys, room).await,
        }
    }
}

/// A row of a batch, with its size counted.
pub(super) fn counted(row: Result<Value, SqlError>, room: &mut RowBudget) -> Answer {
    let value = row?;
    room.take(value.bytes());
    Ok(Some(value))
}

/// Passes each row to `take`, and reads all of them even after an error: an error behind the first row must not reach
/// the connection's next user.
pub(super) async fn each_row<T>(
    mut rows: impl Stream<Item = Result<T, sqlx::Error>> + Unpin + Send,
    mut take: impl FnMut(T) -> Result<(), SqlError> + Send,
) -> Result<(), SqlError> {
    let mut taken = Ok(());
    while let Some(row) = rows.try_next().await? {
        if taken.is_ok() {
            taken = take(row);
        }
    }
    taken
}
