//! How much the answer to one batch may hold.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::error::LookupError;
use super::outcome::Answer;
use super::single_flight::Loaded;

/// Bytes of values that the answer to one batch may still take.
#[derive(Debug)]
pub(super) struct Allowance {
    limit: u64,
    left: u64,
    full: Arc<AtomicBool>,
}

/// The same, for the task that loads for the batch: it may be ahead of who puts the answer together, and must not load what has no room.
#[derive(Debug)]
pub(super) struct Loads {
    limit: u64,
    left: AtomicU64,
    full: Arc<AtomicBool>,
}

impl Allowance {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, left: limit, full: Arc::default() }
    }

    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn loads(&self) -> Loads {
        Loads { limit: self.limit, left: AtomicU64::new(self.left), full: Arc::clone(&self.full) }
    }

    /// Whether a value was left out for which an empty answer would have had room: then further ones are not loaded.
    pub(super) fn is_full(&self) -> bool {
        // Relaxed, as all of these: they publish nothing else.
        self.full.load(Relaxed)
    }

    /// The answer, or in its place that its value does not fit, which is dropped.
    pub(super) fn admit(&mut self, loaded: Loaded) -> Loaded {
        let bytes = bytes_of(&loaded);
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return loaded;
        }
        if bytes <= self.limit {
            self.full.store(true, Relaxed);
        }
        Err(self.refusal())
    }

    pub(super) const fn refusal(&self) -> LookupError {
        LookupError::BatchFull(self.limit)
    }
}

impl Loads {
    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Relaxed)
    }

    /// Takes note of what was loaded, before anybody is told.
    pub(super) fn note(&self, loaded: &Loaded) {
        let bytes = bytes_of(loaded);
        // One that would not fit an empty answer says nothing of the others.
        if bytes <= self.limit && self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_err() {
            self.full.store(true, Relaxed);
        }
    }
}

fn bytes_of(loaded: &Loaded) -> u64 {
    if let Ok(Answer { value: Some(value), .. }) = loaded { value.bytes() as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{ContentType, Value};
    use crate::words::Source;

    fn loaded(bytes: usize) -> Loaded {
        let value = Value { body: vec![0; bytes].into(), content_type: ContentType::OctetStream };
        Ok(Answer::fresh(Some(value), Source::Backend))
    }

    #[test]
    fn values_are_taken_as_long_as_they_fit() {
        let mut allowance = Allowance::new(100);
        assert!(allowance.admit(loaded(60)).is_ok());
        assert!(matches!(allowance.admit(loaded(101)), Err(LookupError::BatchFull(100))));
        assert!(!allowance.is_full(), "no batch has room for that one");
        assert!(allowance.admit(loaded(41)).is_err());
        assert!(allowance.is_full());
        assert!(allowance.admit(loaded(40)).is_ok());
        let absent = Ok(Answer::fresh(None, Source::Backend));
        assert!(allowance.admit(absent).is_ok(), "an absence takes no room");
        assert!(matches!(allowance.admit(Err(LookupError::Cancelled)), Err(LookupError::Cancelled)));
    }

    #[test]
    fn who_loads_stops_at_the_first_value_without_room() {
        let mut allowance = Allowance::new(100);
        assert!(allowance.admit(loaded(30)).is_ok());
        let loads = allowance.loads();
        for (bytes, full) in [(60, false), (101, false), (10, false), (1, true)] {
            loads.note(&loaded(bytes));
            assert_eq!(loads.is_full(), full, "{bytes}");
        }
        assert!(allowance.is_full());
    }
}
