//! The words of a filter: aligned to cache lines, zeroed, and backed by huge pages if large.
//!
//! A lookup reads one random cache line, so with 4 KiB pages nearly every lookup also misses the TLB. From
//! [`HUGE_PAGE`] on the words are a mapping of their own, for which the kernel is asked to use huge pages. It uses
//! `rustix`, which is a dependency anyway and, unlike `memmap2`, can trim a mapping.

#![allow(unsafe_code)] // Mappings and aligned allocations are raw memory; each block says why it is sound.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::AllocError;

/// A cache line: exactly one block of the split-block filter.
const LINE: usize = 64;
const WORD: usize = size_of::<u64>();
/// Huge page of x86-64, and of AArch64 with 4 KiB pages. Elsewhere it only aligns mappings.
const HUGE_PAGE: usize = 2 << 20;

/// Words of a filter, 64-byte aligned.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u64>,
    words: usize,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Heap(Layout),
    /// The part to unmap.
    Mapping {
        base: NonNull<u8>,
        bytes: usize,
    },
}

// SAFETY: `Memory` owns its words alone, as a `Box<[u64]>` does, and shares them only as atomics.
unsafe impl Send for Memory {}
// SAFETY: as above; `&Memory` gives out `&[AtomicU64]`, which are `Sync`.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates zeroed words. For large ones the kernel provides pages as they are touched.
    ///
    /// # Errors
    /// [`AllocError::Memory`]; a lack of memory never aborts the process.
    pub fn zeroed(words: u64) -> Result<Self, AllocError> {
        let refused = || AllocError::Memory(words.saturating_mul(WORD as u64));
        let words = usize::try_from(words).map_err(|_| refused())?;
        let bytes = words.checked_mul(WORD).ok_or_else(refused)?;
        // Miri has no system calls.
        let made =
            if bytes < HUGE_PAGE || cfg!(miri) { Self::on_heap(words, bytes) } else { Self::mapped(words, bytes) };
        made.ok_or_else(refused)
    }

    fn on_heap(words: usize, bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(LINE), LINE).ok()?;
        // SAFETY: the layout is not of size 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start: start.cast(), words, backing: Backing::Heap(layout) })
    }

    /// Maps one huge page more than needed and trims the mapping, because only aligned huge pages can be used.
    fn mapped(words: usize, bytes: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        let bytes = bytes.checked_next_multiple_of(page)?;
        let all = bytes.checked_add(HUGE_PAGE)?;
        // SAFETY: the kernel chooses the address; nothing of ours is there.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), all, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }
                .ok()?;
        let head = base.align_offset(HUGE_PAGE);
        let tail = HUGE_PAGE - head;
        // SAFETY: head + bytes + tail is exactly the mapping made above; head < HUGE_PAGE, both in whole pages, and no
        // reference into it exists. If a trim fails, address space is left behind that is never touched.
        let start = unsafe {
            let start = base.byte_add(head);
            if head > 0 {
                let _ = munmap(base, head);
            }
            let _ = munmap(start.byte_add(bytes), tail);
            // If it fails, the words are correct but slower.
            let _ = madvise(start, bytes, Advice::LinuxHugepage);
            start
        };
        let base = NonNull::new(start)?.cast::<u8>();
        Some(Self { start: base.cast(), words, backing: Backing::Mapping { base, bytes } })
    }

    /// The words, shared.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is aligned, and `words` words from it are initialised memory (zeros at first) that lives as
        // long as `self`. Atomics may alias; the only plain stores are those of `words_mut`, which borrows `self`
        // exclusively.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast_const().cast::<AtomicU64>(), self.words) }
    }

    /// The words, exclusively: for plain loads and stores.
    #[inline]
    #[must_use]
    pub const fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; `&mut self` proves that no other reference into them is alive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.words) }
    }

    /// The bytes of the words in native order, exclusively.
    #[inline]
    #[must_use]
    pub(super) const fn bytes_mut(&mut self) -> &mut [u8] {
        let words = self.words_mut();
        // SAFETY: the same memory, borrowed as exclusively; bytes need no alignment, and any of them make a `u64`.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
    }

    /// The sum of `part` over all words. Exclusive, because plain loads are vectorised and atomic ones are not.
    pub fn sum(&mut self, part: impl Fn(u64) -> u64) -> u64 {
        self.words_mut().iter().map(|word| part(*word)).sum()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.backing {
            // SAFETY: made by `alloc_zeroed` with this layout; `self` was its only owner.
            Backing::Heap(layout) => unsafe { dealloc(self.start.as_ptr().cast(), layout) },
            // SAFETY: exactly the pages that are mapped for `self`, its only owner.
            Backing::Mapping { base, bytes } => {
                let unmapped = unsafe { munmap(base.as_ptr().cast(), bytes) };
                debug_assert!(unmapped.is_ok(), "{unmapped:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn words_are_zero_and_aligned_and_can_be_written_whatever_their_number() {
        let sizes = [0, 1, 8, 1_000, (HUGE_PAGE / WORD) as u64, (3 * HUGE_PAGE / WORD + 513) as u64];
        // Miri maps nothing, and needs minutes per million words.
        for words in sizes.into_iter().take(if cfg!(miri) { 4 } else { sizes.len() }) {
            let mut memory = Memory::zeroed(words).unwrap();
            assert_eq!(memory.words().len() as u64, words);
            assert_eq!(memory.words().as_ptr() as usize % LINE, 0);
            assert!(memory.words().iter().all(|word| word.load(Relaxed) == 0));
            if let Some(last) = memory.words_mut().last_mut() {
                *last = 7;
                assert_eq!(memory.words().last().unwrap().load(Relaxed), 7);
            }
        }
    }

    #[cfg_attr(miri, ignore = "Miri maps nothing")]
    #[test]
    fn large_ones_begin_at_a_huge_page() {
        let memory = Memory::zeroed((HUGE_PAGE / WORD) as u64).unwrap();
        assert!((memory.words().as_ptr() as usize).is_multiple_of(HUGE_PAGE));
    }

    #[cfg_attr(miri, ignore = "Miri's allocator ends the program instead")]
    #[test]
    fn what_no_memory_holds_is_refused_with_its_bytes() {
        assert_eq!(Memory::zeroed(1 << 57).unwrap_err(), AllocError::Memory(1 << 60));
        assert_eq!(Memory::zeroed(u64::MAX).unwrap_err(), AllocError::Memory(u64::MAX));
    }
}
