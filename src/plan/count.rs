//! How many keys a source has.

use tokio::sync::mpsc;

use crate::key::KeyForm;
use crate::source::{KeyBatches, KeySource, SourceError};

/// Batches between the scan and who counts them.
const BATCHES_AHEAD: usize = 4;

/// Keys of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// As many as it said.
    Told(u64),
    /// As many as a scan brought.
    Scanned(u64),
}

/// Asks the source, and where it can't tell, scans it.
///
/// # Errors
/// [`SourceError`].
pub async fn count(source: &dyn KeySource, form: Option<KeyForm>) -> Result<Counted, SourceError> {
    if let Some(keys) = source.count().await? {
        return Ok(Counted::Told(keys));
    }
    let form = match form {
        Some(form) => form,
        // Bytes are whatever is there, which is enough to be counted.
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
    Ok(Counted::Scanned(keys))
}

impl Counted {
    /// The number.
    #[must_use]
    pub const fn keys(self) -> u64 {
        match self {
            Self::Told(keys) | Self::Scanned(keys) => keys,
        }
    }
}
