//! From raw keys to batches of canonical ones.

use std::fmt::Display;

use super::{BATCH_BYTES, BATCH_KEYS, KeyBatches, SourceError};
use crate::key::{KeyBatch, KeyForm};

/// Gathers keys and sends them when a batch is full. Waits for a slow reader.
#[derive(Debug)]
pub(super) struct Batcher {
    form: KeyForm,
    batches: KeyBatches,
    batch: KeyBatch,
    /// Number of the last row, from 1, including rows without a key.
    row: u64,
    sent: u64,
}

impl Batcher {
    pub(super) fn new(form: KeyForm, batches: KeyBatches) -> Self {
        Self { form, batches, batch: KeyBatch::with_capacity(BATCH_KEYS), row: 0, sent: 0 }
    }

    pub(super) const fn form(&self) -> KeyForm {
        self.form
    }

    /// Number of the last row.
    pub(super) const fn row(&self) -> u64 {
        self.row
    }

    /// The next row begins here.
    pub(super) const fn begin_row(&mut self) {
        self.row += 1;
    }

    /// Whether the reader still wants the keys, for code that does not hold the batcher.
    pub(super) fn recipient(&self) -> Recipient {
        Recipient(self.batches.clone())
    }

    /// Returns true if the reader has gone.
    pub(super) fn is_closed(&self) -> bool {
        self.batches.is_closed()
    }

    /// Returns once the reader has gone.
    pub(super) async fn closed(&self) {
        self.batches.closed().await;
    }

    /// Why the last row is unusable.
    pub(super) fn unreadable(&self, why: impl Display) -> SourceError {
        SourceError::Invalid(format!("row {}: {why}", self.row))
    }

    /// Adds the key of the last row, and sends the batch if that filled it.
    pub(super) async fn push(&mut self, raw: &[u8]) -> Result<(), SourceError> {
        match self.add(raw)? {
            Some(full) => self.send(full).await,
            None => Ok(()),
        }
    }

    /// Like [`Batcher::push`], on a thread that may block.
    pub(super) fn push_blocking(&mut self, raw: &[u8]) -> Result<(), SourceError> {
        match self.add(raw)? {
            Some(full) => self.send_blocking(full),
            None => Ok(()),
        }
    }

    /// Adds the key of the last row. Returns the batch if that filled it, to be [sent](Batcher::send).
    pub(super) fn add(&mut self, raw: &[u8]) -> Result<Option<KeyBatch>, SourceError> {
        self.batch.push(self.form, raw).map_err(|error| SourceError::Key { row: self.row, error })?;
        let full = self.batch.len() == BATCH_KEYS || self.batch.bytes() >= BATCH_BYTES;
        Ok(full.then(|| std::mem::replace(&mut self.batch, KeyBatch::with_capacity(BATCH_KEYS))))
    }

    /// Sends the rest. Returns how many keys were sent in all.
    pub(super) async fn finish(mut self) -> Result<u64, SourceError> {
        let rest = std::mem::take(&mut self.batch);
        if !rest.is_empty() {
            self.send(rest).await?;
        }
        self.ended()
    }

    /// Like [`Batcher::finish`], on a thread that may block.
    pub(super) fn finish_blocking(mut self) -> Result<u64, SourceError> {
        let rest = std::mem::take(&mut self.batch);
        if !rest.is_empty() {
            self.send_blocking(rest)?;
        }
        self.ended()
    }

    pub(super) async fn send(&mut self, batch: KeyBatch) -> Result<(), SourceError> {
        self.sent += batch.len() as u64;
        self.batches.send(batch).await.map_err(|_| SourceError::Cancelled)
    }

    fn send_blocking(&mut self, batch: KeyBatch) -> Result<(), SourceError> {
        self.sent += batch.len() as u64;
        self.batches.blocking_send(batch).map_err(|_| SourceError::Cancelled)
    }

    /// The reader may have gone after the last batch; then there is no key set either.
    fn ended(&self) -> Result<u64, SourceError> {
        if self.is_closed() { Err(SourceError::Cancelled) } else { Ok(self.sent) }
    }
}

/// The receiver of a [`Batcher`]'s batches. While this exists, the receiver does not see the end of the batches.
#[derive(Debug)]
pub(super) struct Recipient(KeyBatches);

impl Recipient {
    /// Returns true if the reader has gone.
    pub(super) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_keys_fill_a_batch_before_they_are_many() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
        let mut batcher = Batcher::new(KeyForm::Bytes, sender);
        for _ in 0..3 {
            batcher.push(&vec![b'x'; BATCH_BYTES / 2]).await.unwrap();
        }
        assert_eq!(batcher.finish().await.unwrap(), 3);
        let lengths: Vec<usize> = std::iter::from_fn(|| receiver.try_recv().ok()).map(|batch| batch.len()).collect();
        assert_eq!(lengths, [2, 1]);
    }
}
