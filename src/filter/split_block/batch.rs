//! Many keys at a time. Their blocks are fetched together, where one key after another would wait for memory each time.

use super::super::hash::masks;
use super::SplitBlock;
use super::probe::{Block, prefetch};

/// Keys whose blocks are fetched together: enough to keep all of a core's line fill buffers busy, few enough to stay in its first cache.
const BATCH: usize = 32;

impl SplitBlock {
    /// Whether each key may be in the filter, as [`SplitBlock::contains`] says of one.
    ///
    /// # Panics
    /// Where there are not as many answers as keys.
    pub fn contains_many(&self, hashes: &[u128], answers: &mut [bool]) {
        assert_eq!(hashes.len(), answers.len(), "one answer a key");
        let blocks = self.blocks();
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            let places = self.fetch(hashes);
            for (answer, (block, bits)) in answers.iter_mut().zip(places) {
                *answer = self.probe.all_set(&blocks[block], bits);
            }
        }
    }

    /// Adds keys, as [`SplitBlock::insert`] does: concurrent with everything.
    pub fn insert_many(&self, hashes: &[u128]) {
        let blocks = self.blocks();
        for hashes in hashes.chunks(BATCH) {
            for (block, bits) in self.fetch(hashes).into_iter().take(hashes.len()) {
                self.insert_into(&blocks[block], bits);
            }
        }
    }

    /// Adds keys by plain stores, about as fast as memory can be written at random: for a filter that nobody else sees yet. The bits are those of
    /// [`SplitBlock::insert`].
    pub fn fill(&mut self, hashes: &[u128]) {
        let mut fresh = 0;
        for hashes in hashes.chunks(BATCH) {
            let places = self.fetch(hashes);
            let blocks = self.memory.words_mut().as_chunks_mut().0;
            for (block, bits) in places.into_iter().take(hashes.len()) {
                fresh += u64::from(set(&mut blocks[block], bits));
            }
        }
        self.ones.add(fresh);
    }

    /// Where the keys are, their blocks on the way. What is beyond the keys means nothing.
    #[inline(always)]
    fn fetch(&self, hashes: &[u128]) -> [(usize, u64); BATCH] {
        let blocks: *const Block = self.blocks().as_ptr();
        let mut places = [(0, 0); BATCH];
        for (place, hash) in places.iter_mut().zip(hashes) {
            *place = self.locate(*hash);
            prefetch(blocks.wrapping_add(place.0));
        }
        places
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
