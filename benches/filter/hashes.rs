//! Hash functions: their cost, and the false-positive rate of a filter that uses them.

use std::hash::{DefaultHasher, Hasher};
use std::hint::black_box;
use std::io::Cursor;
use std::time::{Duration, Instant};

use bloomguard::filter::SplitBlock;
use xxhash_rust::{xxh3, xxh64};

const LENGTHS: [usize; 5] = [8, 16, 32, 64, 1_024];
/// Keys in the filters whose rate is measured.
const KEYS: u64 = 1_000_000;
const RATE: f64 = 0.01;
/// Bits and probes of a textbook filter with that rate.
const BITS_PER_KEY: f64 = 9.592_955;
const PROBES: u64 = 7;

/// A 64-bit hash is in both halves.
type HashOf = fn(&[u8]) -> u128;

const HASHES: [(&str, HashOf); 6] = [
    ("xxh3-128 (ours)", |key| xxh3::xxh3_128(key)),
    ("xxh3-64", |key| twice(xxh3::xxh3_64(key))),
    ("xxh64", |key| twice(xxh64::xxh64(key, 0))),
    ("murmur3-128", |key| murmur3::murmur3_x64_128(&mut Cursor::new(key), 0).unwrap()),
    ("SipHash-1-3", |key| {
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        twice(hasher.finish())
    }),
    ("FNV-1a-64", |key| {
        twice(
            key.iter()
                .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)),
        )
    }),
];

fn twice(hash: u64) -> u128 {
    u128::from(hash) << 64 | u128::from(hash)
}

pub(crate) fn run() {
    println!(
        "\nHashes: nanoseconds a key of so many bytes; rates in % of filters of {KEYS} keys made for {} %\n",
        RATE * 100.0
    );
    println!(
        "| hash | 8 B | 16 B | 32 B | 64 B | 1 KiB | textbook, `user:<n>` | textbook, 8-byte numbers | ours, `user:<n>` | ours, 8-byte numbers |"
    );
    println!("|---|{}", "---|".repeat(LENGTHS.len() + 4));
    for (name, hash) in HASHES {
        let times = LENGTHS.map(|length| format!("{:.1}", nanoseconds(length, hash)));
        let rates = [textbook(&name_of, hash), textbook(&number, hash), ours(&name_of, hash), ours(&number, hash)]
            .map(|rate| format!("{:.3}", rate * 100.0));
        println!("| {name} | {} | {} |", times.join(" | "), rates.join(" | "));
    }
}

/// The fastest of several passes over keys that fit the L1 cache.
fn nanoseconds(length: usize, hash: HashOf) -> f64 {
    const BYTES: usize = 16 << 10;
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at * 151 % 251) as u8).collect();
    let (mut least, end) = (f64::MAX, Instant::now() + Duration::from_millis(200));
    while Instant::now() < end {
        let begin = Instant::now();
        for key in bytes.chunks(length) {
            black_box(hash(black_box(key)));
        }
        least = least.min(begin.elapsed().as_nanos() as f64 / (BYTES / length) as f64);
    }
    least
}

fn name_of(number: u64) -> Vec<u8> {
    format!("user:{number}").into_bytes()
}

fn number(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn absent() -> std::ops::Range<u64> {
    10 * KEYS..12 * KEYS
}

fn ours(key: &dyn Fn(u64) -> Vec<u8>, hash: HashOf) -> f64 {
    let filter = SplitBlock::new(KEYS, RATE).unwrap();
    (0..KEYS).for_each(|n| filter.insert(hash(&key(n))));
    absent().filter(|n| filter.contains(hash(&key(*n)))).count() as f64 / (absent().end - absent().start) as f64
}

/// Double hashing (Kirsch, Mitzenmacher 2006) with the halves of 64 bits, as most Bloom filters use it. Nothing
/// compensates for a poor hash.
fn textbook(key: &dyn Fn(u64) -> Vec<u8>, hash: HashOf) -> f64 {
    let bits = (KEYS as f64 * BITS_PER_KEY).ceil() as u64;
    let places = |n: u64| {
        let hash = hash(&key(n)) as u64;
        (0..PROBES).map(move |probe| ((hash & 0xFFFF_FFFF) + probe * (hash >> 32)) % bits)
    };
    let mut words = vec![0u64; bits as usize / 64 + 1];
    (0..KEYS).flat_map(places).for_each(|place| words[place as usize / 64] |= 1 << (place % 64));
    let contains = |n: u64| places(n).all(|place| words[place as usize / 64] >> (place % 64) & 1 == 1);
    absent().filter(|n| contains(*n)).count() as f64 / (absent().end - absent().start) as f64
}
