//! From polled rows to batches of keys, and the highest watermark among them.

use chrono::{DateTime, NaiveDateTime};
use xxhash_rust::xxh3::xxh3_64;

use crate::key::KeyForm;
use crate::source::incremental::{PolledKey, PolledRows, Watermark};
use crate::source::{BATCH_KEYS, SourceError};

/// Gathers rows and sends them when a batch is full.
#[derive(Debug)]
pub(super) struct RowBatcher {
    form: KeyForm,
    sender: PolledRows,
    batch: Vec<PolledKey>,
    /// Number of the last row, from 1.
    row: u64,
    /// Later timestamps are in the future, and say nothing about the other rows.
    now: Option<i64>,
    highest: Option<i64>,
}

impl RowBatcher {
    pub(super) fn new(form: KeyForm, sender: PolledRows) -> Self {
        Self { form, sender, batch: Vec::new(), row: 0, now: None, highest: None }
    }

    pub(super) const fn form(&self) -> KeyForm {
        self.form
    }

    /// Rows follow from here on, including those of a broken connection before. `now`: the database's clock, if
    /// watermarks are timestamps.
    pub(super) fn begin(&mut self, now: Option<i64>) {
        self.batch.clear();
        (self.row, self.now, self.highest) = (0, now, None);
    }

    /// Why the last row is unusable.
    pub(super) fn unreadable(&self, why: impl std::fmt::Display) -> SourceError {
        SourceError::Invalid(format!("row {}: {why}", self.row + 1))
    }

    /// Adds a row. The query did not exclude rows without a key or with an unreadable watermark, so their usable parts
    /// count.
    pub(super) async fn push(&mut self, key: Option<&[u8]>, watermark: Option<&Watermark>) -> Result<(), SourceError> {
        self.row += 1;
        if let (Some(Watermark::Timestamp(micros)), Some(now)) = (watermark, self.now)
            && *micros <= now
        {
            self.highest = self.highest.max(Some(*micros));
        }
        let Some(raw) = key else { return Ok(()) };
        let key = self.form.scanned(raw).map_err(|error| SourceError::Key { row: self.row, error })?;
        let stamp = match watermark {
            Some(Watermark::Integer(number)) => xxh3_64(&number.to_le_bytes()),
            Some(Watermark::Timestamp(micros)) => xxh3_64(&micros.to_le_bytes()),
            Some(Watermark::Text(text)) => xxh3_64(text.as_bytes()),
            None => 0,
        };
        self.batch.push(PolledKey { key, stamp });
        if self.batch.len() == BATCH_KEYS { self.send().await } else { Ok(()) }
    }

    /// Sends the rest. Returns the highest timestamp.
    pub(super) async fn finish(&mut self) -> Result<Option<Watermark>, SourceError> {
        self.send().await?;
        Ok(self.highest.map(Watermark::Timestamp))
    }

    async fn send(&mut self) -> Result<(), SourceError> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        self.sender.send(batch).await.map_err(|_| SourceError::Cancelled)
    }
}

/// `2026-01-31 12:00:00.5`, as MySQL and SQLite write it, also with a `T` or a `Z`; microseconds since 1970.
pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    let text = text.trim_end_matches('Z').replacen('T', " ", 1);
    NaiveDateTime::parse_from_str(&text, "%Y-%m-%d %H:%M:%S%.f").ok().map(|parsed| parsed.and_utc().timestamp_micros())
}

/// As text that both databases compare with their columns. With a blank, which sorts before the `T` that a column of
/// SQLite may hold.
pub(super) fn write_timestamp(micros: i64) -> String {
    // No rows to poll lie before the year 1.
    DateTime::from_timestamp_micros(micros.max(0)).unwrap_or_default().format("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_read_in_every_spelling_and_written_no_later() {
        for text in ["1970-01-02 00:00:01.5", "1970-01-02T00:00:01.500", "1970-01-02T00:00:01.500000Z"] {
            assert_eq!(parse_timestamp(text), Some(86_401_500_000), "{text}");
        }
        assert_eq!(write_timestamp(86_401_500_000), "1970-01-02 00:00:01");
        assert_eq!(write_timestamp(i64::MIN), "1970-01-01 00:00:00");
        assert_eq!(parse_timestamp("0000-00-00 00:00:00"), None);
    }
}
