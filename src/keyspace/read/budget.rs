//! Bounds the bytes that the answer to one batch may hold.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::buffers::{Buffers, Overloaded, Reservation, Share};
use crate::keyspace::error::LookupError;
use crate::keyspace::outcome::Answer;
use crate::keyspace::single_flight::Loaded;
use crate::labels::BufferRefusal;

/// Minimum room of one call of the backend: below it a batch would fetch its rows one by one.
const LEAST_ROOM: u64 = 64 << 10;
/// Bytes of a key while it is loaded: its flight, its lookup and its waiter.
const FLIGHT_BYTES: u64 = 600;

/// Bytes of values that the answer to one batch may still take.
#[derive(Debug)]
pub(super) struct ByteBudget<'a> {
    left: u64,
    /// The batch's share of the process's budget.
    held: &'a mut Reservation,
    shared: Arc<Fullness>,
}

/// The same, for the task that loads for the batch. It may be ahead of the task that assembles the answer, and must not
/// load values without room.
#[derive(Debug)]
pub(super) struct Loads {
    left: AtomicU64,
    buffers: Arc<Buffers>,
    shared: Arc<Fullness>,
}

#[derive(Debug)]
struct Fullness {
    limit: u64,
    full: AtomicBool,
    /// True if it is full because the process's budget is.
    overloaded: AtomicBool,
}

impl Fullness {
    fn overload(&self, buffers: &Buffers) {
        if !self.overloaded.swap(true, Relaxed) {
            buffers.refused(BufferRefusal::Values);
        }
        self.full.store(true, Relaxed);
    }
}

/// A value is held beside the response that it is written into, where base64 adds a third.
const fn held_for(bytes: u64) -> u64 {
    bytes.saturating_mul(7) / 3
}

impl<'a> ByteBudget<'a> {
    /// At most `limit` bytes, and at most what can be added to `held`.
    pub(super) fn new(limit: u64, held: &'a mut Reservation) -> Self {
        let shared = Fullness { limit, full: AtomicBool::new(false), overloaded: AtomicBool::new(false) };
        Self { left: limit, held, shared: Arc::new(shared) }
    }

    pub(super) fn limit(&self) -> u64 {
        self.shared.limit
    }

    pub(super) const fn buffers(&self) -> &Arc<Buffers> {
        self.held.buffers()
    }

    pub(super) fn loads(&self) -> Loads {
        Loads {
            left: AtomicU64::new(self.left),
            buffers: Arc::clone(self.held.buffers()),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Returns true if a value was left out that would have fit an empty answer: then no further values are loaded.
    pub(super) fn is_full(&self) -> bool {
        // Relaxed, as all of these: they publish no other memory.
        self.shared.full.load(Relaxed)
    }

    /// Returns the answer, or an error if its value does not fit; the value is dropped then.
    pub(super) fn admit(&mut self, loaded: Loaded) -> Loaded {
        let bytes = bytes_of(&loaded);
        if bytes == 0 {
            return loaded;
        }
        let Some(left) = self.left.checked_sub(bytes) else {
            if bytes <= self.shared.limit {
                self.shared.full.store(true, Relaxed);
            }
            return Err(self.refusal());
        };
        if self.held.grow(held_for(bytes)).is_err() {
            self.shared.overload(self.held.buffers());
            return Err(self.refusal());
        }
        self.left = left;
        loaded
    }

    pub(super) fn refusal(&self) -> LookupError {
        if self.shared.overloaded.load(Relaxed) {
            Overloaded { limit: self.held.buffers().limit() }.into()
        } else {
            LookupError::BatchFull(self.shared.limit)
        }
    }
}

impl Loads {
    pub(super) fn limit(&self) -> u64 {
        self.shared.limit
    }

    pub(super) fn is_full(&self) -> bool {
        self.shared.full.load(Relaxed)
    }

    pub(super) const fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// Reserves room for loading this many keys. `None`: the process's budget has none, and the batch is full.
    pub(super) fn reserve_flights(&self, keys: usize) -> Option<Reservation> {
        let reserved = self.buffers.reserve(Share::Batches, FLIGHT_BYTES * keys as u64);
        reserved.inspect_err(|_| self.shared.overload(&self.buffers)).ok()
    }

    /// Reserves room for the rows of one call of the backend. `None`: the process's budget has none, and the batch is
    /// full.
    pub(super) fn reserve_rows(&self, most: u64) -> Option<Reservation> {
        let reserved = self.buffers.reserve_some(Share::Batches, LEAST_ROOM.min(most), most);
        reserved.inspect_err(|_| self.shared.overload(&self.buffers)).ok()
    }

    /// Counts a loaded value, before waiters receive it.
    pub(super) fn count(&self, loaded: &Loaded) {
        let bytes = bytes_of(loaded);
        // A value that would not fit an empty answer says nothing about the others.
        if bytes <= self.shared.limit
            && self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_err()
        {
            self.shared.full.store(true, Relaxed);
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
    use crate::labels::Source;
    use crate::metrics::Metrics;

    fn loaded(bytes: usize) -> Loaded {
        let value = Value { body: vec![0; bytes].into(), content_type: ContentType::OctetStream };
        Ok(Answer::fresh(Some(value), Source::Backend))
    }

    fn held(limit: u64) -> Reservation {
        Buffers::new(limit, Metrics::new().buffers).empty(Share::Batches)
    }

    #[test]
    fn values_are_admitted_as_long_as_they_fit() {
        let mut held = held(u64::MAX);
        let mut budget = ByteBudget::new(100, &mut held);
        assert!(budget.admit(loaded(60)).is_ok());
        assert!(matches!(budget.admit(loaded(101)), Err(LookupError::BatchFull(100))));
        assert!(!budget.is_full(), "no batch has room for that one");
        assert!(budget.admit(loaded(41)).is_err());
        assert!(budget.is_full());
        assert!(budget.admit(loaded(40)).is_ok());
        let absent = Ok(Answer::fresh(None, Source::Backend));
        assert!(budget.admit(absent).is_ok(), "an absence takes no room");
        assert!(matches!(budget.admit(Err(LookupError::Cancelled)), Err(LookupError::Cancelled)));
    }

    #[test]
    fn the_loading_task_stops_at_the_first_value_without_room() {
        let mut held = held(u64::MAX);
        let mut budget = ByteBudget::new(100, &mut held);
        assert!(budget.admit(loaded(30)).is_ok());
        let loads = budget.loads();
        for (bytes, full) in [(60, false), (101, false), (10, false), (1, true)] {
            loads.count(&loaded(bytes));
            assert_eq!(loads.is_full(), full, "{bytes}");
        }
        assert!(budget.is_full());
    }

    #[test]
    fn values_beyond_the_budget_of_the_process_are_rejected_as_overload() {
        // Three quarters of it are for batches, and each value counts as itself and as part of the response.
        let mut held = held(400);
        let mut budget = ByteBudget::new(10_000, &mut held);
        let loads = budget.loads();
        assert!(budget.admit(loaded(60)).is_ok());
        assert!(matches!(budget.admit(loaded(100)), Err(LookupError::Overloaded(Overloaded { limit: 400 }))));
        assert!(budget.is_full() && loads.is_full());
        assert!(budget.admit(loaded(60)).is_ok(), "one that fits");
        let rows = loads.reserve_rows(8).unwrap();
        assert_eq!((rows.bytes(), held.bytes()), (8, 280));
        assert!(loads.reserve_rows(1000).is_none());
    }
}
