//! The forms of x86-64. Their registers are named as clobbers, which needs no target feature, so they are inlined into
//! code for any processor.

#![allow(unsafe_code)] // See the module above for why these are sound.

use std::arch::asm;

use super::block::Block;

/// Where the choice of each word begins in `bits`.
#[repr(align(64))]
#[allow(dead_code)] // Read by the instructions.
struct Shifts([u64; 8]);
static SHIFTS: Shifts = Shifts([0, 6, 12, 18, 24, 30, 36, 42]);
static ONE: u64 = 1;
static LOW_SIX: u64 = 63;

/// # Safety
/// The processor has AVX-512F and the operating system saves its registers.
#[inline(always)]
pub(super) unsafe fn all_set_avx512(block: &Block, bits: u64) -> bool {
    let missing: u32;
    // SAFETY: reads the block, as argued above, and the two constants. Uses upper registers, which cost later SSE code
    // nothing.
    unsafe {
        asm!(
            "vpbroadcastq zmm16, {bits}",
            "vpsrlvq zmm16, zmm16, [rip + {shifts}]",
            "vpbroadcastq zmm17, [rip + {one}]",
            // A rotation counts modulo 64, so the upper bits of the choice need no mask.
            "vprolvq zmm16, zmm17, zmm16",
            "vptestnmq k1, zmm16, [{block}]",
            "kmovw {missing:e}, k1",
            bits = in(reg) bits,
            shifts = sym SHIFTS,
            one = sym ONE,
            block = in(reg) block,
            missing = lateout(reg) missing,
            out("xmm16") _,
            out("xmm17") _,
            out("k1") _,
            options(nostack, readonly, preserves_flags),
        );
    }
    missing == 0
}

/// # Safety
/// The processor has AVX2 and the operating system saves its registers.
#[inline(always)]
pub(super) unsafe fn all_set_avx2(block: &Block, bits: u64) -> bool {
    let all_set: u32;
    // SAFETY: reads the block, as argued above, and the three constants. `vzeroupper` clears the upper halves of all
    // sixteen registers, so all are named.
    unsafe {
        asm!(
            "vmovq xmm0, {bits}",
            "vpbroadcastq ymm0, xmm0",
            "vpbroadcastq ymm2, [rip + {low_six}]",
            "vpbroadcastq ymm3, [rip + {one}]",
            "vpsrlvq ymm1, ymm0, [rip + {shifts}]",
            "vpsrlvq ymm0, ymm0, [rip + {shifts} + 32]",
            "vpand ymm1, ymm1, ymm2",
            "vpand ymm0, ymm0, ymm2",
            "vpsllvq ymm1, ymm3, ymm1",
            "vpsllvq ymm0, ymm3, ymm0",
            "vmovdqu ymm4, [{block}]",
            "vmovdqu ymm5, [{block} + 32]",
            "vpandn ymm1, ymm4, ymm1",
            "vpandn ymm0, ymm5, ymm0",
            "vpor ymm0, ymm0, ymm1",
            "xor {all_set:e}, {all_set:e}",
            "vptest ymm0, ymm0",
            "setz {all_set:l}",
            "vzeroupper",
            bits = in(reg) bits,
            shifts = sym SHIFTS,
            one = sym ONE,
            low_six = sym LOW_SIX,
            block = in(reg) block,
            all_set = lateout(reg) all_set,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, readonly),
        );
    }
    all_set != 0
}
