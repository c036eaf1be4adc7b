//! Counts the set bits of a filter as they are set, so that the fill is known without a scan of its memory.
//!
//! A single counter would be a contended cache line for all inserting threads. So there are several, one line each, and
//! a thread always uses the same one. The sum is read only every few seconds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Two lines of 64 bytes, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// Counts bits that went from 0 to 1.
#[derive(Debug)]
pub(crate) struct StripedCounter {
    /// Their number is a power of two.
    stripes: Box<[Stripe]>,
}

impl StripedCounter {
    /// Starts at `count`.
    pub(crate) fn starting_at(count: u64) -> Self {
        let stripes: Box<[Stripe]> = (0..stripes()).map(|_| Stripe::default()).collect();
        stripes[0].0.store(count, Ordering::Relaxed);
        Self { stripes }
    }

    #[inline]
    pub(crate) fn add(&self, count: u64) {
        // Relaxed: a count orders nothing.
        self.stripes[thread_number() & (self.stripes.len() - 1)].0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count; concurrent additions may be included or not.
    pub(crate) fn get(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

/// As many as threads run in parallel, at most 64: 8 KiB per filter.
fn stripes() -> usize {
    // Cached, because it reads the cgroup's limit.
    static STRIPES: OnceLock<usize> = OnceLock::new();
    *STRIPES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from).next_power_of_two().min(64))
}

/// Threads are numbered in order of appearance, so that concurrent inserters mostly have stripes of their own.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_add_at_once_is_all_counted() {
        let ones = StripedCounter::starting_at(5);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..1_000).for_each(|_| ones.add(2)));
            }
        });
        assert_eq!(ones.get(), 16_005);
    }
}
