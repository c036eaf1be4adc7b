//! How many keys one statement can answer for within the timeout, adapted to earlier batches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The largest batch of any kind of database.
const MOST: usize = 1024;
/// Not one, because a batch would then never be tried again.
const LEAST: usize = 2;

/// Halves after a batch that took too long, so that the keys of a slow query still have answers. Doubles after a full
/// batch with time to spare.
#[derive(Debug)]
pub(super) struct BatchPace {
    /// Relaxed throughout: a hint that guards nothing. The next batch corrects lost updates.
    limit: AtomicUsize,
    timeout: Duration,
}

impl BatchPace {
    pub(super) const fn new(timeout: Duration) -> Self {
        Self { limit: AtomicUsize::new(MOST), timeout }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Records a batch of this many keys.
    pub(super) fn took(&self, keys: usize, elapsed: Duration, timed_out: bool) {
        let limit = self.limit();
        if timed_out {
            self.limit.store((keys / 2).clamp(LEAST, limit), Ordering::Relaxed);
        } else if keys >= limit && elapsed < self.timeout / 4 {
            self.limit.store((limit * 2).min(MOST), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_shrink_when_late_and_grow_when_early() {
        let second = Duration::from_secs(1);
        let pace = BatchPace::new(second);
        pace.took(100, second, true);
        assert_eq!(pace.limit(), 50);
        pace.took(50, second / 2, false);
        assert_eq!(pace.limit(), 50, "neither late nor early");
        pace.took(10, second / 100, false);
        assert_eq!(pace.limit(), 50, "a small batch tells nothing of a larger one");
        pace.took(50, second / 5, false);
        assert_eq!(pace.limit(), 100);
        for _ in 0..20 {
            pace.took(pace.limit(), second, true);
        }
        assert_eq!(pace.limit(), LEAST);
        for _ in 0..20 {
            pace.took(pace.limit(), second / 100, false);
        }
        assert_eq!(pace.limit(), MOST);
    }
}
