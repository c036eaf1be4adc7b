//! How many keys one statement can answer for within the timeout, learnt from those that did and those that didn't.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// No kind of database has more.
const MOST: usize = 1024;
/// Not one, which would never be tried as a batch again.
const LEAST: usize = 2;

/// Halves where a batch took too long, so that a query which is slow for each key still has its keys answered; doubles where one of full
/// size had time to spare.
#[derive(Debug)]
pub(super) struct Pace {
    /// Relaxed throughout: a hint that guards nothing. Updates that miss each other are made up for by the next batch.
    limit: AtomicUsize,
    timeout: Duration,
}

impl Pace {
    pub(super) const fn new(timeout: Duration) -> Self {
        Self { limit: AtomicUsize::new(MOST), timeout }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Takes note of a batch of so many keys.
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
        let pace = Pace::new(second);
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
