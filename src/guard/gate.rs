//! The cap in front of the backend: so many calls at a time, so many waiting, the rest shed at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::words::ShedReason;

/// Bounded concurrency with a bounded queue.
#[derive(Debug)]
pub(super) struct Gate {
    permits: Semaphore,
    waiting: AtomicUsize,
    max_queue: usize,
}

/// Counts a waiting lookup until dropped, also by cancellation.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    pub(super) fn new(max_concurrency: usize, max_queue: usize) -> Self {
        Self { permits: Semaphore::new(max_concurrency), waiting: AtomicUsize::new(0), max_queue }
    }

    /// A turn that nobody waits for: only one that is free at once.
    pub(super) fn enter_if_free(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    /// Waits for a turn until `deadline`.
    pub(super) async fn enter(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, ShedReason> {
        if let Some(permit) = self.enter_if_free() {
            return Ok(permit);
        }
        // Relaxed: the count guards no memory, it only bounds the queue.
        let ahead = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if ahead >= self.max_queue {
            return Err(ShedReason::QueueFull);
        }
        match timeout_at(deadline, self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed, so only the deadline gets here.
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
        let gate = Gate::new(1, 1);
        let soon = || Instant::now() + Duration::from_millis(20);
        let held = gate.enter(soon()).await.unwrap();
        let (first, second) = tokio::join!(gate.enter(soon()), gate.enter(soon()));
        assert_eq!(first.err(), Some(ShedReason::QueueTimeout));
        assert_eq!(second.err(), Some(ShedReason::QueueFull));
        drop(held);
        assert!(gate.enter(soon()).await.is_ok());
    }
}
