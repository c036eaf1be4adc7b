//! The bits of the format, which snapshots and other instances rely on. Worked out by a program of its own and not by this one: see the formulas in
//! `hash.rs`, under the salt of the tests.

use std::sync::atomic::Ordering::Relaxed;

use super::super::hash::masks;
use super::tests::SALT;
use super::*;

/// Blocks of the filter that the places below are in.
const BLOCKS: u64 = 1_000_003;

/// A hash, its block, and its bit of each word.
const PLACES: [(u128, usize, [u64; 8]); 6] = [
    (0, 625_824, [1 << 21, 1 << 43, 1 << 29, 1 << 25, 1 << 45, 1 << 37, 1 << 32, 1 << 60]),
    (1, 380_284, [1 << 34, 1 << 20, 1 << 2, 1 << 37, 1 << 0, 1 << 17, 1 << 11, 1 << 47]),
    (1 << 64, 306_602, [1 << 61, 1 << 37, 1 << 61, 1 << 50, 1 << 55, 1 << 11, 1 << 59, 1 << 60]),
    (u128::MAX, 174_589, [1 << 22, 1 << 43, 1 << 29, 1 << 17, 1 << 14, 1 << 9, 1 << 47, 1 << 32]),
    (0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210, 912_093, [1 << 39, 1 << 16, 1 << 44, 1 << 28, 1 << 45, 1 << 46, 1 << 20, 1 << 38]),
    // XXH3-128 of no bytes at all.
    (0x99AA_06D3_0147_98D8_6001_C324_468D_497F, 470_900, [1 << 63, 1 << 35, 1 << 30, 1 << 63, 1 << 59, 1 << 19, 1 << 37, 1 << 0]),
];

/// Three blocks that hold 1 to 30 times [`STEP`] (modulo 2¹²⁸).
const FILTER: [u64; 24] = [
    0x4000_0480_601A_0A20,
    0xC401_0420_0214_1420,
    0x0840_000E_8240_2708,
    0x0280_0000_0759_0044,
    0xC102_A800_2020_0F00,
    0x9042_6084_0C00_2044,
    0x0082_8910_9000_0445,
    0xA004_2102_2840_0500,
    0x8210_2800_0010_0002,
    0x0000_2000_2100_024C,
    0x0C00_0000_2025_0004,
    0x0081_8001_0412_0000,
    0x0100_1802_0411_0000,
    0x0100_1000_0020_6840,
    0x1202_4640_0000_0000,
    0x4200_0002_0010_2010,
    0xC090_0100_C001_0002,
    0x4102_2000_0000_4089,
    0x0000_1800_5801_8080,
    0x0010_1080_0204_4088,
    0x0800_0000_5020_5038,
    0x2400_0100_0110_4160,
    0x8C30_4020_0000_0080,
    0xC010_0400_2800_1042,
];
const STEP: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

#[test]
fn places_are_as_documented() {
    for (hash, block, bits) in PLACES {
        let (place, choice) = SALT.mix(hash);
        assert_eq!((reduce(place, BLOCKS) as usize, masks(choice)), (block, bits), "{hash:x}");
    }
}

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
        assert_eq!(filter.ones.get(), 219);
    }
}
