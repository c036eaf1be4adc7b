//! How keys are listed over connections of SQL databases: [`KeyReader`], and what a [`KeyQuery`] gives it.

use std::fmt::Display;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{FutureExt as _, Stream, TryStreamExt as _};
use sqlx::Connection;

use crate::key::KeyForm;
use crate::source::batch::Batcher;
use crate::source::{KeyBatches, KeySource, SourceError};
use crate::sql::{Connector, SqlError};
use crate::sqltext::{Dialect, SingleStatement};

/// How long connecting may take. Otherwise only silence is bounded: a scan takes as long as it needs.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A database that sends no row for this long is abandoned. A sort of everything before the first row fits within it.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(900);

/// Why a query can't list keys, on any database.
pub(super) const TAKES_PARAMETERS: &str = "it takes parameters, and a scan has none";

pub(super) fn unusable(why: impl Display) -> SqlError {
    SqlError::invalid(format!("the query can't be used: {why}"))
}

/// The one statement of a configured query, which takes no parameter.
pub(super) fn without_parameters(query: &str, dialect: Dialect) -> Result<String, SqlError> {
    let SingleStatement { text: query, parameters } = SingleStatement::parse(query, dialect).map_err(unusable)?;
    if parameters.is_empty() { Ok(query.to_owned()) } else { Err(unusable(TAKES_PARAMETERS)) }
}

/// How one kind of database lists keys.
pub(super) trait KeyQuery: std::fmt::Debug + Send + Sync {
    type Connection: Connection;

    fn connector(&self) -> &impl Connector<Self::Connection>;

    fn key_form(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<Option<KeyForm>, SourceError>> + Send;

    fn form_conflict(
        &self,
        connection: &mut Self::Connection,
        form: KeyForm,
    ) -> impl Future<Output = Result<Option<String>, SourceError>> + Send;

    fn count(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<u64, SourceError>> + Send;

    /// Connects by `reader`, as often as needed.
    fn scan(&self, reader: &KeyReader<Self>, batcher: Batcher) -> impl Future<Output = Result<u64, SourceError>> + Send
    where
        Self: Sized;
}

/// Opens a connection for each call and closes it afterwards: calls are minutes apart, and a cancelled scan must not
/// leave a half-read result on a connection for the next one.
#[derive(Debug)]
pub(super) struct KeyReader<K> {
    pub(super) keys: K,
    /// Where it connects, without the password.
    pub(super) target: String,
}

impl<K: KeyQuery> KeyReader<K> {
    pub(super) async fn connect(&self) -> Result<K::Connection, SourceError> {
        let target = &self.target;
        match tokio::time::timeout(CONNECT_TIMEOUT, self.keys.connector().connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(SqlError::connecting(target, &error).into()),
            Err(_) => Err(SourceError::Unavailable(format!("{target}: no connection within {CONNECT_TIMEOUT:?}"))),
        }
    }
}

#[async_trait]
impl<K: KeyQuery> KeySource for KeyReader<K> {
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        let mut connection = self.connect().await?;
        let form = self.keys.key_form(&mut connection).await;
        close(connection, form).await
    }

    async fn form_conflict(&self, form: KeyForm) -> Result<Option<String>, SourceError> {
        let mut connection = self.connect().await?;
        let conflict = self.keys.form_conflict(&mut connection, form).await;
        close(connection, conflict).await
    }

    async fn count(&self) -> Result<Option<u64>, SourceError> {
        let mut connection = self.connect().await?;
        let count = self.keys.count(&mut connection).await.map(Some);
        close(connection, count).await
    }

    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        self.keys.scan(self, Batcher::new(form, batches)).await
    }
}

/// Closes a healthy connection in good order. One that failed, or is in the middle of a result, is simply dropped.
pub(super) async fn close<C: Connection, T>(connection: C, result: Result<T, SourceError>) -> Result<T, SourceError> {
    if result.is_ok()
        && let Err(error) = connection.close().await
    {
        tracing::debug!(%error, "can't close a key source connection");
    }
    result
}

/// The next row of a scan, or its end.
pub(super) async fn next_scanned<S, T>(rows: &mut S, batcher: &mut Batcher) -> Result<Option<T>, SourceError>
where
    S: Stream<Item = Result<T, sqlx::Error>> + Unpin + Send,
{
    batcher.begin_row();
    next_wanted(rows, batcher).await
}

/// The next item of a scan, or its end: the end of the items, or the reader's departure, however slow the database is.
pub(super) async fn next_wanted<S, T>(items: &mut S, batcher: &Batcher) -> Result<Option<T>, SourceError>
where
    S: Stream<Item = Result<T, sqlx::Error>> + Unpin + Send,
{
    // An item that is there already needs neither a clock nor a check of the reader. A poll without a waker is
    // harmless: the next one follows at once.
    if let Some(next) = items.try_next().now_or_never() {
        return next.map_err(|error| SqlError::from(error).into());
    }
    tokio::select! {
        biased;
        next = next_row(items) => next,
        () = batcher.closed() => Err(SourceError::Cancelled),
    }
}

/// The next item of a stream of rows, unless the database is silent.
pub(super) async fn next_row<S, T>(rows: &mut S) -> Result<Option<T>, SourceError>
where
    S: Stream<Item = Result<T, sqlx::Error>> + Unpin + Send,
{
    match tokio::time::timeout(LONGEST_SILENCE, rows.try_next()).await {
        Ok(next) => next.map_err(|error| SqlError::from(error).into()),
        Err(_) => Err(silent()),
    }
}

pub(super) fn silent() -> SourceError {
    SourceError::Unavailable(format!("the database sent nothing for {LONGEST_SILENCE:?}"))
}

impl From<SqlError> for SourceError {
    fn from(error: SqlError) -> Self {
        match error {
            SqlError::Unavailable(reason) | SqlError::Timeout(reason) => Self::Unavailable(reason),
            SqlError::Invalid { message, .. } => Self::Invalid(message),
        }
    }
}
