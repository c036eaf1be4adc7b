//! Where the keys come from: [`KeySource::scan`].

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::key::{KeyBatch, KeyForm};

mod batch;
mod file;
mod http;
mod incremental;
mod redis;
mod sql;
mod union;

pub use file::FileSource;
pub use http::HttpSource;
pub use incremental::{Incremental, Plan, PolledKey, PolledRows, Position, Watermark};
pub use redis::RedisSource;
pub use sql::{SqlPolls, SqlSource};
pub use union::{Member, Union};

/// Keys of one scan, in batches of at most [`BATCH_KEYS`], bounded so that a slow reader slows the source.
pub type KeyBatches = mpsc::Sender<KeyBatch>;

/// Keys in a full batch.
pub const BATCH_KEYS: usize = 4096;

/// Bytes of keys that also fill a batch: long keys are not gathered by the thousand.
const BATCH_BYTES: usize = 1 << 20;

/// Why a source could not be read to its end. A failed scan is never a shorter list.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// Not reachable, or the connection broke.
    #[error("the key source can't be reached: {0}")]
    Unavailable(String),
    /// It answered without usable keys: the query does not fit, or a column type can't hold keys.
    #[error("the key source's answer can't be used: {0}")]
    Invalid(String),
    /// A key without the keyspace's canonical form.
    #[error("row {row} of the key source: {error}")]
    Key {
        /// Counted from 1.
        row: u64,
        /// What is wrong with the row.
        error: crate::key::KeyError,
    },
    /// One of several sources failed.
    #[error("source[{index}]: {error}")]
    Member {
        /// Its index, from 0.
        index: usize,
        /// Why it failed.
        error: Box<SourceError>,
    },
    /// New keys can't be polled for: the starting point is unknown.
    #[error("source.incremental.watermark is required, because the watermark is of type {0}")]
    NoWatermark(&'static str),
    /// The reader of the batches has gone.
    #[error("the scan was cancelled")]
    Cancelled,
}

impl SourceError {
    /// The error class, safe to show on the telemetry listener: no text of a database.
    #[must_use]
    pub fn public_reason(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "the key source can't be reached",
            Self::Invalid(_) => "the key source's answer can't be used; the log and the admin API tell why",
            Self::Key { .. } => "a key of the source has no canonical form; the log and the admin API tell which",
            Self::Member { error, .. } => error.public_reason(),
            Self::NoWatermark(_) => {
                "the watermark is an integer or text, so source.incremental.watermark must say which one is the highest"
            }
            Self::Cancelled => "the build was cancelled",
        }
    }
}

/// The set of all keys that exist.
#[async_trait]
pub trait KeySource: Send + Sync {
    /// The canonical form that the key column's type suggests; `None` if the driver does not tell.
    ///
    /// # Errors
    /// [`SourceError`] if the source can't be asked.
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError>;

    /// Why the key column treats keys as equal that `form` keeps apart, such as a padded or case-insensitive type;
    /// `None` if it doesn't, or if the driver does not tell. The filter would then call keys absent that the backend
    /// finds.
    ///
    /// # Errors
    /// [`SourceError`] if the source can't be asked.
    async fn form_conflict(&self, _form: KeyForm) -> Result<Option<String>, SourceError> {
        Ok(None)
    }

    /// How many keys a scan would find now, roughly. `None` if only a scan can tell: `filter.expected_keys` and the
    /// last scan then size the filter.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn count(&self) -> Result<Option<u64>, SourceError>;

    /// Streams every key in canonical form. Duplicates are allowed, rows whose key is NULL are left out. Returns how
    /// many it sent.
    ///
    /// Never holds more than a few batches. Ends with [`SourceError::Cancelled`] once the receiver has gone.
    ///
    /// # Errors
    /// [`SourceError`]; the keys sent before it are no key set.
    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError>;

    /// How many sources this is the union of. A scan is checked for each of them: the sum would hide what one of them
    /// lacks.
    fn members(&self) -> usize {
        1
    }

    /// Like [`KeySource::scan`], for one of the [`KeySource::members`], counted from 0. All of them, one after another,
    /// are the whole scan.
    ///
    /// # Errors
    /// [`SourceError`], as for the whole.
    async fn scan_member(&self, _member: usize, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        self.scan(form, batches).await
    }

    /// A finding of the last scan that an operator should fix; `None` if there is none.
    fn warning(&self) -> Option<String> {
        None
    }
}
