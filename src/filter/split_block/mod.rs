//! The split-block Bloom filter: blocks of one cache line, eight words of 64 bits, one bit per word and key.
//!
//! A lookup touches one cache line and tests eight words without a branch between them. Inserts are lock-free.

mod batch;
mod probe;
mod union;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

use self::probe::{Block, BlockProbe};
use super::hash::{Salt, masks, reduce};
use super::sizing::{BITS_PER_BLOCK, SizingError, blocks_for, expected_fpr};
use super::striped_counter::StripedCounter;
use super::{AllocError, Memory, UnionError};

const WORDS_PER_BLOCK: u64 = BITS_PER_BLOCK / 64;

/// A split-block Bloom filter over 128-bit key hashes.
///
/// All orderings are relaxed: bits only go from 0 to 1, and no other memory is published through them. A reader that
/// must see an insert learns of it afterwards (by a response, a lock, a channel), and that edge orders the bits too.
#[derive(Debug)]
pub struct SplitBlock {
    /// Whole blocks, at least one.
    memory: Memory,
    probe: BlockProbe,
    salt: Salt,
    capacity: u64,
    ones: StripedCounter,
}

impl SplitBlock {
    /// Creates an empty filter with its own salt for `capacity` keys at a false-positive rate of at most `rate`.
    ///
    /// # Errors
    /// [`AllocError`]; a lack of memory never aborts the process.
    pub fn new(capacity: u64, rate: f64) -> Result<Self, AllocError> {
        Self::with_salt(capacity, rate, Salt::random())
    }

    pub(crate) fn with_salt(capacity: u64, rate: f64, salt: Salt) -> Result<Self, AllocError> {
        let memory = Memory::zeroed(blocks_for(capacity, rate)? * WORDS_PER_BLOCK)?;
        Ok(Self::over(memory, salt, capacity, 0))
    }

    /// Wraps words, which are whole blocks with `ones` bits set.
    pub(crate) fn over(memory: Memory, salt: Salt, capacity: u64, ones: u64) -> Self {
        debug_assert!(!memory.words().is_empty() && (memory.words().len() as u64).is_multiple_of(WORDS_PER_BLOCK));
        Self { memory, probe: BlockProbe::best(), salt, capacity, ones: StripedCounter::starting_at(ones) }
    }

    /// Bytes of a filter for this many keys at this rate.
    ///
    /// # Errors
    /// [`SizingError`].
    pub fn bytes_needed(capacity: u64, rate: f64) -> Result<u64, SizingError> {
        blocks_for(capacity, rate).map(|blocks| blocks * (BITS_PER_BLOCK / 8))
    }

    /// Adds a key. Lock-free; concurrent with everything.
    #[inline]
    pub fn insert(&self, hash: u128) {
        let (block, bits) = self.locate(hash);
        self.insert_into(&self.blocks()[block], bits);
    }

    fn insert_into(&self, block: &Block, bits: u64) {
        let mut fresh = 0;
        for (word, mask) in block.iter().zip(masks(bits)) {
            // Load first: most bits of a full filter are set already, and a load keeps the cache line shared.
            if word.load(Ordering::Relaxed) & mask == 0 {
                // The previous value is not used: that would need a compare-and-exchange loop and twice the time. So a
                // bit that two threads set at the same moment is counted twice, and the fill may be slightly
                // overestimated.
                word.fetch_or(mask, Ordering::Relaxed);
                fresh += 1;
            }
        }
        if fresh > 0 {
            self.ones.add(fresh);
        }
    }

    /// Whether the key may be in the filter; `false` is certain.
    #[inline(always)]
    #[must_use]
    pub fn contains(&self, hash: u128) -> bool {
        let (block, bits) = self.locate(hash);
        self.probe.all_set(&self.blocks()[block], bits)
    }

    /// The key's block, and what chooses its bits in it.
    #[inline(always)]
    fn locate(&self, hash: u128) -> (usize, u64) {
        let (place, bits) = self.salt.block_and_bits(hash);
        (reduce(place, self.blocks().len() as u64) as usize, bits)
    }

    #[inline(always)]
    const fn blocks(&self) -> &[Block] {
        self.memory.words().as_chunks().0
    }

    pub(super) const fn salt(&self) -> Salt {
        self.salt
    }

    /// The words, eight per block.
    pub(super) const fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// Keys it was sized for.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bits.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.blocks().len() as u64 * BITS_PER_BLOCK
    }

    /// Bytes of the blocks.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bits() / 8
    }

    /// Share of bits that are set.
    #[must_use]
    pub fn fill_ratio(&self) -> f64 {
        self.ones.get() as f64 / self.bits() as f64
    }

    /// Distinct keys, estimated from the fill: n̂ = −(m/k)·ln(1 − X/m) (Swamidass, Baldi 2007), with k = 8.
    #[must_use]
    pub fn items(&self) -> u64 {
        let m = self.bits() as f64;
        (-(m / 8.0) * (1.0 - self.fill_ratio().min(1.0 - 0.5 / m)).ln()).round() as u64
    }

    /// The false-positive rate that the current fill predicts.
    #[must_use]
    pub fn estimated_fpr(&self) -> f64 {
        expected_fpr(self.items() as f64 / self.blocks().len() as f64)
    }
}
