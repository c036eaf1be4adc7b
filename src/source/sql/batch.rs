//! From raw column values to batches of canonical keys.

use std::fmt::Display;

use futures_util::Stream;

use super::next_row;
use crate::key::{Key, KeyForm};
use crate::source::{BATCH_KEYS, KeyBatches, SourceError};

/// Gathers keys and sends them when a batch is full; waits where the reader is slow.
#[derive(Debug)]
pub(super) struct Batcher {
    form: KeyForm,
    batches: KeyBatches,
    batch: Vec<Key>,
    /// Number of the row read last, from 1, NULLs included.
    row: u64,
    sent: u64,
}

impl Batcher {
    pub(super) fn new(form: KeyForm, batches: KeyBatches) -> Self {
        Self { form, batches, batch: Vec::with_capacity(BATCH_KEYS), row: 0, sent: 0 }
    }

    /// The next row, or the end of the scan: that of the rows, or that of anybody's interest in them, however slow the database is.
    pub(super) async fn next_row<S, T>(&mut self, rows: &mut S) -> Result<Option<T>, SourceError>
    where
        S: Stream<Item = Result<T, sqlx::Error>> + Unpin + Send,
    {
        self.row += 1;
        tokio::select! {
            // In this order, a row that is there costs no look at the other end.
            biased;
            next = next_row(rows) => next,
            () = self.batches.closed() => Err(SourceError::Cancelled),
        }
    }

    /// Why the row read last is of no use.
    pub(super) fn unreadable(&self, why: impl Display) -> SourceError {
        SourceError::Invalid(format!("row {}: {why}", self.row))
    }

    /// Adds the key of the row read last.
    pub(super) async fn push(&mut self, raw: &[u8]) -> Result<(), SourceError> {
        let key = self.form.scanned(raw).map_err(|error| SourceError::Key { row: self.row, error })?;
        self.batch.push(key);
        if self.batch.len() == BATCH_KEYS { self.flush().await } else { Ok(()) }
    }

    /// Sends the rest. How many keys were sent in all.
    pub(super) async fn finish(mut self) -> Result<u64, SourceError> {
        if !self.batch.is_empty() {
            self.flush().await?;
        }
        // The last batch may have been the last that anybody wanted; then there is no key set either.
        if self.batches.is_closed() { Err(SourceError::Cancelled) } else { Ok(self.sent) }
    }

    async fn flush(&mut self) -> Result<(), SourceError> {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_KEYS));
        let keys = batch.len() as u64;
        self.batches.send(batch).await.map_err(|_| SourceError::Cancelled)?;
        self.sent += keys;
        Ok(())
    }
}
