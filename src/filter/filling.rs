//! A candidate that one thread fills by plain stores, and the announces that come meanwhile.
//!
//! Plain stores beside atomic inserts would lose bits, so the filter is behind a lock as long as it is filled: its builder holds that for a handful of
//! keys at a time. An announce that finds it free inserts its key itself, for the next handful may be long in coming from a slow source. One that finds it
//! taken leaves its key in a list, which the builder puts in with its next handful, and goes on. [`Filling::share`] takes the list and closes it in one
//! step; who finds it closed waits for the filter, and finds it shared.
//!
//! The list is bounded. It fills up only where a builder loses its processor in the middle of a handful, while others announce by the thousand; they then
//! wait until it has ended the handful. Nothing is ever dropped from it: the memory of recent announces is put into each candidate at its scan's end, but
//! would not replace the list where a scan is longer than the commit window.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Filter;

/// Keys that are filled in under one lock: some 10 µs, and enough to keep the fetching ahead going.
const KEYS_PER_LOCK: usize = 1024;
/// Keys that wait for the end of a handful: more than a batch brings by default.
const MAX_WAITING_KEYS: usize = 16_384;

/// A filter in the hands of its builder.
#[derive(Debug)]
pub(super) struct Filling {
    /// Known to nobody else before it is shared, so that who holds the lock has it alone.
    filter: Mutex<Arc<Filter>>,
    /// Taken behind the lock of the filter or alone, never before it. `None`: the filter is shared.
    waiting: Mutex<Option<Vec<u128>>>,
}

impl Filling {
    pub(super) fn new(filter: Filter) -> Self {
        Self { filter: Mutex::new(Arc::new(filter)), waiting: Mutex::new(Some(Vec::new())) }
    }

    /// Adds keys; of one thread at a time, or the others wait.
    pub(super) fn fill(&self, hashes: &[u128]) {
        for chunk in hashes.chunks(KEYS_PER_LOCK) {
            let mut filter = self.filter.lock();
            let waiting = self.waiting.lock().as_mut().map(mem::take).unwrap_or_default();
            for hashes in [chunk, &waiting] {
                match Arc::get_mut(&mut filter) {
                    Some(filter) => filter.fill(hashes),
                    None => hashes.iter().for_each(|hash| filter.insert(*hash)),
                }
            }
        }
    }

    /// Adds a key while others do, and the builder its own.
    pub(super) fn insert(&self, hash: u128) {
        if let Some(filter) = self.filter.try_lock() {
            filter.insert(hash);
        } else if !self.enqueue(hash) {
            self.filter.lock().insert(hash);
        }
    }

    /// Leaves a key to the builder; `false`: the list is full, or it is too late.
    fn enqueue(&self, hash: u128) -> bool {
        let mut waiting = self.waiting.lock();
        let open = waiting.as_mut().filter(|waiting| waiting.len() < MAX_WAITING_KEYS);
        open.map(|waiting| waiting.push(hash)).is_some()
    }

    /// The filter, for everybody: from now on it is written by atomics only. Holds every key that was inserted before.
    pub(super) fn share(&self) -> Arc<Filter> {
        let (shared, rest) = {
            let filter = self.filter.lock();
            (Arc::clone(&filter), self.waiting.lock().take())
        };
        // Others insert by now: as they do, by atomics.
        rest.unwrap_or_default().iter().for_each(|hash| shared.insert(*hash));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterKind, FilterSpec};

    fn filling() -> Filling {
        Filling::new(Filter::new(FilterSpec { kind: FilterKind::Bloom, capacity: 100_000, rate: 0.001 }).unwrap())
    }

    fn hash(n: u64) -> u128 {
        u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
    }

    #[test]
    fn an_announce_never_waits_for_a_handful_and_is_in_the_filter_that_is_shared() {
        let filling = filling();
        let handful = filling.filter.lock();
        (0..100).for_each(|n| filling.insert(hash(n)));
        assert!(!handful.contains(hash(0)), "the builder has it alone");
        drop(handful);
        filling.fill(&[hash(1_000)]);
        assert!((0..100).all(|n| filling.filter.lock().contains(hash(n))), "put in with the next handful");
        let handful = filling.filter.lock();
        filling.insert(hash(200));
        drop(handful);
        filling.insert(hash(300));
        let shared = filling.share();
        filling.insert(hash(400));
        filling.fill(&[hash(500)]);
        assert!([1_000, 200, 300, 400, 500].into_iter().chain(0..100).all(|n| shared.contains(hash(n))));
    }

    #[test]
    fn announces_that_the_list_can_not_take_wait_for_the_handful_and_none_is_lost() {
        let filling = filling();
        let keys = MAX_WAITING_KEYS as u64 + 10;
        std::thread::scope(|scope| {
            let handful = filling.filter.lock();
            let announcer = scope.spawn(|| (0..keys).for_each(|n| filling.insert(hash(n))));
            while filling.waiting.lock().as_ref().is_none_or(|waiting| waiting.len() < MAX_WAITING_KEYS) {
                std::thread::yield_now();
            }
            assert!(!announcer.is_finished());
            drop(handful);
        });
        assert_eq!(filling.waiting.lock().as_ref().map(Vec::len), Some(MAX_WAITING_KEYS));
        let shared = filling.share();
        assert!((0..keys).all(|n| shared.contains(hash(n))));
    }

    #[test]
    fn no_announce_is_lost_between_handfuls_and_at_the_sharing() {
        for _ in 0..20 {
            let filling = filling();
            let shared = std::thread::scope(|scope| {
                for announcer in 1..=3 {
                    let filling = &filling;
                    scope.spawn(move || (0..500).for_each(|n| filling.insert(hash(announcer * 1_000_000 + n))));
                }
                (0..4).for_each(|part| filling.fill(&(part * 500..(part + 1) * 500).map(hash).collect::<Vec<_>>()));
                filling.share()
            });
            assert!(
                (0..2_000)
                    .chain((1..=3).flat_map(|a| a * 1_000_000..a * 1_000_000 + 500))
                    .all(|n| shared.contains(hash(n)))
            );
        }
    }
}
