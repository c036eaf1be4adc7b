//! The cap in front of the backend: a bounded number of calls, a bounded queue, and the rest is shed at once.
//!
//! Waiting calls are served in order of arrival, so under overload a call is admitted when its lookup's time is nearly
//! over. A call that can't end in time would waste the backend's time, and all of them together all of it. So a call
//! with less time left than calls take gives up its place.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::labels::ShedReason;

/// Bounded concurrency with a bounded queue.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimiter {
    permits: Semaphore,
    waiting: AtomicUsize,
    max_queue: usize,
    /// What a call takes that is answered, microseconds: of the latest the most.
    call_micros: AtomicU64,
    /// More time than that is not kept back.
    longest_reserve: Duration,
}

/// Of what a call took, each later one leaves seven eighths.
const FADING: u64 = 8;

/// Counts a waiting lookup until dropped, also by cancellation.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConcurrencyLimiter {
    /// For lookups that last no longer than `deadline`.
    pub(crate) fn new(max_concurrency: usize, max_queue: usize, deadline: Duration) -> Self {
        Self {
            permits: Semaphore::new(max_concurrency),
            waiting: AtomicUsize::new(0),
            max_queue,
            call_micros: AtomicU64::new(0),
            // A slower backend gets this much time all the same, else no call would ever be admitted.
            longest_reserve: deadline / 2,
        }
    }

    /// Records the duration of an answered call.
    pub(crate) fn record_duration(&self, time: Duration) {
        let took = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // Relaxed, and not one step: a hint that guards nothing.
        let faded = self.call_micros.load(Ordering::Relaxed);
        self.call_micros.store(took.max(faded - faded / FADING), Ordering::Relaxed);
    }

    fn reserve(&self) -> Duration {
        Duration::from_micros(self.call_micros.load(Ordering::Relaxed)).min(self.longest_reserve)
    }

    /// Admits a call only if a place is free now and no other call waits.
    pub(crate) fn enter_if_free(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    /// Waits to be admitted, as long as a call can still end by `deadline`.
    pub(crate) async fn enter(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, ShedReason> {
        if let Some(permit) = self.enter_if_free() {
            return Ok(permit);
        }
        // Relaxed: the count guards no memory, it only bounds the queue.
        let ahead = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if ahead >= self.max_queue {
            return Err(ShedReason::QueueFull);
        }
        match timeout_at(deadline - self.reserve(), self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed, so only the want of time gets here.
            Ok(Err(_)) | Err(_) => Err(ShedReason::QueueTimeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_queue_is_bounded_and_empties() {
        let gate = ConcurrencyLimiter::new(1, 1, Duration::from_secs(1));
        let soon = || Instant::now() + Duration::from_millis(20);
        let held = gate.enter(soon()).await.unwrap();
        let (first, second) = tokio::join!(gate.enter(soon()), gate.enter(soon()));
        assert_eq!(first.err(), Some(ShedReason::QueueTimeout));
        assert_eq!(second.err(), Some(ShedReason::QueueFull));
        drop(held);
        assert!(gate.enter(soon()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_time_left_for_a_call_gives_its_place_up() {
        let gate = ConcurrencyLimiter::new(1, 10, Duration::from_millis(300));
        let _held = gate.enter(Instant::now()).await.unwrap();
        for (took, waited) in [(20, 280), (60, 240), (20, 247), (1000, 150)] {
            gate.record_duration(Duration::from_millis(took));
            let began = Instant::now();
            assert_eq!(gate.enter(began + Duration::from_millis(300)).await.err(), Some(ShedReason::QueueTimeout));
            let rounded = began.elapsed().as_millis().abs_diff(waited);
            assert!(rounded <= 2, "a call of {took} ms: waited for {:?} and not {waited} ms", began.elapsed());
        }
    }
}
