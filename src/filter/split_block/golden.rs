//! The bit layout that snapshots and other instances depend on. Computed by an independent program from the formulas in
//! `hash.rs`, with the salt of the tests.

use std::sync::atomic::Ordering::Relaxed;

use super::super::hash::masks;
use super::tests::SALT;
use super::*;

/// Number of blocks for the positions below.
const BLOCKS: u64 = 1_000_003;

/// A hash, its block, and its bit of each word.
const PLACES: [(u128, usize, [u64; 8]); 6] = [
    (0, 0, [1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0]),
    (1, 618035, [1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0]),
    (1 << 64, 0, [1 << 1, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0, 1 << 0]),
    (u128::MAX, 381967, [1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63]),
    (
        0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210,
        332838,
        [1 << 47, 1 << 55, 1 << 60, 1 << 42, 1 << 9, 1 << 30, 1 << 22, 1 << 17],
    ),
    // XXH3-128 of the empty input.
    (
        0x99AA_06D3_0147_98D8_6001_C324_468D_497F,
        71399,
        [1 << 24, 1 << 35, 1 << 57, 1 << 17, 1 << 1, 1 << 12, 1 << 45, 1 << 1],
    ),
];

/// Three blocks that hold 1 to 30 times [`STEP`] (modulo 2¹²⁸).
const FILTER: [u64; 24] = [
    0x1028_0806_0201_4080,
    0x0220_0091_0244_0110,
    0x040A_1408_2040_8001,
    0x5040_0022_9200_0014,
    0x48CD_5800_0000_0000,
    0x0000_0000_000A_AAAA,
    0x0080_0201_8060_1806,
    0x1024_2400_2420_0024,
    0x0502_0040_80A0_1028,
    0x0089_0104_0088_0222,
    0x1020_40A0_8204_0204,
    0x0000_9290_0004_1680,
    0xAB12_B000_0000_0000,
    0x0000_02AA_A8A0_0000,
    0x0700_C020_0800_2018,
    0x8A40_0040_4092_4000,
    0x0080_A010_2804_0A02,
    0x0112_0448_0022_0044,
    0x4080_0102_0810_2850,
    0x0494_4000_2092_8000,
    0x356A_4400_0000_0000,
    0x2AAA_A800_0000_0000,
    0x0803_00C0_300C_0200,
    0x0109_0009_0901_0900,
];
const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

/// Invariant: same-bits-everywhere
#[test]
fn places_are_as_documented() {
    for (hash, block, bits) in PLACES {
        let (place, choice) = SALT.block_and_bits(hash);
        assert_eq!((reduce(place, BLOCKS) as usize, masks(choice)), (block, bits), "{hash:x}");
    }
}

/// Invariant: same-bits-everywhere
#[test]
fn bits_of_a_filter_are_as_documented_however_they_were_set() {
    let keys: Vec<u128> = (1..=30).map(|i| STEP.wrapping_mul(i)).collect();
    let empty = || SplitBlock::over(Memory::zeroed(24).unwrap(), SALT, 30, 0);
    let (one_by_one, together, mut filled) = (empty(), empty(), empty());
    keys.iter().for_each(|key| one_by_one.insert(*key));
    together.insert_many(&keys);
    filled.fill(&keys);
    for filter in [one_by_one, together, filled] {
        assert!(filter.memory.words().iter().map(|word| word.load(Relaxed)).eq(FILTER));
        assert_eq!(filter.ones.get(), 240);
    }
}
