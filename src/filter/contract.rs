//! The contract of every kind of filter, tested on one interface.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use proptest::prelude::*;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use super::hash::Salt;
use super::{Confirmed, Filter, FilterKind, FilterSpec, GrowthBudget, LayerHeader, Memory, OutOfRoom};

/// A fixed seed, so that a filter that is slightly worse than average does not fail a run at random.
const SEED: u64 = 42;

fn hash(key: &[u8]) -> u128 {
    xxh3_128_with_seed(key, SEED)
}

fn number(n: u64) -> u128 {
    hash(&n.to_le_bytes())
}

fn anywhere() -> GrowthBudget {
    Box::new(|_| Some(Box::new(())))
}

fn filter(kind: FilterKind, capacity: u64, rate: f64) -> Filter {
    let salt = Salt::new([1, 2, 3, 4].map(|n| xxh3_64_with_seed(b"salt", n)));
    Filter::with_salt(FilterSpec { kind, capacity, rate }, salt, anywhere()).unwrap()
}

/// A filter that ends with `keys` keys; a scalable one starts smaller and grows.
fn to_hold(kind: FilterKind, keys: u64, rate: f64) -> Filter {
    filter(kind, if kind == FilterKind::Scalable { keys / 12 } else { keys }, rate)
}

/// Spells the nth key in one style.
type KeyStyle = fn(u64) -> Vec<u8>;

const KEY_STYLES: [(&str, KeyStyle); 5] = [
    ("decimal ids", |n| n.to_string().into_bytes()),
    ("user:<id>", |n| format!("user:{n}").into_bytes()),
    ("UUIDs", |n| uuid::Uuid::from_u128(xxh3_128_with_seed(&n.to_le_bytes(), 1)).to_string().into_bytes()),
    ("URLs", |n| format!("https://example.com/shop/items/{n:08x}?lang=en").into_bytes()),
    ("random bytes", |n| (0..3).flat_map(|part| xxh3_64_with_seed(&n.to_le_bytes(), part).to_le_bytes()).collect()),
];

/// Fills a filter with keys of a style and asks for other keys. The rate must be at most the requested one plus five
/// standard deviations. The fill must estimate the number of keys within 1 %.
#[allow(clippy::print_stdout)] // The matrix is for people to read.
fn rate_is_kept(filter: &Filter, style: (&str, KeyStyle), keys: u64, trials: u64) {
    let FilterSpec { kind, capacity, rate } = *filter.spec();
    (0..keys).for_each(|n| filter.insert(hash(&style.1(n))));
    assert!((0..keys).all(|n| filter.contains(hash(&style.1(n)))), "{kind:?} misses a key");
    let passed = (0..trials).filter(|n| filter.contains(hash(&style.1(n + (1 << 40))))).count() as f64;
    let (measured, sigma) = (passed / trials as f64, (rate / trials as f64).sqrt());
    let items = filter.items() as f64 / keys as f64;
    println!(
        "{:>8} {:>12} {keys:>8} keys, made for {capacity:>8} at {rate:.0e}: {measured:.3e} = {:.3} of the rate, {} layers, items {items:.4}",
        kind.as_str(),
        style.0,
        measured / rate,
        filter.layer_count()
    );
    assert!((items - 1.0).abs() < 0.01, "{kind:?}, {}, {keys} keys: {items} of them by the fill", style.0);
    assert!(measured <= rate + 5.0 * sigma, "{kind:?}, {}, {keys} keys: {measured} for {rate}", style.0);
}

#[test]
fn the_measured_rate_is_at_most_the_rate_asked_for_every_kind() {
    for kind in FilterKind::ALL {
        for style in KEY_STYLES {
            rate_is_kept(&to_hold(kind, 10_000, 0.01), style, 10_000, 50_000);
        }
    }
}

#[test]
fn the_measured_rate_is_at_most_the_rate_asked_at_a_million_keys() {
    rate_is_kept(&filter(FilterKind::Bloom, 1_000_000, 0.001), KEY_STYLES[1], 1_000_000, 500_000);
}

/// The whole matrix: also `make filter-rates`.
#[test]
#[ignore = "a long run: make long"]
fn the_measured_rate_is_at_most_the_rate_asked_at_every_size() {
    for kind in FilterKind::ALL {
        for style in KEY_STYLES {
            for (keys, rate) in [(10_000, 0.01), (10_000, 0.001), (1_000_000, 0.01), (1_000_000, 0.001)] {
                rate_is_kept(&to_hold(kind, keys, rate), style, keys, 5_000_000);
            }
            if kind == FilterKind::Bloom {
                rate_is_kept(&to_hold(kind, 10_000_000, 0.001), style, 10_000_000, 5_000_000);
            }
            if matches!(kind, FilterKind::Bloom | FilterKind::Classic) {
                rate_is_kept(&filter(kind, 1_000_000, 0.001), style, 1_450_000, 5_000_000);
            }
        }
    }
}

#[test]
fn many_keys_at_once_are_answered_as_each_alone() {
    for kind in FilterKind::ALL {
        let filter = filter(kind, 1_000, 0.05);
        (0..1_400).for_each(|n| filter.insert(number(n)));
        let hashes: Vec<u128> = (0..5_000).map(number).collect();
        let mut found = vec![false; hashes.len()];
        filter.contains_many(&hashes, &mut found);
        assert!(hashes.iter().zip(found).all(|(hash, found)| filter.contains(*hash) == found), "{kind:?}");
    }
}

#[test]
fn filled_keys_are_found_and_make_the_filter_grow_as_inserts_do() {
    for (kind, keys) in FilterKind::ALL.into_iter().flat_map(|kind| [500, 2_000].map(|keys| (kind, keys))) {
        let (inserted, mut filled) = (filter(kind, keys, 0.01), filter(kind, keys, 0.01));
        let hashes: Vec<u128> = (0..keys * 5 / 4).map(number).collect();
        hashes.iter().for_each(|hash| inserted.insert(*hash));
        hashes.chunks(777).for_each(|hashes| filled.fill(hashes));
        assert!(hashes.iter().all(|hash| filled.contains(*hash)), "{kind:?}");
        assert_eq!(filled.layer_count(), inserted.layer_count(), "{kind:?}");
        assert!(kind == FilterKind::Counting || filled.layer_count() > 1, "{kind:?}");
        // The two may check the fill a key or two apart.
        assert!(
            filled.items().abs_diff(inserted.items()) <= 1 + keys / 200,
            "{kind:?}: {} {}",
            filled.items(),
            inserted.items()
        );
    }
}

#[test]
fn past_its_capacity_a_filter_keeps_its_rate_by_an_overflow_layer() {
    for kind in [FilterKind::Bloom, FilterKind::Classic] {
        let filter = filter(kind, 20_000, 0.01);
        rate_is_kept(&filter, KEY_STYLES[0], 29_000, 100_000);
        assert_eq!((filter.layer_count(), filter.capacity()), (2, 20_000));
        assert!(filter.estimated_fpr() <= 0.01, "{}", filter.estimated_fpr());
        assert!((filter.items() as f64 - 29_000.0).abs() < 290.0, "{}", filter.items());
        assert_eq!(filter.out_of_room(), None);
        (29_000..40_000).for_each(|n| filter.insert(hash(&KEY_STYLES[0].1(n))));
        assert!((0..40_000).all(|n| filter.contains(hash(&KEY_STYLES[0].1(n)))), "{kind:?} misses a key");
        assert_eq!(filter.out_of_room(), Some(OutOfRoom::Layers));
    }
}

#[test]
fn a_key_that_is_in_already_takes_no_room() {
    let filter = filter(FilterKind::Bloom, 1_000, 0.01);
    (0..1_100).for_each(|n| filter.insert(number(n)));
    let before = (filter.layer_count(), filter.items());
    (0..20).for_each(|_| (0..1_100).for_each(|n| filter.insert(number(n))));
    assert_eq!((filter.layer_count(), filter.items()), before);
}

#[test]
fn without_room_inserts_go_on_and_it_is_said_why() {
    let spec = FilterSpec { kind: FilterKind::Bloom, capacity: 1_000, rate: 0.01 };
    let filter = Filter::within(spec, Box::new(|_| None)).unwrap();
    (0..3_000).for_each(|n| filter.insert(number(n)));
    assert!((0..3_000).all(|n| filter.contains(number(n))));
    assert_eq!((filter.layer_count(), filter.out_of_room()), (1, Some(OutOfRoom::Memory)));
    assert!(filter.estimated_fpr() > 0.01);
}

#[test]
fn the_main_layer_takes_no_more_memory_for_the_overflow_that_may_come() {
    let per_key = |kind| FilterSpec { kind, capacity: 1_000_000, rate: 0.001 }.footprint().unwrap().bits as f64 / 1e6;
    assert!(per_key(FilterKind::Bloom) <= 1.10 * 14.38, "{}", per_key(FilterKind::Bloom));
    assert!(per_key(FilterKind::Classic) <= 14.38, "{}", per_key(FilterKind::Classic));
}

#[test]
fn items_from_fill_are_within_one_percent() {
    for kind in FilterKind::ALL {
        let filter = to_hold(kind, 50_000, 0.01);
        (0..50_000).for_each(|n| filter.insert(number(n)));
        assert!((filter.items() as f64 - 50_000.0).abs() < 500.0, "{kind:?}: {}", filter.items());
        assert!(filter.estimated_fpr() < 0.0103, "{kind:?}: {}", filter.estimated_fpr());
    }
}

/// Invariant: growth-loses-no-key
#[test]
fn many_writers_and_readers_at_once_miss_no_key_while_the_filter_grows() {
    const EACH: u64 = 400;
    for kind in FilterKind::ALL {
        // Most keys arrive while layers are added.
        let filter = filter(kind, 32 * EACH / 3, 0.01);
        let written: [AtomicU64; 32] = Default::default();
        let lookups = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for (writer, done) in written.iter().enumerate() {
                let (filter, lookups) = (&filter, &lookups);
                scope.spawn(move || {
                    for n in 0..EACH {
                        filter.insert(number((writer as u64) << 32 | n));
                        // Like a response to a client: what was inserted before it is found after it.
                        done.store(n + 1, Ordering::Release);
                    }
                });
                scope.spawn(move || {
                    loop {
                        let upto = done.load(Ordering::Acquire);
                        assert!((0..upto).all(|n| filter.contains(number((writer as u64) << 32 | n))), "{kind:?}");
                        lookups.fetch_add(upto as usize, Ordering::Relaxed);
                        if upto == EACH {
                            break;
                        }
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert!(lookups.into_inner() >= 32 * EACH as usize);
        assert!(kind == FilterKind::Counting || filter.layer_count() > 1, "{kind:?}");
    }
}

/// Copies the bits into other memory, as a snapshot does.
fn copied(filter: &Filter) -> Vec<(LayerHeader, Memory)> {
    let copy = |words: &[AtomicU64]| {
        let mut memory = Memory::zeroed(words.len() as u64).unwrap();
        memory.words_mut().iter_mut().zip(words).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        memory
    };
    filter.layers().into_iter().map(|(header, words)| (header, copy(words))).collect()
}

#[test]
fn layers_make_the_same_filter_again_and_others_are_refused() {
    for kind in FilterKind::ALL {
        let before = filter(kind, 1_000, 0.01);
        (0..1_300).for_each(|n| before.insert(number(n)));
        let spec = *before.spec();
        let after = Filter::from_layers(spec, copied(&before), anywhere()).unwrap();
        assert!((0..1_300).all(|n| after.contains(number(n))), "{kind:?}");
        assert!((1_300..20_000).all(|n| after.contains(number(n)) == before.contains(number(n))), "{kind:?}");
        assert_eq!(
            (after.items(), after.bits(), after.layer_count()),
            (before.items(), before.bits(), before.layer_count())
        );
        after.insert(number(9_999_999));
        assert!(after.contains(number(9_999_999)));

        let refused = |spec, layers| Filter::from_layers(spec, layers, anywhere()).unwrap_err().to_string();
        assert!(refused(spec, vec![]).contains("0 layers"));
        assert!(refused(FilterSpec { rate: 0.02, ..spec }, copied(&before)).contains("layer 0 does not match"));
        assert!(refused(FilterSpec { capacity: 1_001, ..spec }, copied(&before)).contains("layer 0 does not match"));
        let mut odd = copied(&before);
        odd[0].1 = Memory::zeroed(1).unwrap();
        assert!(refused(spec, odd).contains("layer 0 does not match"));
        let doubled = (0..9).flat_map(|_| copied(&before)).collect();
        assert!(refused(spec, doubled).contains("layer"));
    }
}

#[test]
fn a_union_holds_the_keys_of_both_and_is_refused_where_it_would_not() {
    for kind in FilterKind::ALL {
        let (both, left, right) = (filter(kind, 2_000, 0.01), filter(kind, 2_000, 0.01), filter(kind, 2_000, 0.01));
        for n in 0..1_000 {
            [&both, if n % 2 == 0 { &left } else { &right }].iter().for_each(|filter| filter.insert(number(n)));
        }
        left.union(&right).unwrap();
        assert_eq!((left.items(), left.fill_ratio()), (both.items(), both.fill_ratio()), "{kind:?}");
        assert!(
            (0..20_000).all(|n| left.contains(number(n)) == both.contains(number(n))),
            "{kind:?}: a union is exact"
        );
        let refused = |other: &Filter| left.union(other).unwrap_err().to_string();
        assert!(refused(&filter(kind, 4_000, 0.01)).contains("differ in size"));
        assert!(refused(&Filter::new(*left.spec()).unwrap()).contains("differ in salt"));
        let other = if kind == FilterKind::Bloom { FilterKind::Classic } else { FilterKind::Bloom };
        assert!(refused(&filter(other, 2_000, 0.01)).contains("differ in kind"));
        let grown = filter(kind, 2_000, 0.01);
        (0..6_000).for_each(|n| grown.insert(number(n)));
        assert!(kind == FilterKind::Counting || refused(&grown).contains("differ in layers"), "{kind:?}");
        assert_eq!(left.items(), both.items(), "a refused union changes nothing");
    }
}

#[test]
fn what_can_not_be_is_refused_by_its_value_for_every_kind() {
    for kind in FilterKind::ALL {
        for rate in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY, -0.0] {
            let spec = FilterSpec { kind, capacity: 10, rate };
            assert!(
                spec.bytes_needed().unwrap_err().to_string().contains("must be greater than 0 and less than 1"),
                "{kind:?} {rate}"
            );
            // A scalable filter's error names the requested value, not the share of its first layer.
            assert!(Filter::new(spec).unwrap_err().to_string().ends_with(&format!("is {rate}")), "{kind:?} {rate}");
        }
        let refused = |capacity| Filter::new(FilterSpec { kind, capacity, rate: 0.01 }).unwrap_err().to_string();
        assert!(refused(u64::MAX).contains(&format!("{} keys", u64::MAX)), "{}", refused(u64::MAX));
        assert!(refused(1 << 50).contains("could not allocate"), "{}", refused(1 << 50));
        assert!(Filter::new(FilterSpec { kind, capacity: 0, rate: 0.01 }).is_ok(), "no keys are no mistake");
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Insert(u64),
    /// Does nothing if the kind can't remove.
    Remove(u64),
    Restore,
}

fn steps() -> impl Strategy<Value = Vec<Operation>> {
    let step = prop_oneof![20 => (0u64..300).prop_map(Operation::Insert), 5 => (0u64..300).prop_map(Operation::Remove), 1 => Just(Operation::Restore)];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Invariant: growth-loses-no-key
    #[test]
    fn no_false_negative_under_any_sequence_of_operations(steps in steps(), kind in prop::sample::select(&FilterKind::ALL[..])) {
        let mut filter = filter(kind, 60, 0.05);
        let mut exact: HashMap<u128, u32> = HashMap::new();
        for step in steps {
            match step {
                Operation::Insert(n) => {
                    filter.insert(number(n));
                    *exact.entry(number(n)).or_default() += 1;
                }
                Operation::Remove(n) if kind == FilterKind::Counting => {
                    let give_up = |key: u128| exact.get_mut(&key).filter(|count| **count > 0).map(|count| *count -= 1).is_some();
                    if let Some(proof) = Confirmed::by(number(n), give_up) {
                        prop_assert!(filter.remove(proof));
                    }
                }
                Operation::Remove(n) => {
                    let proof = Confirmed::by(number(n), |_| true);
                    prop_assert!(proof.is_some_and(|proof| !filter.remove(proof)), "only a counting filter can");
                }
                Operation::Restore => filter = Filter::from_layers(*filter.spec(), copied(&filter), anywhere()).unwrap(),
            }
            prop_assert!(exact.iter().all(|(key, count)| *count == 0 || filter.contains(*key)));
        }
    }
}
