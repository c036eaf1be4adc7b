//! The words of a filter: aligned to cache lines, zero at first, backed by huge pages where they help, or by a file.
//!
//! A lookup reads one random cache line, so on pages of 4 KiB nearly each one also misses the TLB; from [`HUGE_PAGE`] on the words are a mapping of their
//! own that the kernel is asked to back by huge pages. Mapped by `rustix`, which is in the tree anyway and, other than `memmap2`, can trim a mapping.

#![allow(unsafe_code)] // Mappings and aligned allocations are raw memory; each block says why it is sound.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::AllocError;

/// A cache line: what a block of the split-block filter fills exactly.
const LINE: usize = 64;
const WORD: usize = size_of::<u64>();
/// Of x86-64, and of AArch64 with pages of 4 KiB; elsewhere only where mappings begin.
const HUGE_PAGE: usize = 2 << 20;

/// Words of a filter, 64-byte aligned.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u64>,
    words: usize,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Heap(Layout),
    /// What is to be unmapped; of a file it may begin before the words do.
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
    /// So many words, all 0. Of large ones the kernel gives pages only as they are touched.
    ///
    /// # Errors
    /// [`AllocError::Memory`]; never aborts the process for lack of memory.
    pub fn zeroed(words: u64) -> Result<Self, AllocError> {
        let refused = || AllocError::Memory(words.saturating_mul(WORD as u64));
        let words = usize::try_from(words).map_err(|_| refused())?;
        let bytes = words.checked_mul(WORD).ok_or_else(refused)?;
        // Miri knows no system calls.
        let made = if bytes < HUGE_PAGE || cfg!(miri) { Self::on_heap(words, bytes) } else { Self::mapped(words, bytes) };
        made.ok_or_else(refused)
    }

    fn on_heap(words: usize, bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(LINE), LINE).ok()?;
        // SAFETY: the layout is not of size 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start: start.cast(), words, origin: Origin::Heap(layout) })
    }

    /// Maps one huge page more than asked for and trims it: only whole aligned huge pages can be backed by one.
    fn mapped(words: usize, bytes: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        let bytes = bytes.checked_next_multiple_of(page)?;
        let all = bytes.checked_add(HUGE_PAGE)?;
        // SAFETY: the kernel chooses where; nothing of ours lies there.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), all, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }.ok()?;
        let head = base.align_offset(HUGE_PAGE);
        let tail = HUGE_PAGE - head;
        // SAFETY: head + bytes + tail is exactly the mapping made above; head < HUGE_PAGE, both in whole pages, and nobody has a reference into it. A trim
        // that fails leaves address space behind that is never touched.
        let start = unsafe {
            let start = base.byte_add(head);
            if head > 0 {
                let _ = munmap(base, head);
            }
            let _ = munmap(start.byte_add(bytes), tail);
            // Without it the words are as right, and slower.
            let _ = madvise(start, bytes, Advice::LinuxHugepage);
            start
        };
        let base = NonNull::new(start)?.cast::<u8>();
        Some(Self { start: base.cast(), words, origin: Origin::Mapping { base, bytes } })
    }

    /// The words that stand in `file` at `offset`, a multiple of 64, in this machine's byte order. Copy on write: they can be changed, the file is not.
    ///
    /// Pages of a file are small ones: who has the time to read it into [`Memory::zeroed`] gets faster lookups.
    ///
    /// # Errors
    /// Of the kernel; [`io::ErrorKind::InvalidInput`] where the offset is odd, [`io::ErrorKind::UnexpectedEof`] where the file is too short now.
    ///
    /// # Safety
    /// Nobody may write to the file or truncate it as long as it is mapped: what was not copied yet changes with it under references to it, and a page
    /// that is gone ends the process with SIGBUS. So the file must be one that is only ever written aside, then renamed, and that belongs to this user
    /// alone (mode 0600); checks of its content hold no longer than that does.
    pub unsafe fn map_private(file: &File, offset: u64, words: u64) -> io::Result<Self> {
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "the filter is larger than can be addressed");
        if !offset.is_multiple_of(LINE as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the filter in the file is not aligned to 64 bytes"));
        }
        let bytes = words.checked_mul(WORD as u64).filter(|bytes| *bytes <= isize::MAX as u64).ok_or_else(too_large)?;
        let end = offset.checked_add(bytes).ok_or_else(too_large)?;
        if file.metadata()?.len() < end {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before the filter does"));
        }
        if words == 0 {
            return Self::zeroed(0).map_err(io::Error::other);
        }
        // Machines differ in their pages: the mapping begins where one does, and the words at their offset behind it.
        let lead = offset % rustix::param::page_size() as u64;
        let mapped = usize::try_from(bytes + lead).map_err(|_| too_large())?;
        // SAFETY: the kernel chooses where; nothing of ours lies there. The caller keeps the file as it is.
        let base =
            unsafe { mmap(std::ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE, file, offset - lead) }?;
        let base = NonNull::new(base).ok_or_else(too_large)?.cast::<u8>();
        // SAFETY: lead < mapped, so this is inside the mapping.
        let start = unsafe { base.byte_add(lead as usize) };
        Ok(Self { start: start.cast(), words: words as usize, origin: Origin::Mapping { base, bytes: mapped } })
    }

    /// The words, to be shared.
    #[inline]
    #[must_use]
    pub const fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is aligned, and `words` words from it are initialised memory (zeros, or a file's bytes) that lives as long as `self`. Atomics may
        // alias; the only plain stores are those of `words_mut`, which borrows `self` exclusively.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast_const().cast::<AtomicU64>(), self.words) }
    }

    /// The words, while nobody else sees them: for plain loads and stores.
    #[inline]
    #[must_use]
    pub const fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; `&mut self` proves that no other reference into them is alive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.origin {
            // SAFETY: made by `alloc_zeroed` with this layout; `self` was its only owner.
            Origin::Heap(layout) => unsafe { dealloc(self.start.as_ptr().cast(), layout) },
            // SAFETY: exactly the pages that are mapped for `self`, its only owner.
            Origin::Mapping { base, bytes } => {
                let unmapped = unsafe { munmap(base.as_ptr().cast(), bytes) };
                debug_assert!(unmapped.is_ok(), "{unmapped:?}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn words_are_zero_and_aligned_and_can_be_written_whatever_their_number() {
        let sizes = [0, 1, 8, 1_000, (HUGE_PAGE / WORD) as u64, (3 * HUGE_PAGE / WORD + 513) as u64];
        // Miri maps nothing, and takes minutes for each million of words.
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

    #[cfg_attr(miri, ignore = "maps a file")]
    #[test]
    fn a_mapped_file_is_read_at_any_aligned_offset_and_never_written() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..20_000u64).flat_map(u64::to_ne_bytes).collect();
        file.write_all(&content).unwrap();
        for first in [0, 8, 512, 520, 19_992] {
            let count = 20_000 - first;
            // SAFETY: nobody else knows this file.
            let mut memory = unsafe { Memory::map_private(&file, first * 8, count) }.unwrap();
            assert!(memory.words().iter().map(|word| word.load(Relaxed)).eq(first..20_000));
            memory.words()[0].fetch_or(1 << 63, Relaxed);
            memory.words_mut()[1] = 0;
            assert_eq!(memory.words()[0].load(Relaxed), 1 << 63 | first);
        }
        let mut after = vec![0; content.len()];
        file.read_exact_at(&mut after, 0).unwrap();
        assert!(after == content, "the file was changed");
    }

    #[cfg_attr(miri, ignore = "maps a file")]
    #[test]
    fn a_file_that_does_not_hold_the_words_is_refused() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4_096).unwrap();
        // SAFETY: nobody else knows this file.
        let kind = |offset, words| unsafe { Memory::map_private(&file, offset, words) }.map(|_| ()).map_err(|error| error.kind());
        assert_eq!(kind(0, 512), Ok(()));
        assert_eq!(kind(4_096, 0), Ok(()));
        assert_eq!(kind(64, 512), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(kind(8, 1), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind(0, u64::MAX / 8), Err(io::ErrorKind::InvalidInput));
        assert_eq!(kind(u64::MAX - 63, 100), Err(io::ErrorKind::InvalidInput));
    }
}
