//! Whether the eight bits of a key are all set in a block, tested with the widest instructions of the processor.
//!
//! # Why the vector forms are sound
//!
//! Other threads set bits of the block meanwhile, by atomic read-modify-writes. A plain vector load beside those is a
//! data race in Rust, whatever the processor makes of it, so no intrinsic loads the block. An `asm!` block does, and an
//! `asm!` block is sound if Rust code could have had its effect: the compiler then need not know how it came about.
//! Each one here has no effect but its answer, *is one given bit of each of eight words set?*, and the Rust code is
//! [`scalar`]: a relaxed atomic load of each word.
//!
//! What remains to be shown is that the processor answers as some relaxed loads would. They may come in any order and
//! see any moment, each word its own, for they carry no ordering. So the question is only whether a wide load can make
//! up a value that a *word* never had:
//!
//! - AArch64: a SIMD load of 128 bits that is aligned to 64 is a pair of single-copy atomic reads of 64 bits each (Arm
//!   ARM, B2.2.1). A word is a word.
//! - x86-64: aligned loads of up to 8 bytes are atomic (Intel SDM vol. 3, 9.1.1; AMD APM vol. 2, 7.3.2), of 16 bytes on
//!   processors with AVX. Wider ones "may be implemented using multiple memory accesses", of a size that neither
//!   promises, though every implementation keeps 8-byte parts whole. Nothing here depends on it: the answer takes *one
//!   bit* of each word, so one byte, and a byte can't be torn. The bit was what it is said to be at some moment between
//!   the begin and the end of the instruction, and a relaxed load of the whole word at that moment would have said the
//!   same. Nor can a later load of ours see an earlier state of the word: loads are not reordered with loads, and the
//!   words are only changed by locked instructions, whole.
//!
//! Bits only go from 0 to 1, so a bit that was seen is there. An insert that *happened before* the probe is seen: the
//! blocks are not `pure`, and have no `nomem`, so that the compiler moves them across no acquire; and the processors
//! order vector loads after an acquire as any other load.

mod block;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::atomic::Ordering;

pub(super) use self::block::Block;
use super::super::hash::masks;

/// The instruction set to use. Only made by [`BlockProbe::best`] and [`BlockProbe::available`], so it always runs on
/// this processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockProbe(InstructionSet);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionSet {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "aarch64")]
    Neon,
    Scalar,
}

impl BlockProbe {
    /// The fastest form that runs here.
    pub(super) fn best() -> Self {
        Self::available().next().unwrap_or(Self(InstructionSet::Scalar))
    }

    /// All forms that run here, the fastest first. Miri runs no processor instructions.
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let forms = [
            #[cfg(target_arch = "x86_64")]
            (InstructionSet::Avx512, !cfg!(miri) && std::arch::is_x86_feature_detected!("avx512f")),
            #[cfg(target_arch = "x86_64")]
            (InstructionSet::Avx2, !cfg!(miri) && std::arch::is_x86_feature_detected!("avx2")),
            #[cfg(target_arch = "aarch64")]
            (InstructionSet::Neon, !cfg!(miri) && std::arch::is_aarch64_feature_detected!("neon")),
            (InstructionSet::Scalar, true),
        ];
        forms.into_iter().filter_map(|(form, runs)| runs.then_some(Self(form)))
    }

    /// Whether all bits that `bits` chooses are set.
    ///
    /// The choice between the forms is a branch that is always taken the same way, and the forms are inlined. A call
    /// through a pointer costs more.
    #[inline(always)]
    #[allow(unsafe_code)] // The vector forms, as argued above.
    pub(super) fn all_set(self, block: &Block, bits: u64) -> bool {
        match self.0 {
            // SAFETY: made only where the processor and the operating system have AVX-512F.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => unsafe { x86::all_set_avx512(block, bits) },
            // SAFETY: made only where the processor and the operating system have AVX2.
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => unsafe { x86::all_set_avx2(block, bits) },
            // SAFETY: made only where the processor has Advanced SIMD.
            #[cfg(target_arch = "aarch64")]
            InstructionSet::Neon => unsafe { neon::all_set(block, bits) },
            InstructionSet::Scalar => fallback(block, bits),
        }
    }
}

/// [`scalar`], not inlined where it is a fallback: it needs many registers.
#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), cold, inline(never))]
fn fallback(block: &Block, bits: u64) -> bool {
    scalar(block, bits)
}

/// The eight words one after another, without a branch between them. Relaxed: see the filter's own orderings.
#[inline(always)]
fn scalar(block: &Block, bits: u64) -> bool {
    let mut missing = 0;
    for (word, mask) in block.iter().zip(masks(bits)) {
        missing |= !word.load(Ordering::Relaxed) & mask;
    }
    missing == 0
}

/// Tells the processor that the block will be read soon.
#[inline(always)]
#[allow(unsafe_code)] // A hint has no effect that a program could see.
pub(super) fn prefetch(block: *const Block) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86-64, and a prefetch of any address is allowed.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(block.cast::<i8>());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch of any address is allowed.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) block, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = block;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;

    fn block(words: [u64; 8]) -> Block {
        words.map(AtomicU64::new)
    }

    fn answers(words: [u64; 8], bits: u64) -> Vec<(BlockProbe, bool)> {
        let block = Aligned(block(words));
        BlockProbe::available().map(|probe| (probe, probe.all_set(&block.0, bits))).collect()
    }

    #[repr(align(64))]
    struct Aligned(Block);

    #[test]
    fn every_form_wants_all_eight_bits_and_looks_at_no_other() {
        for bits in [0, u64::MAX, 0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210, 1 << 47, 1 << 48, 0xFFFF_0000_0000_0000]
        {
            let exact = masks(bits);
            assert!(answers(exact, bits).iter().all(|(_, set)| *set), "{bits:x}");
            for word in 0..8 {
                let mut others = exact.map(|_| u64::MAX);
                others[word] = !exact[word];
                assert!(answers(others, bits).iter().all(|(_, set)| !*set), "{bits:x}, word {word}");
            }
        }
    }

    proptest! {
        /// Invariant: same-bits-everywhere
        #[test]
        fn all_forms_that_run_here_agree(words in any::<[u64; 8]>(), sparse in any::<[u64; 8]>(), bits in any::<u64>()) {
            // Random words would have all eight bits once in 256 cases: make it about every second one.
            let full: [u64; 8] = std::array::from_fn(|i| words[i] | sparse[i] | words[i].rotate_left(17) | sparse[i].rotate_left(29));
            for words in [words, full] {
                let expected = scalar(&block(words), bits);
                for (probe, answer) in answers(words, bits) {
                    prop_assert_eq!(answer, expected, "{:?} {:x?} {:x}", probe, words, bits);
                }
            }
        }
    }
}
