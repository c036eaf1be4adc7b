//! How many blocks a split-block filter needs.
//!
//! A block has 8 words of 64 bits and a key sets one bit in each. With λ keys a block on average, the number of keys in
//! a block is Poisson distributed, so the rate is Σᵢ Pois(λ; i) · (1 − (63/64)ⁱ)⁸ (Putze, Sanders, Singler, "Cache-,
//! Hash- and Space-Efficient Bloom Filters", 2009, eq. 3, with one bit a word). It has no closed inverse:
//! [`blocks_for`] solves it by bisection.

/// Bits of a block: one cache line.
pub const BITS_PER_BLOCK: u64 = 512;

/// Words of a block; a key sets one bit in each.
const WORDS: i32 = 8;
/// Bits of a word.
const WORD_BITS: f64 = 64.0;

/// A filter that can't be sized.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SizingError {
    /// Not between 0 and 1.
    #[error("the false-positive rate must be greater than 0 and less than 1, is {0}")]
    Rate(f64),
    /// Larger than any machine.
    #[error("{keys} keys at a false-positive rate of {rate} need more bits than can be addressed")]
    TooLarge {
        /// Keys asked for.
        keys: u64,
        /// Rate asked for.
        rate: f64,
    },
}

/// Blocks for which `keys` keys reach a false-positive rate of at most `rate`.
///
/// # Errors
/// [`SizingError`].
pub fn blocks_for(keys: u64, rate: f64) -> Result<u64, SizingError> {
    if !(rate > 0.0 && rate < 1.0) {
        return Err(SizingError::Rate(rate));
    }
    let blocks = (keys.max(1) as f64 / load_for(rate)).ceil();
    // 2⁵⁴ blocks of 64 bytes are 2⁶⁰ bytes: larger than every address space, and f64 still counts them precisely
    // enough.
    if blocks > (1u64 << 54) as f64 {
        return Err(SizingError::TooLarge { keys, rate });
    }
    Ok(blocks as u64)
}

/// The false-positive rate at a load of `keys_per_block`.
#[must_use]
pub fn expected_fpr(keys_per_block: f64) -> f64 {
    if keys_per_block <= 0.0 {
        return 0.0;
    }
    let lambda = keys_per_block;
    let last = (lambda + 12.0 * lambda.sqrt() + 30.0) as u32;
    let (mut ln_poisson, mut sum) = (-lambda, 0.0);
    for i in 1..=last {
        ln_poisson += (lambda / f64::from(i)).ln();
        let word_hit = 1.0 - (1.0 - 1.0 / WORD_BITS).powi(i as i32);
        sum += ln_poisson.exp() * word_hit.powi(WORDS);
    }
    sum.min(1.0)
}

/// The largest load, in keys per block, that keeps the rate.
pub(super) fn load_for(rate: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1e4);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if expected_fpr(middle) <= rate {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_a_key_are_those_of_the_paper() {
        for (rate, bits) in [(0.01, 10.10), (0.001, 15.73), (1e-4, 23.6), (1e-5, 35.0)] {
            let per_key = BITS_PER_BLOCK as f64 / load_for(rate);
            assert!((per_key - bits).abs() < bits * 0.005, "{rate}: {per_key} bits a key, expected {bits}");
        }
    }

    #[test]
    fn the_rate_reached_is_at_most_the_rate_asked() {
        for keys in [1, 10, 1_000, 1_000_000, 1_000_000_000] {
            for rate in [0.5, 0.03, 0.01, 0.001, 1e-6, 1e-9] {
                let blocks = blocks_for(keys, rate).unwrap();
                assert!(expected_fpr(keys as f64 / blocks as f64) <= rate, "{keys} keys at {rate}");
            }
        }
    }

    #[test]
    fn impossible_rates_are_refused_by_name() {
        for rate in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
            let error = blocks_for(1, rate).unwrap_err();
            assert!(error.to_string().contains(&rate.to_string()), "{error}");
        }
        assert!(matches!(blocks_for(u64::MAX, 1e-9), Err(SizingError::TooLarge { .. })));
    }
}
