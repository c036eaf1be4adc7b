//! The lower bound of a lookup: one random line of memory, and the hash that chooses it.

use std::sync::atomic::Ordering::Relaxed;

use bloomguard::filter::Memory;

/// Keys whose lines are prefetched together, as in the table of peers.
const BATCH: usize = 32;

/// As many lines as a filter has.
pub(crate) struct Lines(Memory);

impl Lines {
    pub(crate) fn like(bytes: u64) -> Self {
        let mut memory = Memory::zeroed(bytes / 8).unwrap();
        // Written, so that the pages exist and are not the shared zero page.
        memory.words_mut().iter_mut().zip(0..).for_each(|(word, value)| *word = value);
        Self(memory)
    }

    #[inline(always)]
    fn place(&self, hash: u128) -> usize {
        // Both halves, so that the compiler computes the whole hash.
        let hash = (hash as u64) ^ (hash >> 64) as u64;
        let lines = self.0.words().len() / 8;
        ((u128::from(hash) * lines as u128) >> 64) as usize * 8
    }

    #[inline(always)]
    pub(crate) fn read(&self, hash: u128) -> bool {
        self.0.words()[self.place(hash)].load(Relaxed) & 1 != 0
    }

    pub(crate) fn read_many(&self, hashes: &[u128], answers: &mut [bool]) {
        let words = self.0.words();
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            let mut places = [0; BATCH];
            for (place, hash) in places.iter_mut().zip(hashes) {
                *place = self.place(*hash);
                prefetch(words.as_ptr().wrapping_add(*place).cast());
            }
            for (answer, place) in answers.iter_mut().zip(places) {
                *answer = words[place].load(Relaxed) & 1 != 0;
            }
        }
    }
}

#[allow(unsafe_code)] // A hint.
#[inline(always)]
fn prefetch(address: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch of any address is allowed.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
