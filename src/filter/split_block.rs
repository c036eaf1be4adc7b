//! The split-block Bloom filter: blocks of one cache line, eight words of 64 bits, one bit a word and key.
//!
//! Lookups touch one cache line and test eight words without a branch between them. Inserts are lock-free.

use std::sync::atomic::{AtomicU64, Ordering};

use super::AllocError;
use super::hash::{Salt, masks, reduce};
use super::memory::Memory;
use super::sizing::{BITS_PER_BLOCK, SizingError, blocks_for, expected_fpr};

/// A split-block Bloom filter over 128-bit key hashes.
///
/// All orderings are relaxed: bits only ever go from 0 to 1 and no other memory is published through them. Whoever must see an insert is
/// told of it after it happened (a response, a lock, a channel), and that edge orders the bits too.
#[derive(Debug)]
pub struct SplitBlock {
    memory: Memory,
    /// Blocks, one cache line each.
    blocks: u64,
    salt: Salt,
    capacity: u64,
    /// Bits that are 1, so that fill and items need no walk over the blocks.
    ones: AtomicU64,
}

impl SplitBlock {
    /// An empty filter that holds `capacity` keys at a false-positive rate of at most `rate`, under a salt of its own.
    ///
    /// # Errors
    /// [`AllocError`]; never aborts the process for lack of memory.
    pub fn new(capacity: u64, rate: f64) -> Result<Self, AllocError> {
        Self::with_salt(capacity, rate, Salt::random())
    }

    pub(crate) fn with_salt(capacity: u64, rate: f64, salt: Salt) -> Result<Self, AllocError> {
        let blocks = blocks_for(capacity, rate)?;
        Ok(Self { memory: Memory::zeroed(blocks * 8)?, blocks, salt, capacity, ones: AtomicU64::new(0) })
    }

    /// Bytes of a filter of so many keys and that rate, before it is made.
    ///
    /// # Errors
    /// [`SizingError`].
    pub fn bytes_needed(capacity: u64, rate: f64) -> Result<u64, SizingError> {
        blocks_for(capacity, rate).map(Self::bytes_for)
    }

    const fn bytes_for(blocks: u64) -> u64 {
        blocks * (BITS_PER_BLOCK / 8)
    }

    /// Adds a key. Lock-free; concurrent with everything.
    pub fn insert(&self, hash: u128) {
        let (block, masks) = self.locate(hash);
        let mut fresh = 0;
        for (word, mask) in block.iter().zip(masks) {
            // Load first: most bits of a full filter are set already, and a load leaves the cache line shared.
            if word.load(Ordering::Relaxed) & mask == 0 && word.fetch_or(mask, Ordering::Relaxed) & mask == 0 {
                fresh += 1;
            }
        }
        if fresh > 0 {
            self.ones.fetch_add(fresh, Ordering::Relaxed);
        }
    }

    /// Whether the key may be in the filter; `false` is certain.
    #[must_use]
    pub fn contains(&self, hash: u128) -> bool {
        let (block, masks) = self.locate(hash);
        let mut missing = 0;
        for (word, mask) in block.iter().zip(masks) {
            missing |= !word.load(Ordering::Relaxed) & mask;
        }
        missing == 0
    }

    #[inline]
    fn locate(&self, hash: u128) -> (&[AtomicU64], [u64; 8]) {
        let (place, bits) = self.salt.mix(hash);
        let first = reduce(place, self.blocks) as usize * 8;
        (&self.memory.words()[first..first + 8], masks(bits))
    }

    /// Keys it was sized for.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) const fn salt(&self) -> Salt {
        self.salt
    }

    /// The words, eight a block.
    pub(super) const fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// A filter again of its words.
    pub(super) fn restored(memory: Memory, salt: Salt, capacity: u64) -> Self {
        let ones = memory.words().iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum();
        Self { blocks: memory.words().len() as u64 / 8, memory, salt, capacity, ones: AtomicU64::new(ones) }
    }

    /// Adds every key of `other`, whose parameters are equal.
    pub(super) fn merge(&self, other: &Self) {
        let mut fresh = 0;
        for (word, more) in self.words().iter().zip(other.words()) {
            let more = more.load(Ordering::Relaxed);
            fresh += u64::from((more & !word.fetch_or(more, Ordering::Relaxed)).count_ones());
        }
        self.ones.fetch_add(fresh, Ordering::Relaxed);
    }

    /// Bits.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.blocks * BITS_PER_BLOCK
    }

    /// Bytes of the blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bits() / 8
    }

    /// Share of bits that are set.
    #[must_use]
    pub fn fill_ratio(&self) -> f64 {
        self.ones.load(Ordering::Relaxed) as f64 / self.bits() as f64
    }

    /// Distinct keys, estimated from the fill: n̂ = −(m/k)·ln(1 − X/m) (Swamidass, Baldi 2007), with k = 8.
    #[must_use]
    pub fn items(&self) -> u64 {
        let m = self.bits() as f64;
        (-(m / 8.0) * (1.0 - self.fill_ratio().min(1.0 - 0.5 / m)).ln()).round() as u64
    }

    /// The false-positive rate that the present fill predicts.
    #[must_use]
    pub fn estimated_fpr(&self) -> f64 {
        expected_fpr(self.items() as f64 / self.blocks as f64)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_128;

    use super::*;

    const SALT: Salt = Salt::fixed([0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0xD6E8_FEB8_6659_FD93]);

    fn hash(key: &str) -> u128 {
        xxh3_128(key.as_bytes())
    }

    /// Share of `trials` strangers that pass.
    fn measured_rate(filter: &SplitBlock, trials: u32, key: impl Fn(u32) -> String) -> f64 {
        f64::from((0..trials).filter(|i| filter.contains(hash(&key(*i)))).count() as u32) / f64::from(trials)
    }

    #[test]
    fn the_measured_rate_is_at_most_the_rate_asked() {
        let forms: [fn(u32) -> String; 3] = [|i| i.to_string(), |i| format!("user:{i}"), |i| format!("https://example.com/items/{i:032x}")];
        for form in forms {
            for (keys, rate) in [(10_000, 0.01), (100_000, 0.001)] {
                let filter = SplitBlock::with_salt(u64::from(keys), rate, SALT).unwrap();
                (0..keys).for_each(|i| filter.insert(hash(&form(i))));
                let trials = 1_000_000;
                let sigma = (rate / f64::from(trials)).sqrt();
                let measured = measured_rate(&filter, trials, |i| form(i + 1_000_000_000));
                assert!(measured <= rate * 1.024 + 5.0 * sigma, "{} keys: {measured} for {rate}", keys);
            }
        }
    }

    #[test]
    fn items_from_fill_are_within_one_percent() {
        let filter = SplitBlock::with_salt(100_000, 0.001, SALT).unwrap();
        (0..100_000).for_each(|i| filter.insert(hash(&i.to_string())));
        (0..50_000).for_each(|i| filter.insert(hash(&i.to_string())));
        let items = filter.items() as f64;
        assert!((items - 100_000.0).abs() < 1_000.0, "{items}");
        assert!(filter.estimated_fpr() < 0.00102, "{}", filter.estimated_fpr());
    }

    #[test]
    fn a_false_positive_of_one_filter_is_rarely_one_of_the_next() {
        let build = || {
            let filter = SplitBlock::new(10_000, 0.01).unwrap();
            (0..10_000).for_each(|i| filter.insert(hash(&i.to_string())));
            filter
        };
        let (first, second) = (build(), build());
        let positives: Vec<u128> = (10_000..1_010_000).map(|i| hash(&i.to_string())).filter(|h| first.contains(*h)).collect();
        assert!(positives.len() > 5_000, "{}", positives.len());
        let again = positives.iter().filter(|h| second.contains(**h)).count();
        assert!(again < positives.len() / 50, "{again} of {}", positives.len());
    }

    #[test]
    fn concurrent_inserts_lose_nothing() {
        let filter = SplitBlock::new(80_000, 0.001).unwrap();
        std::thread::scope(|scope| {
            for part in 0..8u32 {
                let filter = &filter;
                scope.spawn(move || {
                    for i in part * 10_000..(part + 1) * 10_000 {
                        filter.insert(hash(&i.to_string()));
                        assert!(filter.contains(hash(&i.to_string())));
                    }
                });
            }
        });
        assert!((0..80_000).all(|i| filter.contains(hash(&i.to_string()))));
    }

    #[test]
    fn a_size_that_no_memory_holds_is_an_error() {
        assert!(matches!(SplitBlock::new(1 << 50, 0.001), Err(AllocError::Memory(_))));
    }

    proptest! {
        #[test]
        fn no_false_negative_under_any_keys(keys in prop::collection::hash_set(any::<u128>(), 0..500)) {
            let filter = SplitBlock::new(100, 0.01).unwrap();
            keys.iter().for_each(|k| filter.insert(*k));
            let missing: HashSet<_> = keys.iter().filter(|k| !filter.contains(**k)).collect();
            prop_assert!(missing.is_empty());
        }
    }
}
