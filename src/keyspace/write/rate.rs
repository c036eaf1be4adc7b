//! How many keys may be announced a second.
//!
//! Each announce sets bits that stay until a rebuild, and uses memory until its window closes. Without a limit, one
//! client fills the filter of a keyspace within seconds. A rejected announce changes nothing: no bit, no memory, no
//! entry of the log. Its writer knows not to commit, so other instances need not know of it. An entry for it would let
//! a flood of announces end the 404s from the filter everywhere.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;

/// A token bucket: one token a key.
#[derive(Debug)]
pub(crate) struct AnnounceRate {
    per_second: f64,
    /// Keys that may come at once after a pause.
    burst: f64,
    state: Mutex<Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Negative after a batch that is larger than a burst.
    tokens: f64,
    at: Moment,
}

impl AnnounceRate {
    /// Admits `per_second` keys a second, and a whole batch at once.
    pub(crate) fn new(per_second: u32, batch: usize) -> Self {
        let (per_second, batch) = (f64::from(per_second.max(1)), batch as f64);
        let burst = per_second.max(batch);
        Self { per_second, burst, state: Mutex::new(Bucket { tokens: burst, at: Moment::NEVER }) }
    }

    /// Admits all of these keys or none.
    ///
    /// # Errors
    /// How long until this many would be admitted, if no other announce comes.
    pub(crate) fn admit(&self, keys: usize, now: Moment) -> Result<(), Duration> {
        let mut state = self.state.lock();
        let earned = now.since(state.at).as_secs_f64() * self.per_second;
        let tokens = (state.tokens + earned).min(self.burst);
        // A batch larger than a burst waits for a full bucket, and is paid for later.
        let needed = (keys as f64).min(self.burst);
        let missing = needed - tokens;
        if missing > 0.0 {
            return Err(Duration::from_secs_f64(missing / self.per_second));
        }
        *state = Bucket { tokens: tokens - keys as f64, at: now.max(state.at) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(1_000_000_000_000).plus(Duration::from_millis(millis))
    }

    #[test]
    fn a_burst_of_one_batch_and_then_the_rate() {
        let rate = AnnounceRate::new(100, 1_000);
        assert_eq!(rate.admit(1_000, at(0)), Ok(()));
        assert_eq!(rate.admit(1, at(0)), Err(Duration::from_millis(10)));
        assert_eq!(rate.admit(1_000, at(0)), Err(Duration::from_secs(10)));
        assert_eq!(rate.admit(1, at(10)), Ok(()));
        assert_eq!((rate.admit(100, at(1_010)), rate.admit(100, at(1_010))), (Ok(()), Err(Duration::from_secs(1))));
        assert_eq!(
            (rate.admit(1_000, at(60_000)), rate.admit(100, at(60_000)).is_err()),
            (Ok(()), true),
            "a pause earns one burst"
        );
    }

    #[test]
    fn no_more_than_the_rate_passes_however_it_is_asked() {
        for keys in [1, 7, 100, 999] {
            let rate = AnnounceRate::new(1_000, 10);
            let admitted: usize = (0..60_000).filter(|milli| rate.admit(keys, at(*milli)).is_ok()).count() * keys;
            assert!((59_000..=61_000 + keys).contains(&admitted), "{admitted} in batches of {keys}");
        }
    }

    #[test]
    fn a_batch_larger_than_a_burst_passes_and_is_paid_for() {
        let rate = AnnounceRate::new(10, 10);
        assert_eq!(rate.admit(100, at(0)), Ok(()));
        assert_eq!(rate.admit(10, at(9_000)), Err(Duration::from_secs(1)));
        assert_eq!(rate.admit(10, at(10_000)), Ok(()));
    }

    #[test]
    fn a_clock_that_stands_still_admits_no_more() {
        let rate = AnnounceRate::new(10, 10);
        assert_eq!(rate.admit(10, at(1_000)), Ok(()));
        assert!(rate.admit(1, at(1_000)).is_err() && rate.admit(1, at(500)).is_err());
    }
}
