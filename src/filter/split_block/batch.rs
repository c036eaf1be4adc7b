//! Operations on many keys. Blocks are prefetched, because one key after another would wait for memory each time.

use super::super::hash::{Salt, masks, reduce};
use super::SplitBlock;
use super::probe::{Block, prefetch};

/// Prefetch distance in keys: enough to keep a core's line fill buffers busy, few enough to stay in its L1 cache. A
/// power of two.
const AHEAD: usize = 32;

impl SplitBlock {
    /// Answers [`SplitBlock::contains`] for each key.
    ///
    /// # Panics
    /// If there are not as many answers as keys.
    pub fn contains_many(&self, hashes: &[u128], answers: &mut [bool]) {
        assert_eq!(hashes.len(), answers.len(), "one answer a key");
        let (blocks, probe) = (self.blocks(), self.probe);
        self.places().visit(hashes, |key, block, bits| answers[key] = probe.all_set(&blocks[block], bits));
    }

    /// Adds keys like [`SplitBlock::insert`]: concurrent with everything.
    pub fn insert_many(&self, hashes: &[u128]) {
        let blocks = self.blocks();
        self.places().visit(hashes, |_, block, bits| self.insert_into(&blocks[block], bits));
    }

    /// Adds keys by plain stores, about as fast as memory can be written at random. For a filter that is not shared
    /// yet. Sets the same bits as [`SplitBlock::insert`].
    pub fn fill(&mut self, hashes: &[u128]) {
        let mut fresh = 0;
        let places = self.places();
        let blocks = self.memory.words_mut().as_chunks_mut().0;
        places.visit(hashes, |_, block, bits| fresh += u64::from(set(&mut blocks[block], bits)));
        self.ones.add(fresh);
    }

    const fn places(&self) -> Places {
        let blocks = self.blocks();
        Places { salt: self.salt, count: blocks.len() as u64, first: blocks.as_ptr() }
    }
}

/// Maps hashes to blocks. The address is only used for prefetching, so it may be kept while blocks are written.
struct Places {
    salt: Salt,
    count: u64,
    first: *const Block,
}

impl Places {
    /// Calls `visit` in order with each key's index, block and bit choice, [`AHEAD`] keys after the prefetch. Rolling
    /// instead of batch by batch, so that work and prefetches overlap.
    #[inline(always)]
    fn visit(&self, hashes: &[u128], mut visit: impl FnMut(usize, usize, u64)) {
        let mut waiting = [(0, 0); AHEAD];
        for (key, hash) in hashes.iter().enumerate() {
            let slot = &mut waiting[key % AHEAD];
            if let Some(earlier) = key.checked_sub(AHEAD) {
                visit(earlier, slot.0, slot.1);
            }
            let (place, bits) = self.salt.block_and_bits(*hash);
            *slot = (reduce(place, self.count) as usize, bits);
            prefetch(self.first.wrapping_add(slot.0));
        }
        for key in hashes.len().saturating_sub(AHEAD)..hashes.len() {
            let (block, bits) = waiting[key % AHEAD];
            visit(key, block, bits);
        }
    }
}

/// Sets a key's bits and counts those that were not set before.
#[inline(always)]
fn set(block: &mut [u64; 8], bits: u64) -> u32 {
    let mut fresh = 0;
    for (word, mask) in block.iter_mut().zip(masks(bits)) {
        fresh += u32::from(*word & mask == 0);
        *word |= mask;
    }
    fresh
}
