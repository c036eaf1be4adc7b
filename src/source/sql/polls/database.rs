//! What a poll needs of one kind of database: [`PolledDatabase`].

use std::time::Duration;

use sqlx::Connection;

use super::rows::RowBatcher;
use crate::source::SourceError;
use crate::source::incremental::Watermark;
use crate::sql::{Connector, SqlError};

/// Kind of a watermark column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatermarkKind {
    Integer,
    Timestamp { zoned: bool },
    Text,
}

impl WatermarkKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Timestamp { .. } => "timestamp",
            Self::Text => "text",
        }
    }

    /// Lower than all others.
    pub(super) fn lowest(self) -> Watermark {
        match self {
            Self::Integer => Watermark::Integer(i64::MIN.into()),
            Self::Timestamp { .. } => Watermark::Timestamp(0),
            Self::Text => Watermark::Text(String::new()),
        }
    }

    pub(super) fn holds(self, watermark: &Watermark) -> bool {
        matches!(
            (self, watermark),
            (Self::Integer, Watermark::Integer(_))
                | (Self::Timestamp { .. }, Watermark::Timestamp(_))
                | (Self::Text, Watermark::Text(_))
        )
    }
}

/// State before the rows are read: rows that are invisible to their snapshot were not committed at this moment.
#[derive(Debug)]
pub(super) struct Look {
    /// The database's clock: microseconds since 1970.
    pub(super) now: i64,
    /// How long the oldest open transaction had been open.
    pub(super) open_for: Duration,
    /// Why transactions of others can't be seen.
    pub(super) hidden: Option<&'static str>,
}

/// How one kind of database is polled.
pub(super) trait PolledDatabase: std::fmt::Debug + Send + Sync {
    type Connection: Connection;
    /// The description of the query.
    type Shape: Send + Sync;

    fn connector(&self) -> &impl Connector<Self::Connection>;

    fn begin(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), SqlError>> + Send;

    fn end(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), SqlError>> + Send;

    fn describe(
        &self,
        connection: &mut Self::Connection,
    ) -> impl Future<Output = Result<(WatermarkKind, Self::Shape), SqlError>> + Send;

    /// Whether the column can be polled by, if only its rows show that. Asked once.
    fn check(&self, _: &mut Self::Connection, _: &Self::Shape) -> impl Future<Output = Result<(), SqlError>> + Send {
        std::future::ready(Ok(()))
    }

    fn look(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<Look, SqlError>> + Send;

    /// The answer of the `watermark` query.
    fn highest(
        &self,
        connection: &mut Self::Connection,
        kind: WatermarkKind,
        query: &str,
    ) -> impl Future<Output = Result<Option<Watermark>, SourceError>> + Send;

    /// Sends the rows from `from` on.
    fn rows(
        &self,
        connection: &mut Self::Connection,
        shape: &Self::Shape,
        from: &Watermark,
        rows: &mut RowBatcher,
    ) -> impl Future<Output = Result<(), SourceError>> + Send;
}

pub(super) fn no_watermark(column: &str, type_name: &str) -> String {
    format!(
        "column \"{column}\" is of type {type_name}, which can't be a watermark: it must be an integer, a \
         timestamp or text"
    )
}
