//! Connections kept for lookups.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Connection;

use super::{Connector, SqlError};
use crate::pool::{Connect, Pool, PoolSettings};

/// How long connecting may take, name resolution and handshakes included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections beyond the minimum are closed after this time without work.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Connections are replaced at this age, so that a database that moved is found and server-side caches stay small.
const LIFETIME: Duration = Duration::from_secs(1800);
/// How often the minimum is restored and old connections are closed.
const MAINTENANCE: Duration = Duration::from_secs(5);

/// Bounds of the connections for lookups.
#[derive(Debug, Clone, Copy)]
pub struct LookupConnections {
    /// Connections open at a time, those being opened included. At least 1.
    pub max: usize,
    /// Connections kept open.
    pub min: usize,
    /// How long an abandoned statement may keep its connection. After that the connection is closed.
    pub settle: Duration,
}

impl LookupConnections {
    /// A pool of connections to `target`, which is a URL without its password. Must be called within a Tokio runtime.
    #[must_use]
    pub fn pool<C: Connection + 'static>(
        self,
        connector: impl Connector<C> + 'static,
        target: String,
    ) -> Pool<SqlConnect<C>> {
        let connect = SqlConnect { connector: Box::new(connector), target, settle: self.settle };
        let settings = PoolSettings {
            max: self.max,
            min: self.min,
            idle_timeout: IDLE_TIMEOUT,
            lifetime: LIFETIME,
            maintenance: Some(MAINTENANCE),
        };
        Pool::new(connect, settings)
    }
}

/// Opens connections for lookups. A connection that broke while idle shows this on use: a read can be repeated on
/// another one.
pub struct SqlConnect<C> {
    connector: Box<dyn Connector<C>>,
    /// Where it connects, without the password.
    target: String,
    settle: Duration,
}

/// Without the connector, which holds the password.
impl<C> fmt::Debug for SqlConnect<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlConnect").field("target", &self.target).finish_non_exhaustive()
    }
}

impl<C: Connection + 'static> Connect for SqlConnect<C> {
    type Connection = C;
    type Error = SqlError;

    async fn connect(&self) -> Result<C, SqlError> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.connector.connect())
            .await
            .map_err(|_| SqlError::Unavailable(format!("{}: no connection within {CONNECT_TIMEOUT:?}", self.target)))?
            .map_err(|error| SqlError::connecting(&self.target, &error))
    }

    fn interrupted(&self) -> SqlError {
        SqlError::Unavailable(format!("{}: connecting was cancelled", self.target))
    }

    /// Waits until the database has ended the statement: abandoned calls do not add to its load.
    fn settle(&self, mut connection: C) -> Option<BoxFuture<'static, Option<C>>> {
        let settle = self.settle;
        Some(Box::pin(async move {
            let answered = tokio::time::timeout(settle, connection.ping()).await;
            matches!(answered, Ok(Ok(()))).then_some(connection)
        }))
    }

    async fn close(connection: C) {
        if let Err(error) = connection.close().await {
            tracing::debug!(%error, "can't close an idle database connection");
        }
    }
}
