//! A candidate that one thread fills by plain stores while announces insert keys.
//!
//! Plain stores beside atomic inserts would lose bits, so the filter is behind a lock while it is filled. The builder
//! holds the lock for a chunk of keys at a time. An announce that finds the lock free inserts its key itself, because a
//! slow source may take long until the next chunk. Otherwise it queues its key, and the builder inserts it with the
//! next chunk. [`Filling::share`] takes and closes the queue in one step. An announce that finds it closed waits for
//! the lock and finds the filter shared.
//!
//! The queue is bounded. It fills only if the builder's thread is preempted within a chunk while thousands of keys are
//! announced; these then wait for the end of the chunk. Nothing is dropped from the queue: recent announces are
//! replayed into each candidate at the end of its scan, but a scan may be longer than the commit window.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Filter;

/// Keys inserted under one lock: about 10 µs, and enough for prefetching.
const KEYS_PER_LOCK: usize = 1024;
/// Queued keys: more than a batch has by default.
const MAX_WAITING_KEYS: usize = 16_384;

/// A filter while its builder fills it.
#[derive(Debug)]
pub(super) struct Filling {
    /// Not shared yet, so the lock's holder has it exclusively.
    filter: Mutex<Arc<Filter>>,
    /// Locked after the filter's lock or alone, never before it. `None` once the filter is shared.
    waiting: Mutex<Option<Vec<u128>>>,
}

impl Filling {
    pub(super) fn new(filter: Filter) -> Self {
        Self { filter: Mutex::new(Arc::new(filter)), waiting: Mutex::new(Some(Vec::new())) }
    }

    /// Adds keys. Meant for one thread at a time; others wait.
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

    /// Adds a key, concurrently with the builder and other inserts.
    pub(super) fn insert(&self, hash: u128) {
        if let Some(filter) = self.filter.try_lock() {
            filter.insert(hash);
        } else if !self.enqueue(hash) {
            self.filter.lock().insert(hash);
        }
    }

    /// Queues a key for the builder. Returns false if the queue is full or closed.
    fn enqueue(&self, hash: u128) -> bool {
        let mut waiting = self.waiting.lock();
        let open = waiting.as_mut().filter(|waiting| waiting.len() < MAX_WAITING_KEYS);
        open.map(|waiting| waiting.push(hash)).is_some()
    }

    /// Shares the filter: from now on all writes are atomic. It contains every key inserted before.
    pub(super) fn share(&self) -> Arc<Filter> {
        let (shared, rest) = {
            let filter = self.filter.lock();
            (Arc::clone(&filter), self.waiting.lock().take())
        };
        // Other threads may insert now, so these inserts are atomic too.
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
    fn an_announce_never_waits_for_a_chunk_and_reaches_the_filter() {
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
    fn announces_beyond_the_list_wait_for_the_chunk_and_none_is_lost() {
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
