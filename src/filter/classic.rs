//! The classic Bloom filter: k bits anywhere in memory for each key. The fewest bits per key, and up to k cache lines
//! per lookup.
//!
//! Worth its cache misses below a rate of about 10⁻⁴, where a split block needs a quarter more memory, and half as much
//! again at lower rates.

use std::sync::atomic::{AtomicU64, Ordering};

use super::AllocError;
use super::hash::Salt;
use super::memory::Memory;
use super::probes::Probes;
use super::sizing::SizingError;
use super::striped_counter::StripedCounter;

/// Larger than every address space, and f64 still counts such sizes precisely enough.
const MAX_BITS: f64 = (1u64 << 60) as f64;

/// The size of a classic filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClassicSize {
    pub(super) bits: u64,
    pub(super) hashes: u32,
}

impl ClassicSize {
    /// Bits and hashes for which `keys` keys reach at most `rate`. Chooses k first, as a whole number, and then the
    /// bits that this k needs. In the other order the rate is missed by a percent or two, because k is rarely whole.
    pub(super) fn new(keys: u64, rate: f64) -> Result<Self, SizingError> {
        if !(rate > 0.0 && rate < 1.0) {
            return Err(SizingError::Rate(rate));
        }
        let hashes = (-rate.log2()).round().max(1.0);
        let bits = (-hashes * keys.max(1) as f64 / (-rate.powf(1.0 / hashes)).ln_1p()).ceil();
        if bits > MAX_BITS {
            return Err(SizingError::TooLarge { keys, rate });
        }
        Ok(Self { bits: bits as u64, hashes: hashes as u32 })
    }

    /// The rate with this many keys.
    pub(super) fn expected_fpr(self, keys: u64) -> f64 {
        let hashes = f64::from(self.hashes);
        (-(-hashes * keys as f64 / self.bits as f64).exp_m1()).powf(hashes)
    }

    /// The share of set bits at which the rate is reached.
    pub(super) fn fill_at(self, rate: f64) -> f64 {
        rate.powf(1.0 / f64::from(self.hashes))
    }

    /// n̂ = −(m/k)·ln(1 − X/m) (Swamidass, Baldi 2007). For a filter with all bits set it assumes half a bit free.
    pub(super) fn items(self, fill: f64) -> u64 {
        let bits = self.bits as f64;
        (-(bits / f64::from(self.hashes)) * (1.0 - fill.min(1.0 - 0.5 / bits)).ln()).round() as u64
    }
}

/// A classic Bloom filter over 128-bit key hashes. Inserts are lock-free; orderings are relaxed for the reasons of
/// [`super::SplitBlock`].
#[derive(Debug)]
pub struct Classic {
    memory: Memory,
    size: ClassicSize,
    salt: Salt,
    capacity: u64,
    ones: StripedCounter,
}

impl Classic {
    /// Creates an empty filter with its own salt for `capacity` keys at a false-positive rate of at most `rate`.
    ///
    /// # Errors
    /// [`AllocError`]; a lack of memory never aborts the process.
    pub fn new(capacity: u64, rate: f64) -> Result<Self, AllocError> {
        Self::with_salt(capacity, rate, Salt::random())
    }

    pub(super) fn with_salt(capacity: u64, rate: f64, salt: Salt) -> Result<Self, AllocError> {
        let size = ClassicSize::new(capacity, rate)?;
        let memory = Memory::zeroed(size.bits.div_ceil(64))?;
        Ok(Self { memory, size, salt, capacity, ones: StripedCounter::starting_at(0) })
    }

    /// Restores a filter from its words.
    pub(super) fn restored(mut memory: Memory, size: ClassicSize, salt: Salt, capacity: u64) -> Self {
        let ones = memory.sum(|word| u64::from(word.count_ones()));
        Self { memory, size, salt, capacity, ones: StripedCounter::starting_at(ones) }
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

    #[inline]
    const fn probes(&self, hash: u128) -> Probes {
        Probes::new(self.salt, hash, self.size.hashes, self.size.bits)
    }

    /// Adds a key. Lock-free; concurrent with everything.
    pub fn insert(&self, hash: u128) {
        let mut fresh = 0;
        for place in self.probes(hash) {
            let (word, mask) = (&self.memory.words()[(place / 64) as usize], 1 << (place % 64));
            // Load first: about half of the bits are set already, and a load keeps the cache line shared.
            if word.load(Ordering::Relaxed) & mask == 0 && word.fetch_or(mask, Ordering::Relaxed) & mask == 0 {
                fresh += 1;
            }
        }
        if fresh > 0 {
            self.ones.add(fresh);
        }
    }

    /// Whether the key may be in the filter; `false` is certain. Stops at the first unset bit, because each may be a
    /// cache miss.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: u128) -> bool {
        self.probes(hash)
            .all(|place| self.memory.words()[(place / 64) as usize].load(Ordering::Relaxed) >> (place % 64) & 1 == 1)
    }

    /// Adds every key of `other`, which has the same parameters.
    pub(super) fn merge(&self, other: &Self) {
        let mut fresh = 0;
        for (word, more) in self.words().iter().zip(other.words()) {
            let more = more.load(Ordering::Relaxed);
            fresh += u64::from((more & !word.fetch_or(more, Ordering::Relaxed)).count_ones());
        }
        self.ones.add(fresh);
    }

    /// Keys it was sized for.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bits.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.size.bits
    }

    /// Bits per key.
    #[must_use]
    pub const fn hashes(&self) -> u32 {
        self.size.hashes
    }

    /// Bytes of the bits.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.memory.words().len() as u64 * 8
    }

    /// Share of bits that are set.
    #[must_use]
    pub fn fill_ratio(&self) -> f64 {
        self.ones.get() as f64 / self.size.bits as f64
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_formula() {
        for (rate, hashes, bits) in [(0.01, 7, 9_592_955), (0.001, 10, 14_377_640), (1e-4, 13, 19_172_955)] {
            assert_eq!(ClassicSize::new(1_000_000, rate), Ok(ClassicSize { bits, hashes }));
        }
    }

    #[test]
    fn the_rate_reached_is_at_most_the_rate_asked() {
        for keys in [1, 10, 1_000, 1_000_000, 1_000_000_000] {
            for rate in [0.9, 0.5, 0.03, 0.01, 0.001, 1e-6, 1e-9] {
                let reached = ClassicSize::new(keys, rate).unwrap().expected_fpr(keys);
                assert!(reached <= rate * (1.0 + 1e-12), "{keys} keys at {rate}: {reached}");
            }
        }
    }
}
