//! New keys from a SQL database: [`SqlPolls`].

mod mysql;
mod postgres;
mod rows;
mod sqlite;
mod unseen;

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sqlx::Connection;

use self::mysql::MySqlFeed;
use self::postgres::PostgresFeed;
use self::rows::RowBatcher;
use self::sqlite::SqliteFeed;
use super::{CONNECT_TIMEOUT, SourceError, next_row};
use crate::config::{IncrementalConfig, SecretUrl, SourceConfig};
use crate::key::KeyForm;
use crate::source::incremental::{Incremental, Plan, PolledRows, Position, Watermark};
use crate::sql::{Connector, Database, Purpose, SqlError};

/// How far local time may be behind UTC: a column without a zone may hold local time.
const FARTHEST_ZONE: Duration = Duration::from_secs(12 * 3600);

/// Polls a query of key and watermark on PostgreSQL, MySQL or SQLite.
#[derive(Debug)]
pub struct SqlPolls(PollDriver);

#[derive(Debug)]
enum PollDriver {
    Postgres(Poll<PostgresFeed>),
    MySql(Poll<MySqlFeed>),
    Sqlite(Poll<SqliteFeed>),
}

impl SqlPolls {
    /// Reads the configuration and connects to nothing. `backend` is used if the source has no URL of its own. `None`:
    /// the source is not polled.
    ///
    /// # Errors
    /// [`SourceError::Invalid`] if URL or query can never be used.
    pub fn new(source: &SourceConfig, backend: &SecretUrl) -> Result<Option<Self>, SourceError> {
        let Some(config) = &source.incremental else { return Ok(None) };
        let url = if source.url.is_empty() { backend } else { &source.url };
        let target = url.redacted();
        Ok(Some(Self(match Database::parse(&url.for_driver(), Purpose::Scans)? {
            Database::Postgres(options) => {
                PollDriver::Postgres(Poll::new(PostgresFeed::new(options, config)?, target, config))
            }
            Database::MySql(session) => PollDriver::MySql(Poll::new(MySqlFeed::new(session, config)?, target, config)),
            Database::Sqlite(options) => {
                PollDriver::Sqlite(Poll::new(SqliteFeed::new(options, config)?, target, config))
            }
        })))
    }

    fn poll(&self) -> &dyn Incremental {
        match &self.0 {
            PollDriver::Postgres(poll) => poll,
            PollDriver::MySql(poll) => poll,
            PollDriver::Sqlite(poll) => poll,
        }
    }
}

#[async_trait]
impl Incremental for SqlPolls {
    async fn position(&self) -> Result<Position, SourceError> {
        self.poll().position().await
    }

    async fn since(&self, plan: &Plan, form: KeyForm, rows: PolledRows) -> Result<Position, SourceError> {
        self.poll().since(plan, form, rows).await
    }
}

/// Kind of a watermark column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatermarkKind {
    Integer,
    Timestamp { zoned: bool },
    Text,
}

impl WatermarkKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Timestamp { .. } => "timestamp",
            Self::Text => "text",
        }
    }

    /// Lower than all others.
    fn lowest(self) -> Watermark {
        match self {
            Self::Integer => Watermark::Integer(i64::MIN.into()),
            Self::Timestamp { .. } => Watermark::Timestamp(0),
            Self::Text => Watermark::Text(String::new()),
        }
    }

    fn holds(self, watermark: &Watermark) -> bool {
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
struct Look {
    /// The database's clock: microseconds since 1970.
    now: i64,
    /// How long the oldest open transaction had been open.
    open_for: Duration,
    /// Why transactions of others can't be seen.
    hidden: Option<&'static str>,
}

/// How one kind of database is polled.
trait PolledDatabase: std::fmt::Debug + Send + Sync {
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

/// Keeps its connection between polls, which may be a second apart.
#[derive(Debug)]
struct Poll<F: PolledDatabase> {
    feed: F,
    /// Where it connects, without the password.
    target: String,
    watermark: Option<String>,
    overlap: Duration,
    idle: Mutex<Option<F::Connection>>,
}

impl<F: PolledDatabase> Poll<F>
where
    F::Connection: std::fmt::Debug,
{
    fn new(feed: F, target: String, config: &IncrementalConfig) -> Self {
        Self { feed, target, watermark: config.watermark.clone(), overlap: config.overlap, idle: Mutex::default() }
    }

    async fn connect(&self) -> Result<F::Connection, SourceError> {
        let target = &self.target;
        match tokio::time::timeout(CONNECT_TIMEOUT, self.feed.connector().connect()).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(SqlError::connecting(target, &error).into()),
            Err(_) => Err(SourceError::Unavailable(format!("{target}: no connection within {CONNECT_TIMEOUT:?}"))),
        }
    }

    /// A connection that failed, or whose poll was cancelled, is dropped: it may be in the middle of a result.
    async fn ask(&self, plan: Option<&Plan>, mut rows: Option<RowBatcher>) -> Result<Position, SourceError> {
        let kept = self.idle.lock().take();
        if let Some(mut connection) = kept {
            match self.run(&mut connection, plan, rows.as_mut()).await {
                // It broke while it was idle. Rows that were sent already may be sent twice.
                Err(SourceError::Unavailable(reason)) => tracing::debug!(reason, "polling on a new connection"),
                asked => return self.keep(connection, asked),
            }
        }
        let mut connection = self.connect().await?;
        let asked = self.run(&mut connection, plan, rows.as_mut()).await;
        self.keep(connection, asked)
    }

    fn keep<T>(&self, connection: F::Connection, asked: Result<T, SourceError>) -> Result<T, SourceError> {
        if asked.is_ok() {
            *self.idle.lock() = Some(connection);
        }
        asked
    }

    async fn run(
        &self,
        connection: &mut F::Connection,
        plan: Option<&Plan>,
        rows: Option<&mut RowBatcher>,
    ) -> Result<Position, SourceError> {
        self.feed.begin(connection).await?;
        let (kind, shape) = self.feed.describe(connection).await?;
        // Before the rows and before the highest watermark: what becomes visible later is no older than this says.
        let look = self.feed.look(connection).await?;
        let mut highest = None;
        if let Some(query) =
            self.watermark.as_deref().filter(|_| plan.is_none() || !matches!(kind, WatermarkKind::Timestamp { .. }))
        {
            highest = Some(self.feed.highest(connection, kind, query).await?.unwrap_or_else(|| kind.lowest()));
        }
        let watermark = match (plan, rows) {
            (Some(plan), Some(rows)) => {
                if !kind.holds(&plan.from) {
                    return Err(SourceError::Invalid(format!("the watermark is of type {} now", kind.name())));
                }
                let from = from(plan, &look).lowered();
                rows.begin(matches!(kind, WatermarkKind::Timestamp { .. }).then_some(look.now));
                self.feed.rows(connection, &shape, &from, rows).await?;
                rows.finish().await?.or(highest)
            }
            _ => {
                self.feed.check(connection, &shape).await?;
                Some(self.first(kind, &look, highest)?)
            }
        };
        self.feed.end(connection).await?;
        Ok(Position { watermark, open_for: look.open_for, hidden: look.hidden })
    }

    fn first(&self, kind: WatermarkKind, look: &Look, highest: Option<Watermark>) -> Result<Watermark, SourceError> {
        match (kind, highest) {
            (WatermarkKind::Timestamp { zoned }, highest) => {
                let Watermark::Timestamp(highest) = highest.unwrap_or(Watermark::Timestamp(i64::MAX)) else {
                    return Err(SourceError::Invalid("the watermark query tells no timestamp".to_owned()));
                };
                let zone = if zoned { Duration::ZERO } else { FARTHEST_ZONE };
                let clock = Watermark::Timestamp(look.now).earlier(zone);
                // A watermark in the future says nothing about the others.
                let base = if highest <= look.now { Watermark::Timestamp(highest) } else { clock };
                Ok(base.earlier(self.overlap + look.open_for))
            }
            (_, Some(highest)) => Ok(highest),
            (_, None) => Err(SourceError::NoWatermark(kind.name())),
        }
    }
}

/// A database's clock that was set back stamps rows below the highest watermark: at least this much of its own past is
/// read.
fn from(plan: &Plan, look: &Look) -> Watermark {
    match (&plan.from, Watermark::Timestamp(look.now).earlier(plan.reach)) {
        (Watermark::Timestamp(seen), Watermark::Timestamp(bound)) => Watermark::Timestamp(bound.min(*seen)),
        (other, _) => other.clone(),
    }
}

#[async_trait]
impl<F: PolledDatabase> Incremental for Poll<F>
where
    F::Connection: std::fmt::Debug,
{
    async fn position(&self) -> Result<Position, SourceError> {
        self.ask(None, None).await
    }

    async fn since(&self, plan: &Plan, form: KeyForm, rows: PolledRows) -> Result<Position, SourceError> {
        self.ask(Some(plan), Some(RowBatcher::new(form, rows))).await
    }
}

fn no_watermark(column: &str, type_name: &str) -> String {
    format!(
        "column \"{column}\" is of type {type_name}, which can't be a watermark: it must be an integer, a timestamp or text"
    )
}
