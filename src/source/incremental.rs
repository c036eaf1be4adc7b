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
    /// Of its watermark: tells a row from one of the same key that was written later.
    pub stamp: u64,
}

/// Rows of one poll, in batches, bounded so that a slow reader slows the source.
pub type PolledRows = mpsc::Sender<Vec<PolledKey>>;

/// What grows with each row that is written: how far a poll has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watermark {
    /// A sequence's number, a version.
    Integer(i128),
    /// Microseconds since 1970.
    Timestamp(i64),
    /// In the order of the database, which may not be ours.
    Text(String),
}

impl Watermark {
    /// One that is a little lower, as far as that can be said: then a query that asks for rows above it, and not from it on, loses none.
    #[must_use]
    pub fn lowered(self) -> Self {
        match self {
            Self::Integer(number) => Self::Integer(number.saturating_sub(1)),
            // A whole second: columns may hold no less.
            Self::Timestamp(micros) => Self::Timestamp(micros.saturating_sub(1_000_000)),
            Self::Text(text) => Self::Text(text),
        }
    }

    /// This moment less `by`; what is no timestamp knows nothing of time.
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

/// From where on a poll reads.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The watermark.
    pub from: Watermark,
    /// A timestamp is never later than the database's clock less this, whatever was seen: that clock may have been set back.
    pub reach: Duration,
}

/// Where a source stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The highest watermark; `None` where there was nothing to tell it.
    pub watermark: Option<Watermark>,
    /// How long the oldest open transaction had been open, just before the rows were read.
    pub open_for: Duration,
    /// Why transactions of others can't be seen: one that is longer than `overlap` may be missed then.
    pub hidden: Option<&'static str>,
}

/// A source that can be asked for its newest keys.
#[async_trait]
pub trait Incremental: Send + Sync {
    /// From where on a first poll has to read so that, together with a scan that begins later, it misses no row. An integer or a text can't be
    /// lowered by a time, so of those it is only the highest one, and the scan has to begin once all rows below it are visible.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn position(&self) -> Result<Position, SourceError>;

    /// Streams the keys of all rows from `plan` on, in canonical form, and says where the source stood.
    ///
    /// # Errors
    /// [`SourceError`]; what was sent before it are keys all the same.
    async fn since(&self, plan: &Plan, form: KeyForm, rows: PolledRows) -> Result<Position, SourceError>;
}
