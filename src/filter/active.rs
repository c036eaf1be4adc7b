//! The generation in force, the candidate that a build fills beside it, and the swap.
//!
//! Readers load one pointer and wait for nobody. From [`Active::begin`] until the swap every insert reaches both filters. An insert that
//! loaded the pair *before* `begin` published the candidate reaches only the old filter; so whoever inserts keeps the hash in a memory of
//! recent announces **before** it calls [`Active::insert`], and whoever builds replays that memory **after** `begin`: one of the two sees
//! the other. (A lock that inserters and `begin` share would close the gap too, but then each announce would wait for each build.)

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::Filter;

/// A filter in force.
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
    candidate: Option<Arc<Filter>>,
}

/// The filter of a keyspace through all its generations.
#[derive(Debug, Default)]
pub struct Active {
    pair: ArcSwap<Pair>,
    /// Held while a candidate is published, withdrawn or put in force; readers and inserts never take it.
    change: Mutex<()>,
}

/// A candidate exists already: one build at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a build is under way already")]
pub struct Busy;

impl Active {
    /// The generation in force.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Generation>> {
        self.pair.load().current.clone()
    }

    /// Whether the key may be there and which generation says so; `None` while there is no filter.
    #[must_use]
    pub fn probe(&self, hash: u128) -> Option<(bool, u64)> {
        self.pair.load().current.as_ref().map(|generation| (generation.filter.contains(hash), generation.number))
    }

    /// Adds a key to the filter in force and to the candidate, where there is one.
    pub fn insert(&self, hash: u128) {
        let pair = self.pair.load();
        if let Some(generation) = &pair.current {
            generation.filter.insert(hash);
        }
        if let Some(candidate) = &pair.candidate {
            candidate.insert(hash);
        }
    }

    /// Puts a filter in force that was built elsewhere, under the number that it has, where there is none yet.
    pub fn install(&self, filter: Filter, number: u64) {
        let _change = self.change.lock();
        let pair = self.pair.load();
        if pair.current.is_none() {
            let current = Some(Arc::new(Generation { number, filter: Arc::new(filter) }));
            self.pair.store(Arc::new(Pair { current, candidate: pair.candidate.clone() }));
        }
    }

    /// Publishes an empty candidate: from now every insert reaches it too. Dropping the result withdraws it.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn begin(self: &Arc<Self>, filter: Filter) -> Result<Candidate, Busy> {
        let _change = self.change.lock();
        let pair = self.pair.load();
        if pair.candidate.is_some() {
            return Err(Busy);
        }
        let filter = Arc::new(filter);
        self.pair.store(Arc::new(Pair { current: pair.current.clone(), candidate: Some(Arc::clone(&filter)) }));
        Ok(Candidate { active: Arc::clone(self), filter, swapped: false })
    }
}

/// A filter under construction. The filter in force knows nothing of it until [`Candidate::swap`].
#[derive(Debug)]
pub struct Candidate {
    active: Arc<Active>,
    filter: Arc<Filter>,
    swapped: bool,
}

impl Candidate {
    /// The filter to fill.
    #[must_use]
    pub const fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }

    /// Puts it in force and returns its number.
    #[must_use]
    pub fn swap(mut self) -> u64 {
        let _change = self.active.change.lock();
        let number = self.active.pair.load().current.as_ref().map_or(0, |g| g.number) + 1;
        let current = Arc::new(Generation { number, filter: Arc::clone(&self.filter) });
        self.active.pair.store(Arc::new(Pair { current: Some(current), candidate: None }));
        self.swapped = true;
        number
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // After a swap there is nothing to withdraw, and the next build may have begun already.
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
        assert_eq!(active.probe(1), Some((true, 1)));
        assert_eq!(candidate.swap(), 2);
        assert_eq!(active.probe(1), Some((true, 2)));
    }

    #[test]
    fn a_dropped_candidate_changes_nothing_and_makes_room_for_the_next() {
        let active = Arc::new(Active::default());
        let first = active.begin(filter()).unwrap();
        first.filter().insert(7);
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
        (0..1_000u128).for_each(|i| candidate.filter().insert(i << 64 | i));
        assert_eq!(before.filter.fill_ratio(), 0.0);
    }

    #[test]
    fn readers_never_miss_a_key_across_swaps() {
        let active = Arc::new(Active::default());
        let first = active.begin(filter()).unwrap();
        first.filter().insert(42);
        let _ = first.swap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| (0..200_000).all(|_| active.probe(42).is_some_and(|(maybe, _)| maybe)));
            for _ in 0..200 {
                let candidate = active.begin(filter()).unwrap();
                candidate.filter().insert(42);
                let _ = candidate.swap();
            }
            assert!(reader.join().unwrap());
        });
    }
}
