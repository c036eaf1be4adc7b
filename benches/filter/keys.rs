//! Keys as in requests: short strings in one allocation, so that reading them costs the same for every structure.

use std::io::Write;
use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64_with_secret, xxh3_128_with_secret};

/// Any secret will do.
const SECRET: [u8; 192] = {
    let mut secret = [0; 192];
    let mut i = 0;
    while i < 192 {
        secret[i] = (i as u8).wrapping_mul(151) ^ 0x5A;
        i += 1;
    }
    secret
};

/// Hashes as keyspaces do.
#[inline(always)]
pub(crate) fn hash(key: &[u8]) -> u128 {
    xxh3_128_with_secret(key, &SECRET)
}

/// The hash for 64-bit filters: the cheaper one of the family.
#[inline(always)]
pub(crate) fn hash64(key: &[u8]) -> u64 {
    xxh3_64_with_secret(key, &SECRET)
}

pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Keys {
    pub(crate) fn numbered(numbers: Range<u64>) -> Self {
        Self::of(numbers)
    }

    /// `user:<n>` for each number.
    pub(crate) fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let (mut bytes, mut ends) = (vec![], vec![0]);
        for number in numbers {
            write!(bytes, "user:{number}").unwrap();
            ends.push(u32::try_from(bytes.len()).unwrap());
        }
        Self { bytes, ends }
    }

    /// `draws` of these keys, numbered from 0, by a Zipf distribution with exponent 0.99 (Gray and others, 1994; as in
    /// YCSB). The most frequent keys are spread over the numbers.
    pub(crate) fn zipf(&self, draws: usize) -> Self {
        const SKEW: f64 = 0.99;
        let n = self.len() as f64;
        let zeta: f64 = (1..=self.len()).map(|rank| (rank as f64).powf(-SKEW)).sum();
        let eta = (1.0 - (2.0 / n).powf(1.0 - SKEW)) / (1.0 - (1.0 + 0.5_f64.powf(SKEW)) / zeta);
        let rank = |draw: u64| {
            let uniform = (xxhash_rust::xxh3::xxh3_64(&draw.to_be_bytes()) >> 11) as f64 / (1u64 << 53) as f64;
            match uniform * zeta {
                ..1.0 => 0,
                scaled if scaled < 1.0 + 0.5_f64.powf(SKEW) => 1,
                _ => (n * (eta * uniform - eta + 1.0).powf(1.0 / (1.0 - SKEW))) as u64,
            }
        };
        // Coprime with every number of keys that is used.
        Self::of((0..draws as u64).map(|draw| rank(draw) * 1_000_003 % self.len() as u64))
    }

    /// The first `count` keys, or all.
    pub(crate) fn first(&self, count: usize) -> Self {
        let ends = self.ends[..=count.min(self.len())].to_vec();
        Self { bytes: self.bytes[..ends[ends.len() - 1] as usize].to_vec(), ends }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> &[u8] {
        &self.bytes[self.ends[index] as usize..self.ends[index + 1] as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len() - 1
    }

    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.windows(2).map(|pair| &self.bytes[pair[0] as usize..pair[1] as usize])
    }
}
