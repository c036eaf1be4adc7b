//! The cap in front of the backend: a bounded number of calls, a bounded priority queue of two classes, and the rest is
//! shed at once.
//!
//! The filter's verdict orders the queue also while it must not answer. Lookups of keys that it holds go first; those
//! of keys that it called absent take the calls that are left, but for an eighth of the cap: a lookup of the first class
//! then rarely waits for a call of the second to end. Within a class, calls are admitted in order of arrival.
//! If the queue is full, a lookup of the first class takes the place of the youngest one of the second. Each waits until
//! its own deadline at most, so the second class starves no longer than that.
//!
//! Under overload a call is admitted when its lookup's time is nearly over. A call that can't end in time would waste
//! the backend's time, and all of them together all of it. So a call with less time left than calls take gives up its
//! place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::labels::ShedReason;

/// The class of a call in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// The filter called every key of the call absent.
    Low,
    /// The filter holds a key of the call, or there is no filter.
    Normal,
}

/// Bounded concurrency with a bounded queue.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimiter {
    queue: Mutex<Queue>,
    max_queue: usize,
    /// What a call takes that is answered, microseconds: of the latest the most.
    call_micros: AtomicU64,
    /// More time than that is not kept back.
    longest_reserve: Duration,
}

/// Permits and those who wait for one. No permit is free for a class while a call of that class waits.
#[derive(Debug)]
struct Queue {
    free: usize,
    /// How many of them the second class may take.
    free_for_low: usize,
    /// By ticket, so in order of arrival. A dropped sender sheds its call.
    normal: BTreeMap<u64, oneshot::Sender<()>>,
    low: BTreeMap<u64, oneshot::Sender<()>>,
    next_ticket: u64,
}

impl Queue {
    fn len(&self) -> usize {
        self.normal.len() + self.low.len()
    }

    fn has_free(&self, priority: Priority) -> bool {
        self.free > 0 && (priority == Priority::Normal || self.free_for_low > 0)
    }

    /// Returns true if a call of this class finds neither a permit nor a place.
    fn is_full(&self, priority: Priority, max_queue: usize) -> bool {
        let may_displace = priority == Priority::Normal && !self.low.is_empty();
        !self.has_free(priority) && self.len() >= max_queue && !may_displace
    }

    /// Takes a permit if one is free for this class.
    fn take(&mut self, priority: Priority) -> bool {
        let is_free = self.has_free(priority);
        if is_free {
            self.free -= 1;
            self.free_for_low -= usize::from(priority == Priority::Low);
        }
        is_free
    }

    fn class(&mut self, priority: Priority) -> &mut BTreeMap<u64, oneshot::Sender<()>> {
        match priority {
            Priority::Normal => &mut self.normal,
            Priority::Low => &mut self.low,
        }
    }

    /// Takes a permit back, and hands it to the next waiting call that may have it.
    fn release(&mut self, priority: Priority) {
        self.free += 1;
        self.free_for_low += usize::from(priority == Priority::Low);
        for priority in [Priority::Normal, Priority::Low] {
            while self.has_free(priority)
                && let Some((_, turn)) = self.class(priority).pop_first()
            {
                // Never fails: a cancelled call leaves the queue, under the lock, before its receiver is dropped.
                if turn.send(()).is_ok() {
                    self.take(priority);
                }
            }
        }
    }
}

/// Admits one call; returned when dropped.
#[derive(Debug)]
pub(crate) struct ConcurrencyPermit<'a> {
    limiter: &'a ConcurrencyLimiter,
    priority: Priority,
}

impl Drop for ConcurrencyPermit<'_> {
    fn drop(&mut self) {
        self.limiter.queue.lock().release(self.priority);
    }
}

/// A call's place in the queue; given up when dropped, also by cancellation.
struct QueuePlace<'a> {
    limiter: &'a ConcurrencyLimiter,
    priority: Priority,
    ticket: u64,
    turn: oneshot::Receiver<()>,
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut queue = self.limiter.queue.lock();
        let waited = queue.class(self.priority).remove(&self.ticket).is_some();
        // Admitted and cancelled before it noticed. Turns are sent under the lock, so none is on its way.
        if !waited && self.turn.try_recv().is_ok() {
            queue.release(self.priority);
        }
    }
}

/// How a call begins.
enum Admission<'a> {
    Now(ConcurrencyPermit<'a>),
    Later(QueuePlace<'a>),
}

/// One part in so many of the cap is for the first class alone. A cap of one call serves both.
const KEPT_FOR_NORMAL: usize = 8;
/// Of what a call took, each later one leaves seven eighths.
const FADING: u64 = 8;

impl ConcurrencyLimiter {
    /// For lookups that last no longer than `deadline`.
    pub(crate) fn new(max_concurrency: usize, max_queue: usize, deadline: Duration) -> Self {
        let free_for_low = (max_concurrency - max_concurrency.div_ceil(KEPT_FOR_NORMAL)).max(1);
        let (normal, low) = (BTreeMap::new(), BTreeMap::new());
        Self {
            queue: Mutex::new(Queue { free: max_concurrency, free_for_low, normal, low, next_ticket: 0 }),
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

    /// Admits a call of the second class only if it need not wait.
    pub(crate) fn enter_if_free(&self) -> Option<ConcurrencyPermit<'_>> {
        self.queue.lock().take(Priority::Low).then(|| self.permit(Priority::Low))
    }

    const fn permit(&self, priority: Priority) -> ConcurrencyPermit<'_> {
        ConcurrencyPermit { limiter: self, priority }
    }

    /// Returns true if a call of this class would be shed now.
    pub(crate) fn is_full(&self, priority: Priority) -> bool {
        self.queue.lock().is_full(priority, self.max_queue)
    }

    /// Waits to be admitted, as long as a call can still end by `deadline`.
    pub(crate) async fn enter(
        &self,
        priority: Priority,
        deadline: Instant,
    ) -> Result<ConcurrencyPermit<'_>, ShedReason> {
        let mut place = match self.join(priority)? {
            Admission::Now(permit) => return Ok(permit),
            Admission::Later(place) => place,
        };
        match timeout_at(deadline - self.reserve(), &mut place.turn).await {
            Ok(Ok(())) => Ok(self.permit(priority)),
            Ok(Err(_)) => Err(ShedReason::QueueFull),
            Err(_) => Err(ShedReason::QueueTimeout),
        }
    }

    /// Takes a free permit or a place in the queue, in one step: a permit that is returned in between would be lost.
    fn join(&self, priority: Priority) -> Result<Admission<'_>, ShedReason> {
        let mut queue = self.queue.lock();
        if queue.take(priority) {
            return Ok(Admission::Now(self.permit(priority)));
        }
        if queue.is_full(priority, self.max_queue) {
            return Err(ShedReason::QueueFull);
        }
        if queue.len() >= self.max_queue {
            // Its sender is dropped, which ends its wait.
            queue.low.pop_last();
        }
        let (sender, turn) = oneshot::channel();
        let ticket = queue.next_ticket;
        queue.next_ticket += 1;
        queue.class(priority).insert(ticket, sender);
        Ok(Admission::Later(QueuePlace { limiter: self, priority, ticket, turn }))
    }
}

#[cfg(test)]
mod tests;
