//! How connections are opened, and what for.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::ConnectOptions;

/// Opens connections that can run statements at once.
#[async_trait]
pub trait Connector<C>: std::fmt::Debug + Send + Sync {
    /// # Errors
    /// The driver's own.
    async fn connect(&self) -> Result<C, sqlx::Error>;
}

#[async_trait]
impl<O: ConnectOptions> Connector<O::Connection> for O
where
    O::Connection: Sized,
{
    async fn connect(&self) -> Result<O::Connection, sqlx::Error> {
        ConnectOptions::connect(self).await
    }
}

/// What connections are opened for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// Many short reads, each under a deadline.
    Lookups {
        /// No statement is worth more time than this.
        timeout: Duration,
        /// Prepared statements that a connection keeps. 0 leaves nothing behind in a session.
        statement_cache: usize,
    },
    /// A few long reads.
    Scans,
}
