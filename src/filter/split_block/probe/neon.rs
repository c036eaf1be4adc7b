//! The form of AArch64: four registers of two words.

#![allow(unsafe_code)] // See the module above for why this is sound.

use std::arch::aarch64::{uint64x2_t, vandq_u64, vdupq_n_u64, vld1q_s64, vshlq_u64};
use std::arch::asm;

use super::block::Block;

/// Negative left shifts are right shifts: they move the choice of each word to the lowest bits.
static SHIFTS: [[i64; 2]; 4] = [[0, -6], [-12, -18], [-24, -30], [-36, -42]];

/// # Safety
/// The processor has Advanced SIMD, as nearly all do.
#[inline]
#[target_feature(enable = "neon")]
pub(super) unsafe fn all_set(block: &Block, bits: u64) -> bool {
    let [a, b, c, d] = masks(bits);
    let missing: u64;
    // SAFETY: reads the block, as argued above.
    unsafe {
        asm!(
            "ldp {w0:q}, {w1:q}, [{block}]",
            "ldp {w2:q}, {w3:q}, [{block}, #32]",
            "bic {w0:v}.16b, {a:v}.16b, {w0:v}.16b",
            "bic {w1:v}.16b, {b:v}.16b, {w1:v}.16b",
            "bic {w2:v}.16b, {c:v}.16b, {w2:v}.16b",
            "bic {w3:v}.16b, {d:v}.16b, {w3:v}.16b",
            "orr {w0:v}.16b, {w0:v}.16b, {w1:v}.16b",
            "orr {w2:v}.16b, {w2:v}.16b, {w3:v}.16b",
            "orr {w0:v}.16b, {w0:v}.16b, {w2:v}.16b",
            // The maximum of each pair of 32 bits: 0 only if all of them are.
            "umaxp {w0:v}.4s, {w0:v}.4s, {w0:v}.4s",
            "fmov {missing}, {w0:d}",
            a = in(vreg) a,
            b = in(vreg) b,
            c = in(vreg) c,
            d = in(vreg) d,
            block = in(reg) block,
            w0 = out(vreg) _,
            w1 = out(vreg) _,
            w2 = out(vreg) _,
            w3 = out(vreg) _,
            missing = lateout(reg) missing,
            options(nostack, readonly, preserves_flags),
        );
    }
    missing == 0
}

/// One bit in each of the eight words, two to a register.
#[inline]
#[target_feature(enable = "neon")]
fn masks(bits: u64) -> [uint64x2_t; 4] {
    let (bits, low_six, one) = (vdupq_n_u64(bits), vdupq_n_u64(63), vdupq_n_u64(1));
    SHIFTS.map(|pair| {
        // SAFETY: two integers are 16 bytes.
        let shifts = unsafe { vld1q_s64(pair.as_ptr()) };
        let choice = vandq_u64(vshlq_u64(bits, shifts), low_six);
        vshlq_u64(one, std::arch::aarch64::vreinterpretq_s64_u64(choice))
    })
}
