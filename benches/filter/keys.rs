//! Keys as they come in requests: short strings in one piece of memory, so that reading them costs the same for every structure.

use std::io::Write;
use std::ops::Range;

use xxhash_rust::xxh3::{xxh3_64_with_secret, xxh3_128_with_secret};

/// Any will do.
const SECRET: [u8; 192] = {
    let mut secret = [0; 192];
    let mut i = 0;
    while i < 192 {
        secret[i] = (i as u8).wrapping_mul(151) ^ 0x5A;
        i += 1;
    }
    secret
};

/// As keyspaces hash their keys.
#[inline(always)]
pub(crate) fn hash(key: &[u8]) -> u128 {
    xxh3_128_with_secret(key, &SECRET)
}

/// What filters that take 64 bits are given: the cheaper hash of the family.
#[inline(always)]
pub(crate) fn hash64(key: &[u8]) -> u64 {
    xxh3_64_with_secret(key, &SECRET)
}

pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Keys {
    /// `user:<n>` for each number.
    pub(crate) fn numbered(numbers: Range<u64>) -> Self {
        let (mut bytes, mut ends) = (vec![], vec![0]);
        for number in numbers {
            write!(bytes, "user:{number}").unwrap();
            ends.push(u32::try_from(bytes.len()).unwrap());
        }
        Self { bytes, ends }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len() - 1
    }

    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.windows(2).map(|pair| &self.bytes[pair[0] as usize..pair[1] as usize])
    }
}
