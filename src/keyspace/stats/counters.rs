//! What the active filter got right and wrong since its swap.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the swap, and false negatives since the start. All relaxed: they are only displayed.
#[derive(Debug, Default)]
pub(super) struct Counters {
    false_positives: AtomicU64,
    true_negatives: AtomicU64,
    false_negatives: AtomicU64,
}

impl Counters {
    pub(super) fn false_positive(&self) {
        self.false_positives.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn true_negatives(&self, count: u64) {
        self.true_negatives.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn false_negative(&self) {
        self.false_negatives.fetch_add(1, Ordering::Relaxed);
    }

    /// A new filter starts at zero.
    pub(super) fn swapped(&self) {
        self.false_positives.store(0, Ordering::Relaxed);
        self.true_negatives.store(0, Ordering::Relaxed);
    }

    /// Absent verdicts since the swap.
    pub(super) fn absent_verdicts(&self) -> u64 {
        self.true_negatives.load(Ordering::Relaxed)
    }

    /// FP / (FP + TN); `None` before the first of either.
    pub(super) fn rate(&self) -> Option<f64> {
        let positives = self.false_positives.load(Ordering::Relaxed) as f64;
        let total = positives + self.true_negatives.load(Ordering::Relaxed) as f64;
        (total > 0.0).then(|| positives / total)
    }

    pub(super) fn false_negatives(&self) -> u64 {
        self.false_negatives.load(Ordering::Relaxed)
    }
}
