//! The active generation, the candidate that a build fills beside it, and the swap.
//!
//! Readers load one pointer and never wait. From [`Active::begin`] until the swap every insert reaches both filters.
//!
//! An insert that loaded the pair *before* `begin` published the candidate reaches only the old filter. So the caller
//! remembers the hash as recent **before** it calls [`Active::insert`], and the builder replays the recent hashes
//! **after** `begin`: one of the two sees the other. (A lock shared by inserts and `begin` would close the gap too, but
//! then each announce would wait for each build.)
//!
//! A candidate is first filled by plain stores ([`Filling`]) and shared once its scan is over.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::Filter;
use super::filling::Filling;

/// An active filter.
#[derive(Debug)]
pub struct Generation {
    /// Its number, counted from 1.
    pub number: u64,
    /// The filter itself.
    pub filter: Arc<Filter>,
}

#[derive(Debug, Default)]
struct Pair {
    current: Option<Arc<Generation>>,
    candidate: Option<CandidateState>,
}

/// A candidate as inserts see it.
#[derive(Debug, Clone)]
enum CandidateState {
    /// Its builder fills it by plain stores. An insert that loaded this state uses it even after the filter is shared.
    Filling(Arc<Filling>),
    Filled(Arc<Filter>),
}

/// The filter of a keyspace through all its generations.
#[derive(Debug, Default)]
pub struct Active {
    pair: ArcSwap<Pair>,
    /// Held while a candidate is published, withdrawn or swapped in; readers and inserts never take it.
    change: Mutex<()>,
}

/// A candidate exists already: one build at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a build is already running")]
pub struct Busy;

impl Active {
    /// The active generation.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Generation>> {
        self.pair.load().current.clone()
    }

    /// Whether the key may be in the filter, and which generation says so; `None` without a filter.
    #[must_use]
    pub fn probe(&self, hash: u128) -> Option<(bool, u64)> {
        self.pair.load().current.as_ref().map(|generation| (generation.filter.contains(hash), generation.number))
    }

    /// Adds a key to the active filter and to the candidate, if there is one.
    pub fn insert(&self, hash: u128) {
        let pair = self.pair.load();
        if let Some(generation) = &pair.current {
            generation.filter.insert(hash);
        }
        match &pair.candidate {
            Some(CandidateState::Filling(candidate)) => candidate.insert(hash),
            Some(CandidateState::Filled(candidate)) => candidate.insert(hash),
            None => {}
        }
    }

    /// Activates a restored filter under its number, unless a filter is active already.
    pub fn install(&self, filter: Filter, number: u64) {
        let _change = self.change.lock();
        let pair = self.pair.load();
        if pair.current.is_none() {
            let current = Some(Arc::new(Generation { number, filter: Arc::new(filter) }));
            self.pair.store(Arc::new(Pair { current, candidate: pair.candidate.clone() }));
        }
    }

    /// Publishes an empty candidate: from now on every insert also reaches it. Dropping the result withdraws it.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn begin(self: &Arc<Self>, filter: Filter) -> Result<Candidate, Busy> {
        let _change = self.change.lock();
        let pair = self.pair.load();
        if pair.candidate.is_some() {
            return Err(Busy);
        }
        let filling = Arc::new(Filling::new(filter));
        let candidate = Some(CandidateState::Filling(Arc::clone(&filling)));
        self.pair.store(Arc::new(Pair { current: pair.current.clone(), candidate }));
        Ok(Candidate { active: Arc::clone(self), filling, filled: OnceLock::new(), swapped: false })
    }
}

/// A filter that one thread builds. It does not affect the active filter until [`Candidate::swap`].
#[derive(Debug)]
pub struct Candidate {
    active: Arc<Active>,
    filling: Arc<Filling>,
    /// Set once it is shared.
    filled: OnceLock<Arc<Filter>>,
    swapped: bool,
}

impl Candidate {
    /// Adds many keys, by plain stores until the filter is shared.
    pub fn fill(&self, hashes: &[u128]) {
        self.filling.fill(hashes);
    }

    /// Shares the filter for reading. After the first call keys are added atomically.
    pub fn filter(&self) -> &Arc<Filter> {
        self.filled.get_or_init(|| {
            let filter = self.filling.share();
            let _change = self.active.change.lock();
            let current = self.active.pair.load().current.clone();
            // Only saves inserts the lock: one that loaded the pair before finds the filter shared behind it.
            self.active
                .pair
                .store(Arc::new(Pair { current, candidate: Some(CandidateState::Filled(Arc::clone(&filter))) }));
            filter
        })
    }

    /// Swaps the candidate in and returns its number.
    #[must_use]
    pub fn swap(mut self) -> u64 {
        // Shared before the swap: waiting keys must be in the filter before it is asked.
        let filter = Arc::clone(self.filter());
        let _change = self.active.change.lock();
        let number = self.active.pair.load().current.as_ref().map_or(0, |g| g.number) + 1;
        let current = Arc::new(Generation { number, filter });
        self.active.pair.store(Arc::new(Pair { current: Some(current), candidate: None }));
        self.swapped = true;
        number
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // After a swap there is nothing to withdraw, and the next build may have begun.
        if !self.swapped {
            let _change = self.active.change.lock();
            let current = self.active.pair.load().current.clone();
            self.active.pair.store(Arc::new(Pair { current, candidate: None }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterKind, FilterSpec};

    fn filter() -> Filter {
        Filter::new(FilterSpec { kind: FilterKind::Bloom, capacity: 1_000, rate: 0.001 }).unwrap()
    }

    #[test]
    fn inserts_during_a_build_reach_both_filters() {
        let active = Arc::new(Active::default());
        assert_eq!(active.probe(1), None);
        assert_eq!(active.begin(filter()).unwrap().swap(), 1);
        assert_eq!(active.probe(1), Some((false, 1)));
        let candidate = active.begin(filter()).unwrap();
        active.insert(1);
        candidate.fill(&[2]);
        assert!(candidate.filter().contains(1) && candidate.filter().contains(2));
        active.insert(3);
        candidate.fill(&[4]);
        assert!([1, 3].into_iter().all(|announced| active.probe(announced) == Some((true, 1))));
        assert_eq!(candidate.swap(), 2);
        assert!((1..=4).all(|key| active.probe(key) == Some((true, 2))));
    }

    #[test]
    fn a_dropped_candidate_changes_nothing_and_makes_room_for_the_next() {
        let active = Arc::new(Active::default());
        let first = active.begin(filter()).unwrap();
        first.fill(&[7]);
        assert_eq!(active.begin(filter()).unwrap_err(), Busy);
        drop(first);
        assert_eq!(active.probe(7), None);
        let second = active.begin(filter()).unwrap();
        assert_eq!(second.swap(), 1);
        assert_eq!(active.probe(7), Some((false, 1)));
    }

    #[test]
    fn the_filter_in_force_is_not_touched_by_a_build() {
        let active = Arc::new(Active::default());
        let _ = active.begin(filter()).unwrap().swap();
        let before = active.current().unwrap();
        let candidate = active.begin(filter()).unwrap();
        candidate.fill(&(0..1_000u128).map(|i| i << 64 | i).collect::<Vec<_>>());
        candidate.filter().insert(5);
        assert_eq!(before.filter.fill_ratio(), 0.0);
    }

    #[test]
    fn readers_never_miss_a_key_across_swaps() {
        let active = Arc::new(Active::default());
        let first = active.begin(filter()).unwrap();
        first.fill(&[42]);
        let _ = first.swap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (0..200_000).all(|_| active.probe(42).is_some_and(|(maybe, _)| maybe)));
            for _ in 0..200 {
                let candidate = active.begin(filter()).unwrap();
                candidate.fill(&[42]);
                let _ = candidate.swap();
            }
            assert!(reader.join().unwrap());
        });
    }
}
