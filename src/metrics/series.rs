//! The values behind series. An update is one or two atomic instructions; nothing is queued for the scrape.
//!
//! All orderings are relaxed: each value stands alone, and a scrape that misses an update sees it the next time.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A value that only grows.
#[derive(Debug, Clone, Default)]
pub(super) struct Counter(Arc<AtomicU64>);

/// A value that goes up and down, stored as the bits of an `f64`.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge(Arc<AtomicU64>);

/// Counts durations by bucket.
#[derive(Debug, Clone)]
pub(super) struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Upper bounds in seconds, ascending.
    bounds: &'static [f64],
    /// One per bound, and one for longer durations.
    counts: Box<[AtomicU64]>,
    /// Overflows after 584 years.
    nanos: AtomicU64,
}

impl Counter {
    #[inline]
    pub(super) fn increment(&self, by: u64) {
        self.0.fetch_add(by, Relaxed);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Gauge {
    #[inline]
    pub(super) fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    pub(super) fn add(&self, difference: f64) {
        // The closure never returns `None`, so this never fails.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |bits| Some((f64::from_bits(bits) + difference).to_bits()));
    }

    pub(super) fn value(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Buckets { bounds, counts, nanos: AtomicU64::new(0) }))
    }

    #[inline]
    pub(super) fn record(&self, took: Duration) {
        let Buckets { bounds, counts, nanos } = &*self.0;
        let seconds = took.as_secs_f64();
        let place = bounds.partition_point(|bound| *bound < seconds);
        counts[place].fetch_add(1, Relaxed);
        nanos.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    /// Cumulative counts by bound, the last for all; and the sum in seconds.
    pub(super) fn value(&self) -> (Vec<(f64, u64)>, f64) {
        let Buckets { bounds, counts, nanos } = &*self.0;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let within = counts.iter().scan(0, |sum, count| {
            *sum += count.load(Relaxed);
            Some(*sum)
        });
        (bounds.zip(within).collect(), nanos.load(Relaxed) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_counted_where_they_belong() {
        let histogram = Histogram::new(&[1e-6, 1e-3, 1.0]);
        for nanos in [0, 1_000, 1_001, 1_000_000, 999_999_999, 1_000_000_001, 60_000_000_000] {
            histogram.record(Duration::from_nanos(nanos));
        }
        let (within, sum) = histogram.value();
        assert_eq!(within, [(1e-6, 2), (1e-3, 4), (1.0, 5), (f64::INFINITY, 7)]);
        assert!((sum - 62.001_002).abs() < 1e-6, "{sum}");
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let (counter, gauge, histogram) = (Counter::default(), Gauge::default(), Histogram::new(&[1.0]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        counter.increment(2);
                        gauge.add(3.0);
                        gauge.add(-2.0);
                        histogram.record(Duration::from_secs(2));
                    }
                });
            }
        });
        assert_eq!((counter.value(), gauge.value()), (8_000, 4_000.0));
        assert_eq!(histogram.value(), (vec![(1.0, 0), (f64::INFINITY, 4_000)], 8_000.0));
    }
}
