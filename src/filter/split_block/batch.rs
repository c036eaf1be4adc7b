//! Many keys at a time. Their blocks are fetched ahead, where one key after another would wait for memory each time.

use super::super::hash::{Salt, masks, reduce};
use super::SplitBlock;
use super::probe::{Block, prefetch};

/// How many keys a block is fetched ahead: enough to keep all of a core's line fill buffers busy, few enough to stay in its first cache. A power of 2.
const AHEAD: usize = 32;

impl SplitBlock {
    /// Whether each key may be in the filter, as [`SplitBlock::contains`] says of one.
    ///
    /// # Panics
    /// Where there are not as many answers as keys.
    pub fn contains_many(&self, hashes: &[u128], answers: &mut [bool]) {
        assert_eq!(hashes.len(), answers.len(), "one answer a key");
        let (blocks, probe) = (self.blocks(), self.probe);
        self.places().visit(hashes, |key, block, bits| answers[key] = probe.all_set(&blocks[block], bits));
    }

    /// Adds keys, as [`SplitBlock::insert`] does: concurrent with everything.
    pub fn insert_many(&self, hashes: &[u128]) {
        let blocks = self.blocks();
        self.places().visit(hashes, |_, block, bits| self.insert_into(&blocks[block], bits));
    }

    /// Adds keys by plain stores, about as fast as memory can be written at random: for a filter that nobody else sees yet. The bits are those of
    /// [`SplitBlock::insert`].
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

/// Where keys are. The address is for prefetching only, so it may be kept while the blocks are written.
struct Places {
    salt: Salt,
    count: u64,
    first: *const Block,
}

impl Places {
    /// Calls `visit` with each key's number, its block and what chooses its bits, in order, [`AHEAD`] keys after it has asked for the block. Rolling, and not
    /// batch by batch: so the work on one key goes on while others' blocks are on the way.
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

/// Sets a key's bits and counts those that were not set.
#[inline(always)]
fn set(block: &mut [u64; 8], bits: u64) -> u32 {
    let mut fresh = 0;
    for (word, mask) in block.iter_mut().zip(masks(bits)) {
        fresh += u32::from(*word & mask == 0);
        *word |= mask;
    }
    fresh
}
