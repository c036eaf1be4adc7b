//! The filter as its users see it.

use std::collections::HashSet;

use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use super::*;

pub(super) const SALT: Salt =
    Salt::fixed([0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB, 0xD6E8_FEB8_6659_FD93]);

fn hash(key: &str) -> u128 {
    xxh3_128(key.as_bytes())
}

/// Share of `trials` absent keys that pass.
fn measured_rate(filter: &SplitBlock, trials: u32, key: impl Fn(u32) -> String) -> f64 {
    f64::from((0..trials).filter(|i| filter.contains(hash(&key(*i)))).count() as u32) / f64::from(trials)
}

#[test]
fn the_measured_rate_is_at_most_the_rate_asked() {
    let forms: [fn(u32) -> String; 3] =
        [|i| i.to_string(), |i| format!("user:{i}"), |i| format!("https://example.com/items/{i:032x}")];
    for form in forms {
        for (keys, rate) in [(10_000, 0.01), (100_000, 0.001)] {
            let filter = SplitBlock::with_salt(u64::from(keys), rate, SALT).unwrap();
            (0..keys).for_each(|i| filter.insert(hash(&form(i))));
            let trials = 1_000_000;
            let sigma = (rate / f64::from(trials)).sqrt();
            let measured = measured_rate(&filter, trials, |i| form(i + 1_000_000_000));
            assert!(measured <= rate * 1.024 + 5.0 * sigma, "{} keys: {measured} for {rate}", keys);
        }
    }
}

#[test]
fn items_from_fill_are_within_one_percent() {
    let filter = SplitBlock::with_salt(100_000, 0.001, SALT).unwrap();
    (0..100_000).for_each(|i| filter.insert(hash(&i.to_string())));
    (0..50_000).for_each(|i| filter.insert(hash(&i.to_string())));
    let items = filter.items() as f64;
    assert!((items - 100_000.0).abs() < 1_000.0, "{items}");
    assert!(filter.estimated_fpr() < 0.00102, "{}", filter.estimated_fpr());
}

#[test]
fn a_false_positive_of_one_filter_is_rarely_one_of_the_next() {
    let build = || {
        let filter = SplitBlock::new(10_000, 0.01).unwrap();
        (0..10_000).for_each(|i| filter.insert(hash(&i.to_string())));
        filter
    };
    let (first, second) = (build(), build());
    let positives: Vec<u128> =
        (10_000..1_010_000).map(|i| hash(&i.to_string())).filter(|h| first.contains(*h)).collect();
    assert!(positives.len() > 5_000, "{}", positives.len());
    let again = positives.iter().filter(|h| second.contains(**h)).count();
    assert!(again < positives.len() / 50, "{again} of {}", positives.len());
}

#[test]
fn concurrent_inserts_lose_nothing() {
    let filter = SplitBlock::new(80_000, 0.001).unwrap();
    std::thread::scope(|scope| {
        for part in 0..8u32 {
            let filter = &filter;
            scope.spawn(move || {
                for i in part * 10_000..(part + 1) * 10_000 {
                    filter.insert(hash(&i.to_string()));
                    assert!(filter.contains(hash(&i.to_string())));
                }
            });
        }
    });
    assert!((0..80_000).all(|i| filter.contains(hash(&i.to_string()))));
}

#[test]
fn a_size_that_no_memory_holds_is_an_error() {
    assert!(matches!(SplitBlock::new(1 << 50, 0.001), Err(AllocError::Memory(_))));
}

/// A filter over 2³³ bits of address space, of which only what is touched becomes memory.
///
/// Invariant: same-bits-everywhere
#[cfg_attr(miri, ignore = "Miri would zero all of it")]
#[test]
fn keys_past_the_first_billions_of_bits_are_found_where_they_belong() {
    let blocks = (1u64 << 33) / BITS_PER_BLOCK;
    let filter = SplitBlock::over(Memory::zeroed(blocks * WORDS_PER_BLOCK).unwrap(), SALT, 500_000_000, 0);
    let keys: Vec<u128> = (0..24).map(|i| hash(&i.to_string())).collect();
    keys.iter().for_each(|key| filter.insert(*key));
    for key in &keys {
        let (place, bits) = SALT.block_and_bits(*key);
        let block = (u128::from(place) * u128::from(blocks)) >> 64;
        let words = &filter.memory.words()[usize::try_from(block * 8).unwrap()..][..8];
        assert!(words.iter().zip(masks(bits)).all(|(word, mask)| word.load(Ordering::Relaxed) & mask != 0), "{key:x}");
        assert!(filter.contains(*key));
    }
    let beyond = keys.iter().filter(|key| filter.locate(**key).0 as u64 * BITS_PER_BLOCK >= 1 << 32).count();
    assert!((6..=18).contains(&beyond), "{beyond} of 24 keys lie in the upper half");
    assert_eq!(filter.ones.get(), 24 * 8);
    // A truncated index would find these in the lower half.
    assert!((100..10_000).all(|i| !filter.contains(hash(&i.to_string()))));
}

/// Invariant: same-bits-everywhere
#[test]
fn many_keys_are_answered_as_each_alone_by_every_form_of_the_probe() {
    let mut filter = SplitBlock::with_salt(1_000, 0.2, SALT).unwrap();
    (0..1_000).for_each(|i| filter.insert(hash(&i.to_string())));
    for count in [0, 1, 31, 32, 33, 1_000] {
        let keys: Vec<u128> = (0..count).map(|i| hash(&(i * 997 % 2_000).to_string())).collect();
        let alone: Vec<bool> = keys.iter().map(|key| filter.contains(*key)).collect();
        assert!(
            count < 31 || (alone.contains(&true) && alone.contains(&false)),
            "both answers are to be among {count}"
        );
        for probe in BlockProbe::available() {
            filter.probe = probe;
            let mut together = vec![false; keys.len()];
            filter.contains_many(&keys, &mut together);
            assert_eq!(together, alone, "{probe:?}");
        }
    }
}

/// Words of a filter, and its count of set bits.
fn content(filter: &SplitBlock) -> (Vec<u64>, u64) {
    (filter.memory.words().iter().map(|word| word.load(Ordering::Relaxed)).collect(), filter.ones.get())
}

#[test]
fn bits_are_the_same_whether_keys_are_inserted_or_filled() {
    let keys: Vec<u128> = (0..3_333).map(|i| hash(&(i % 3_000).to_string())).collect();
    let inserted = SplitBlock::with_salt(2_000, 0.01, SALT).unwrap();
    let empty = || SplitBlock::with_salt(2_000, 0.01, SALT).unwrap();
    let (together, mut filled) = (empty(), empty());
    keys.iter().for_each(|key| inserted.insert(*key));
    together.insert_many(&keys);
    keys.chunks(77).for_each(|keys| filled.fill(keys));
    let (words, ones) = content(&inserted);
    assert_eq!(ones, words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>());
    assert_eq!(content(&together), (words.clone(), ones));
    assert_eq!(content(&filled), (words, ones));
}

/// Invariant: unions-are-exact
#[test]
fn a_union_is_the_filter_of_all_keys() {
    let all = SplitBlock::with_salt(2_000, 0.01, SALT).unwrap();
    let empty = || SplitBlock::with_salt(2_000, 0.01, SALT).unwrap();
    let (left, right) = (empty(), empty());
    for i in 0..2_000 {
        let key = hash(&i.to_string());
        all.insert(key);
        if i < 1_200 {
            left.insert(key);
        }
        if i >= 800 {
            right.insert(key);
        }
    }
    let before = content(&right);
    left.unite(&right).unwrap();
    assert_eq!(content(&left), content(&all));
    assert_eq!(content(&right), before);
}

/// Invariant: unions-are-exact
#[test]
fn filters_that_differ_are_not_united_and_the_difference_is_named() {
    let filter = SplitBlock::with_salt(2_000, 0.01, SALT).unwrap();
    let before = content(&filter);
    let refused = |other: &SplitBlock| {
        other.insert(1);
        filter.unite(other).unwrap_err().to_string()
    };
    let smaller = SplitBlock::with_salt(1_000, 0.01, SALT).unwrap();
    assert_eq!(refused(&smaller), format!("the filters differ in size: {} and {} bits", filter.bits(), smaller.bits()));
    assert_eq!(refused(&SplitBlock::new(2_000, 0.01).unwrap()), "the filters differ in salt");
    let other = SplitBlock::over(Memory::zeroed(filter.bits() / 64).unwrap(), SALT, 1_999, 0);
    assert_eq!(refused(&other), "the filters differ in capacity: 2000 and 1999 keys");
    assert_eq!(content(&filter), before);
}

proptest! {
    #[test]
    fn no_false_negative_under_any_keys(keys in prop::collection::hash_set(any::<u128>(), 0..500)) {
        let filter = SplitBlock::new(100, 0.01).unwrap();
        keys.iter().for_each(|k| filter.insert(*k));
        let missing: HashSet<_> = keys.iter().filter(|k| !filter.contains(**k)).collect();
        prop_assert!(missing.is_empty());
    }
}
