//! Maps a 128-bit key hash to a block and eight bits, under the salt of one filter.

/// The salt of one filter: random, so that a false positive of one generation is not one of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt([u64; 4]);

impl Salt {
    pub(crate) fn random() -> Self {
        Self(rand::random())
    }

    pub(crate) const fn new(words: [u64; 4]) -> Self {
        Self(words)
    }

    pub(crate) const fn words(self) -> [u64; 4] {
        self.0
    }

    #[cfg(test)]
    pub(crate) const fn fixed(words: [u64; 4]) -> Self {
        Self(words)
    }

    /// Derives the salt of a later layer from the first layer's.
    pub(crate) const fn of_layer(self, index: u64) -> Self {
        let [a, b, c, d] = self.0;
        const fn mixed(x: u64, n: u64) -> u64 {
            fold(x ^ n, 0x9E37_79B9_7F4A_7C15)
        }
        Self([mixed(a, 4 * index), mixed(b, 4 * index + 1), mixed(c, 4 * index + 2), mixed(d, 4 * index + 3)])
    }

    /// Two independent 64-bit numbers: the first chooses the block, the second its bits.
    #[inline]
    pub(crate) const fn mix(self, hash: u128) -> (u64, u64) {
        let (low, high) = (hash as u64, (hash >> 64) as u64);
        let [a, b, c, d] = self.0;
        (fold(low ^ a, high ^ b), fold(high ^ c, low ^ d))
    }

    /// For block filters: a number that chooses the block, and one whose lowest 48 bits choose the bits in it.
    ///
    /// Multiply-shift (Dietzfelbinger and others, 1997) by a random odd factor; [`reduce`] takes the upper bits of the
    /// product. Only the block depends on the salt. That is enough, because a key shares its block with other keys in
    /// each filter, and its bits are independent of theirs. It is also short: a lookup mostly waits for memory, and
    /// fewer instructions let more loads overlap.
    #[inline(always)]
    pub(crate) const fn block_and_bits(self, hash: u128) -> (u64, u64) {
        let factor = self.0[0] | 1;
        ((hash as u64).wrapping_mul(factor), (hash >> 64) as u64)
    }
}

/// The folded multiply of wyhash: every bit of the product reaches every bit of the result.
#[inline]
const fn fold(x: u64, y: u64) -> u64 {
    let product = (x as u128) * (y as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Maps a uniform 64-bit number onto `0..n` by multiply-shift (Lemire 2019): no division, bias below n / 2⁶⁴.
#[inline(always)]
pub(crate) const fn reduce(x: u64, n: u64) -> u64 {
    (((x as u128) * (n as u128)) >> 64) as u64
}

/// The eight masks of a block, one bit each: six bits of `bits` choose each.
#[inline]
pub(crate) const fn masks(bits: u64) -> [u64; 8] {
    let mut masks = [0; 8];
    let mut word = 0;
    while word < 8 {
        masks[word] = 1 << ((bits >> (6 * word)) & 63);
        word += 1;
    }
    masks
}
