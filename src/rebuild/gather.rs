//! Collects the scanned keys if the backend is a set of them.

use std::sync::Arc;

use super::error::BuildError;
use super::memory::MemoryReservation;
use crate::backend::{KeySet, KeySetBuilder};
use crate::background;
use crate::key::{KeyBatch, KeyForm};

/// Collects keys for a set. Uses only memory that was reserved before.
pub(super) struct KeyCollector {
    keys: KeySetBuilder,
    reservation: Arc<MemoryReservation>,
    /// Reserved before the scan: the filter, and the least that the counted keys need.
    filter_bytes: u64,
    least_bytes: u64,
}

impl KeyCollector {
    /// An empty collector. `counted`: the expected number of keys, if known.
    pub(super) fn new(
        form: KeyForm,
        counted: Option<u64>,
        reservation: Arc<MemoryReservation>,
        filter_bytes: u64,
    ) -> Result<Self, BuildError> {
        let least_bytes = KeySetBuilder::least_bytes(form, counted.unwrap_or(0));
        let collector = Self { keys: KeySetBuilder::new(form), reservation, filter_bytes, least_bytes };
        collector.reserve(0)?;
        Ok(collector)
    }

    pub(super) fn add(&mut self, batch: &KeyBatch) -> Result<(), BuildError> {
        self.reserve(self.keys.bytes_with(batch))?;
        self.keys.extend(batch)?;
        Ok(())
    }

    /// Sorts the keys, on its own thread.
    pub(super) async fn finish(self) -> Result<KeySet, BuildError> {
        let Self { keys, reservation, filter_bytes, .. } = self;
        let set = background::start("sort-keys", move || keys.finish()).await.map_err(|_| BuildError::Cancelled)?;
        reservation.resize(filter_bytes + set.bytes())?;
        Ok(set)
    }

    fn reserve(&self, bytes: u64) -> Result<(), BuildError> {
        Ok(self.reservation.resize(self.filter_bytes.saturating_add(bytes.max(self.least_bytes)))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebuild::MemoryBudget;

    #[test]
    fn keys_that_outgrow_the_memory_limit_are_rejected_before_they_are_held() {
        let unlimited = Arc::new(MemoryBudget::new(None, 0));
        let base = {
            // The minimum limit, from the error itself.
            let error = Arc::new(MemoryBudget::new(Some(0), 0)).reserve("users", 0).unwrap_err().to_string();
            error.split("come to ").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        let batch = |from: u32| {
            (from..from + 1000)
                .map(|n| KeyForm::Text.canonical(format!("{n:094}").as_bytes()).unwrap())
                .collect::<KeyBatch>()
        };
        let gather = |budget: &Arc<MemoryBudget>, counted| {
            let reservation = Arc::new(budget.reserve("users", 500).unwrap());
            KeyCollector::new(KeyForm::Text, counted, reservation, 500)
        };
        // 100 bytes a key: two batches fit.
        let limited = Arc::new(MemoryBudget::new(Some(base + 500 + 200_000), 0));
        let mut collector = gather(&limited, Some(1000)).unwrap();
        collector.add(&batch(0)).unwrap();
        collector.add(&batch(1000)).unwrap_or_else(|error| panic!("{error}"));
        assert!(matches!(collector.add(&batch(2000)), Err(BuildError::Memory(_))));
        assert!(
            matches!(gather(&limited, Some(100_000)), Err(BuildError::Memory(_))),
            "so many can't fit, however short they are"
        );
        assert!(gather(&unlimited, Some(u64::MAX)).is_ok());
    }
}
