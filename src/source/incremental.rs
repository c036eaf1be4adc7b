//! New keys between two scans: [`Incremental`].

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::SourceError;
use crate::key::{Key, KeyForm};

/// A row that a poll found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolledKey {
    /// Its key.
    pub key: Key,
    /// Identifies its watermark: distinguishes a row from a later one with the same key.
    pub stamp: u64,
}

/// Rows of one poll, in batches, bounded so that a slow reader slows the source.
pub type PolledRows = mpsc::Sender<Vec<PolledKey>>;

/// A value that grows with each written row: how far a poll has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watermark {
    /// A sequence number or a version.
    Integer(i128),
    /// Microseconds since 1970.
    Timestamp(i64),
    /// In the order of the database, which may differ from ours.
    Text(String),
}

impl Watermark {
    /// A slightly lower one, if possible: a query for rows above it, and not from it on, then loses none.
    #[must_use]
    pub fn lowered(self) -> Self {
        match self {
            Self::Integer(number) => Self::Integer(number.saturating_sub(1)),
            // A whole second: columns may store nothing finer.
            Self::Timestamp(micros) => Self::Timestamp(micros.saturating_sub(1_000_000)),
            Self::Text(text) => Self::Text(text),
        }
    }

    /// Subtracts a time from a timestamp; other kinds stay the same.
    #[must_use]
    pub fn earlier(self, by: Duration) -> Self {
        match self {
            Self::Timestamp(micros) => {
                Self::Timestamp(micros.saturating_sub(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
            }
            other => other,
        }
    }
}

/// Where a poll starts.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The watermark.
    pub from: Watermark,
    /// A timestamp is capped at the database's clock less this: that clock may have been set back.
    pub reach: Duration,
}

/// The position of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The highest watermark; `None` if nothing shows it.
    pub watermark: Option<Watermark>,
    /// How long the oldest open transaction had been open, just before the rows were read.
    pub open_for: Duration,
    /// Why transactions of others can't be seen: a poll may then miss one that is longer than `overlap`.
    pub hidden: Option<&'static str>,
}

/// A source that can be asked for its newest keys.
#[async_trait]
pub trait Incremental: Send + Sync {
    /// Where a first poll must start so that, together with a scan that begins later, it misses no row. An integer or a
    /// text can't be lowered by a time: for those it is the highest one, and the scan must begin once all rows below it
    /// are visible.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn position(&self) -> Result<Position, SourceError>;

    /// Streams the keys of all rows from `plan` on, in canonical form. Returns the position of the source.
    ///
    /// # Errors
    /// [`SourceError`]; keys that were sent before it count all the same.
    async fn since(&self, plan: &Plan, form: KeyForm, rows: PolledRows) -> Result<Position, SourceError>;
}
