//! The counting Bloom filter: a counter in the place of each bit, so that keys can be removed.
//!
//! Counters have four bits. At the planned fill one overflows with a probability of about 10⁻¹⁵ (Fan, Cao, Almeida,
//! Broder 2000). A counter that has reached 15 **sticks**: its true value is unknown, so it is never lowered again.
//!
//! Removing a key that is not in the filter lowers counters of other keys, which then seem absent: 500 such removals
//! from 50,000 keys make 2.5 to 4.7 % of these false negatives. No filter can tell a member from a false positive, so
//! [`Counting::remove`] requires a [`Confirmed`].

use std::sync::atomic::{AtomicU64, Ordering};

use super::AllocError;
use super::classic::ClassicSize;
use super::hash::Salt;
use super::memory::Memory;
use super::probes::Probes;

/// Bits of a counter.
pub(super) const COUNTER_BITS: u64 = 4;
const PER_WORD: u64 = 64 / COUNTER_BITS;
/// A counter that has reached this value stays there.
const STUCK: u64 = (1 << COUNTER_BITS) - 1;

/// Proof that a key was inserted once more than it was removed. [`Counting::remove`] consumes it.
#[derive(Debug)]
#[must_use = "the exact store has given the key up"]
pub struct Confirmed(u128);

impl Confirmed {
    /// Asks a store that knows exactly which keys are in the filter, and how often. `give_up` must remove one insert of
    /// the key from that store and return whether there was one, atomically: two callers must not get the same insert.
    /// A filter, or a database with rows, is no such store.
    pub fn by(hash: u128, give_up: impl FnOnce(u128) -> bool) -> Option<Self> {
        give_up(hash).then_some(Self(hash))
    }
}

/// A counting Bloom filter over 128-bit key hashes. Lock-free. Orderings are relaxed, because each counter stands
/// alone: while an insert is not removed, each of its counters is at least 1, in whatever order others change.
#[derive(Debug)]
pub struct Counting {
    memory: Memory,
    /// Counts counters instead of bits.
    size: ClassicSize,
    salt: Salt,
    capacity: u64,
    /// Counters that are not 0.
    ones: AtomicU64,
}

impl Counting {
    /// Creates an empty filter with its own salt for `capacity` keys at a false-positive rate of at most `rate`.
    ///
    /// # Errors
    /// [`AllocError`]; a lack of memory never aborts the process.
    pub fn new(capacity: u64, rate: f64) -> Result<Self, AllocError> {
        Self::with_salt(capacity, rate, Salt::random())
    }

    pub(super) fn with_salt(capacity: u64, rate: f64, salt: Salt) -> Result<Self, AllocError> {
        let size = ClassicSize::new(capacity, rate)?;
        let memory = Memory::zeroed(size.bits.div_ceil(PER_WORD))?;
        Ok(Self { memory, size, salt, capacity, ones: AtomicU64::new(0) })
    }

    /// Restores a filter from its words.
    pub(super) fn restored(mut memory: Memory, size: ClassicSize, salt: Salt, capacity: u64) -> Self {
        let ones = memory.sum(counters_in_use);
        Self { memory, size, salt, capacity, ones: AtomicU64::new(ones) }
    }

    pub(super) const fn size(&self) -> ClassicSize {
        self.size
    }

    pub(super) const fn salt(&self) -> Salt {
        self.salt
    }

    pub(super) const fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    fn counters(&self, hash: u128) -> impl Iterator<Item = CounterCell<'_>> {
        let probes = Probes::new(self.salt, hash, self.size.hashes, self.size.bits);
        probes.map(|place| CounterCell {
            word: &self.memory.words()[(place / PER_WORD) as usize],
            shift: place % PER_WORD * COUNTER_BITS,
        })
    }

    /// Adds a key. Repeated inserts of a key are counted.
    pub fn insert(&self, hash: u128) {
        for counter in self.counters(hash) {
            if counter.raise_by(1) == 0 {
                self.ones.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Removes one insert of a key.
    pub fn remove(&self, key: Confirmed) {
        for counter in self.counters(key.0) {
            if counter.lower() == 1 {
                self.ones.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether the key may be in the filter; `false` is certain.
    #[must_use]
    pub fn contains(&self, hash: u128) -> bool {
        self.counters(hash).all(|counter| counter.get() > 0)
    }

    /// Adds every insert of `other`, which has the same parameters.
    pub(super) fn merge(&self, other: &Self) {
        let counters =
            |words: usize, lane: u64| CounterCell { word: &self.memory.words()[words], shift: lane * COUNTER_BITS };
        for (index, more) in other.words().iter().enumerate() {
            let more = more.load(Ordering::Relaxed);
            for lane in (0..PER_WORD).filter(|lane| more >> (lane * COUNTER_BITS) & STUCK > 0) {
                if counters(index, lane).raise_by(more >> (lane * COUNTER_BITS) & STUCK) == 0 {
                    self.ones.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Keys it was sized for.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Number of counters, where a classic filter has bits.
    #[must_use]
    pub const fn places(&self) -> u64 {
        self.size.bits
    }

    /// Bytes of the counters.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.memory.words().len() as u64 * 8
    }

    /// Share of counters that are not 0.
    #[must_use]
    pub fn fill_ratio(&self) -> f64 {
        // If two threads raise and lower a counter at once, the decrement of `ones` may come first.
        (self.ones.load(Ordering::Relaxed) as i64).max(0) as f64 / self.size.bits as f64
    }

    /// Distinct keys, estimated from the fill.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.size.items(self.fill_ratio())
    }

    /// The false-positive rate that the current fill predicts.
    #[must_use]
    pub fn estimated_fpr(&self) -> f64 {
        self.fill_ratio().powf(f64::from(self.size.hashes))
    }
}

const fn counters_in_use(word: u64) -> u64 {
    let folded = word | word >> 2;
    ((folded | folded >> 1) & 0x1111_1111_1111_1111).count_ones() as u64
}

/// One counter within its word.
struct CounterCell<'a> {
    word: &'a AtomicU64,
    shift: u64,
}

impl CounterCell<'_> {
    fn get(&self) -> u64 {
        self.word.load(Ordering::Relaxed) >> self.shift & STUCK
    }

    /// Raises the count, up to the value that sticks. Returns the count before.
    fn raise_by(&self, more: u64) -> u64 {
        self.change(|count| (count + more).min(STUCK))
    }

    /// Lowers the count, unless it sticks. Returns the count before. A zero stays: the proof was false, and must not
    /// wrap to the largest count.
    fn lower(&self) -> u64 {
        self.change(|count| if count == STUCK { STUCK } else { count.saturating_sub(1) })
    }

    fn change(&self, changed: impl Fn(u64) -> u64) -> u64 {
        let count = |word: u64| word >> self.shift & STUCK;
        let update = |word| Some(word & !(STUCK << self.shift) | changed(count(word)) << self.shift);
        // The closure never returns `None`, so both arms are the word before.
        count(self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).unwrap_or_else(|word| word))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_128;

    use super::*;

    fn hash(n: u64) -> u128 {
        xxh3_128(&n.to_le_bytes())
    }

    /// The proof of a caller that tracks its inserts.
    fn known(n: u64) -> Confirmed {
        Confirmed::by(hash(n), |_| true).unwrap()
    }

    #[test]
    fn what_was_inserted_and_taken_out_again_leaves_nothing_behind() {
        let filter = Counting::new(10_000, 0.001).unwrap();
        (0..10_000).for_each(|n| filter.insert(hash(n)));
        (0..5_000).for_each(|n| filter.remove(known(n)));
        assert!((5_000..10_000).all(|n| filter.contains(hash(n))), "a key was lost with others");
        let left = (0..5_000).filter(|n| filter.contains(hash(*n))).count();
        assert!(left < 10, "{left} keys that were taken out are still there");
        assert!((filter.items() as f64 - 5_000.0).abs() < 100.0, "{}", filter.items());
        (5_000..10_000).for_each(|n| filter.remove(known(n)));
        assert_eq!((filter.items(), filter.fill_ratio()), (0, 0.0));
    }

    #[test]
    fn a_counter_that_is_full_sticks() {
        let filter = Counting::new(100, 0.01).unwrap();
        (0..16).for_each(|_| filter.insert(hash(1)));
        (0..16).for_each(|_| filter.remove(known(1)));
        assert!(filter.contains(hash(1)), "fifteen may have been more");
    }

    #[test]
    fn a_false_proof_does_not_wrap_a_counter_around() {
        let filter = Counting::new(100, 0.01).unwrap();
        filter.remove(known(1));
        assert_eq!(filter.fill_ratio(), 0.0);
    }

    #[test]
    fn what_the_exact_store_does_not_know_is_not_taken_out() {
        assert!(Confirmed::by(hash(1), |_| false).is_none());
    }

    /// Invariant: growth-loses-no-key
    #[test]
    fn keys_that_stay_are_never_missed_while_others_come_and_go() {
        let filter = Counting::new(20_000, 0.001).unwrap();
        (0..10_000).for_each(|n| filter.insert(hash(n)));
        std::thread::scope(|scope| {
            for part in 1..5 {
                let filter = &filter;
                let own = move || part * 10_000..part * 10_000 + 2_000;
                scope.spawn(move || {
                    for _ in 0..3 {
                        own().for_each(|n| filter.insert(hash(n)));
                        assert!(own().all(|n| filter.contains(hash(n))));
                        own().for_each(|n| filter.remove(known(n)));
                    }
                });
            }
            assert!((0..3).all(|_| (0..10_000).all(|n| filter.contains(hash(n)))));
        });
        assert!((filter.items() as f64 - 10_000.0).abs() < 200.0, "{}", filter.items());
    }

    proptest! {
        #[test]
        fn no_false_negative_whatever_comes_and_goes(steps in prop::collection::vec((0u64..40, any::<bool>()), 0..400)) {
            let filter = Counting::new(50, 0.01).unwrap();
            let mut exact: HashMap<u128, u32> = HashMap::new();
            for (key, insert) in steps {
                let key = hash(key);
                if insert {
                    filter.insert(key);
                    *exact.entry(key).or_default() += 1;
                } else if let Some(proof) = Confirmed::by(key, |key| match exact.get_mut(&key) {
                    Some(count) if *count > 0 => { *count -= 1; true }
                    _ => false,
                }) {
                    filter.remove(proof);
                }
                prop_assert!(exact.iter().all(|(key, count)| *count == 0 || filter.contains(*key)));
            }
        }
    }
}
