//! Gathers the scanned keys where the backend is a set of them.

use std::sync::Arc;

use super::error::BuildError;
use super::memory::Reservation;
use crate::backend::{KeySet, KeySetBuilder};
use crate::background;
use crate::key::{KeyBatch, KeyForm};

/// Keys on their way into a set. Takes no memory that was not set aside before.
pub(super) struct Gathered {
    keys: KeySetBuilder,
    reservation: Arc<Reservation>,
    /// What was set aside before the scan: the filter, and the least that the counted keys take.
    filter_bytes: u64,
    least_bytes: u64,
}

impl Gathered {
    /// Nothing yet. `counted`: how many keys are expected, where that is known.
    pub(super) fn new(
        form: KeyForm,
        counted: Option<u64>,
        reservation: Arc<Reservation>,
        filter_bytes: u64,
    ) -> Result<Self, BuildError> {
        let least_bytes = KeySetBuilder::least_bytes(form, counted.unwrap_or(0));
        let gathered = Self { keys: KeySetBuilder::new(form), reservation, filter_bytes, least_bytes };
        gathered.set_aside(0)?;
        Ok(gathered)
    }

    pub(super) fn add(&mut self, batch: &KeyBatch) -> Result<(), BuildError> {
        self.set_aside(self.keys.bytes_with(batch))?;
        self.keys.extend(batch)?;
        Ok(())
    }

    /// Sorts them, on a thread of its own.
    pub(super) async fn finish(self) -> Result<KeySet, BuildError> {
        let Self { keys, reservation, filter_bytes, .. } = self;
        let set = background::start("sort-keys", move || keys.finish()).await.map_err(|_| BuildError::Cancelled)?;
        reservation.resize(filter_bytes + set.bytes())?;
        Ok(set)
    }

    fn set_aside(&self, bytes: u64) -> Result<(), BuildError> {
        Ok(self.reservation.resize(self.filter_bytes.saturating_add(bytes.max(self.least_bytes)))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rebuild::MemoryBudget;

    #[test]
    fn keys_that_outgrow_the_memory_limit_are_refused_before_they_are_held() {
        let unlimited = Arc::new(MemoryBudget::new(None, 0));
        let base = {
            // What a limit must be at the least, from the refusal itself.
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
            Gathered::new(KeyForm::Text, counted, reservation, 500)
        };
        // 100 bytes a key: two batches fit.
        let limited = Arc::new(MemoryBudget::new(Some(base + 500 + 200_000), 0));
        let mut gathered = gather(&limited, Some(1000)).unwrap();
        gathered.add(&batch(0)).unwrap();
        gathered.add(&batch(1000)).unwrap_or_else(|error| panic!("{error}"));
        assert!(matches!(gathered.add(&batch(2000)), Err(BuildError::Memory(_))));
        assert!(
            matches!(gather(&limited, Some(100_000)), Err(BuildError::Memory(_))),
            "so many can't fit, however short they are"
        );
        assert!(gather(&unlimited, Some(u64::MAX)).is_ok());
    }
}
