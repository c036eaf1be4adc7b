//! How many keys a source has.

use tokio::sync::mpsc;

use crate::key::KeyForm;
use crate::source::{KeyBatches, KeySource, SourceError};

/// Batches between the scan and the counter.
const BATCHES_AHEAD: usize = 4;

/// Keys of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyCount {
    /// As the source reported.
    Told(u64),
    /// As a scan found.
    Scanned(u64),
}

/// Asks the source, and scans it if it can't tell.
///
/// # Errors
/// [`SourceError`].
pub async fn count(source: &dyn KeySource, form: Option<KeyForm>) -> Result<KeyCount, SourceError> {
    if let Some(keys) = source.count().await? {
        return Ok(KeyCount::Told(keys));
    }
    let form = match form {
        Some(form) => form,
        // Form `bytes` accepts every key, which is enough for a count.
        None => source.key_form().await?.unwrap_or(KeyForm::Bytes),
    };
    let (batches, mut incoming): (KeyBatches, _) = mpsc::channel(BATCHES_AHEAD);
    let counting = async {
        let mut keys = 0;
        while let Some(batch) = incoming.recv().await {
            keys += batch.len() as u64;
        }
        keys
    };
    let (scanned, keys) = tokio::join!(source.scan(form, batches), counting);
    scanned?;
    Ok(KeyCount::Scanned(keys))
}

impl KeyCount {
    /// The number.
    #[must_use]
    pub const fn keys(self) -> u64 {
        match self {
            Self::Told(keys) | Self::Scanned(keys) => keys,
        }
    }
}
