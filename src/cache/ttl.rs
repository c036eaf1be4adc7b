//! Lifetimes, spread so that entries written together don't expire together.

use std::time::Duration;

/// A lifetime drawn uniformly from `ttl` × [1 − `jitter`, 1 + `jitter`].
///
/// `jitter` is clamped to 0…1. If the lifetime is also a promise, as for an absence, the caller caps the result.
#[must_use]
pub fn jittered(ttl: Duration, jitter: f64) -> Duration {
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
    let factor = 1.0 + jitter * rand::random_range(-1.0..=1.0);
    Duration::try_from_secs_f64(ttl.as_secs_f64() * factor).unwrap_or(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_jitter_the_lifetime_is_exact() {
        assert_eq!(jittered(Duration::from_secs(300), 0.0), Duration::from_secs(300));
    }

    /// A quarter of the range stays empty in 1,000 uniform draws with a probability of 0.75^1000 < 1e-124.
    #[test]
    fn lifetimes_spread_over_the_whole_range() {
        let mut quarters = [0; 4];
        for _ in 0..1000 {
            let drawn = jittered(Duration::from_secs(100), 0.1).as_secs_f64();
            assert!((90.0..=110.0).contains(&drawn), "{drawn}");
            quarters[(((drawn - 90.0) / 5.0) as usize).min(3)] += 1;
        }
        assert!(quarters.iter().all(|n| *n > 0), "{quarters:?}");
    }

    #[test]
    fn extremes_neither_panic_nor_leave_the_range() {
        for jitter in [f64::NAN, -1.0, 7.0, f64::INFINITY] {
            assert!(jittered(Duration::from_secs(10), jitter) <= Duration::from_secs(20));
        }
        let _ = jittered(Duration::MAX, 1.0);
        assert_eq!(jittered(Duration::ZERO, 0.5), Duration::ZERO);
    }
}
