//! Draws a sample of the filter's absences for the canary. [`policy`] decides how many and which.

mod policy;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use self::policy::Policy;
use super::false_negatives::Suspect;
use crate::clock::Moment;
use crate::config::CanaryConfig;

/// Samples that may wait for their check; further ones are dropped.
pub(crate) const QUEUE: usize = 64;

/// Draws samples and queues them.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// True if there is a backend to ask. A set is what the filter was built from, so checks would prove nothing.
    backed: bool,
    /// Share of the absences that are drawn, as bits, because it is read at each absence. Derived from `policy`, which
    /// is the truth.
    probability: AtomicU64,
    policy: Mutex<Policy>,
    /// Time from the start of one check to that of the next.
    pace: Mutex<Duration>,
    samples: mpsc::Sender<Suspect>,
    /// `None` once the checking task has it.
    queue: Mutex<Option<mpsc::Receiver<Suspect>>>,
}

impl Sampler {
    pub(crate) fn new(config: &CanaryConfig, backed: bool) -> Self {
        let (samples, queue) = mpsc::channel(QUEUE);
        let sampler = Self {
            backed,
            probability: AtomicU64::default(),
            policy: Mutex::new(Policy::new(config)),
            pace: Mutex::default(),
            samples,
            queue: Mutex::new(Some(queue)),
        };
        sampler.reconfigure(config);
        sampler
    }

    pub(crate) fn reconfigure(&self, config: &CanaryConfig) {
        self.change(|policy| policy.reconfigure(config));
        *self.pace.lock() = Duration::from_secs(1) / config.max_per_second.max(1);
    }

    /// A new filter is active, of which nothing is known yet.
    pub(crate) fn heat_up(&self) {
        self.change(Policy::heat_up);
    }

    /// A filter from a later scan is active.
    pub(crate) fn warm_up(&self) {
        self.change(Policy::warm_up);
    }

    /// `absences`: how many were answered so far.
    pub(crate) fn tick(&self, absences: u64, now: Moment) {
        self.change(|policy| policy.tick(absences, now));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Policy) -> T) -> T {
        let mut policy = self.policy.lock();
        let changed = change(&mut policy);
        let probability = if self.backed { policy.probability() } else { 0.0 };
        // Relaxed, as where it is read: it publishes no other memory.
        self.probability.store(probability.to_bits(), Relaxed);
        changed
    }

    /// Draws how many keys to skip until the next sampled one: one random number for that many keys. `None`: none is
    /// sampled.
    pub(crate) fn draw_gap(&self) -> Option<u64> {
        let probability = f64::from_bits(self.probability.load(Relaxed));
        // Geometric distribution. `1 - random` keeps the logarithm finite. A share of 1 divides by minus infinity,
        // which is a gap of 0.
        (probability > 0.0).then(|| ((1.0 - rand::random::<f64>()).ln() / (-probability).ln_1p()) as u64)
    }

    /// The queue of samples; `None`: another task has it.
    pub(super) fn take_queue(&self) -> Option<mpsc::Receiver<Suspect>> {
        self.queue.lock().take()
    }

    /// Time from the start of one check to that of the next.
    pub(super) fn pace(&self) -> Duration {
        *self.pace.lock()
    }

    /// Returns true if a sample may be checked now.
    pub(super) fn admits(&self, sample: &Suspect) -> bool {
        self.change(|policy| policy.admits(sample.hash, Moment::now()))
    }

    /// A sample was checked; `clean`: the backend has no row of it.
    pub(super) fn checked(&self, sample: &Suspect, clean: bool) {
        self.change(|policy| policy.checked(sample.hash, clean, Moment::now()));
    }

    /// Returns true if there is room for one more sample.
    pub(super) fn has_room(&self) -> bool {
        self.samples.capacity() > 0
    }

    /// Queues a drawn absence for its check.
    pub(crate) fn offer(&self, drawn: Suspect) {
        // A full queue means more samples than checks are allowed.
        let _ = self.samples.try_send(drawn);
    }

    /// Draws whether an absence is checked.
    pub(super) fn draws(&self) -> bool {
        let probability = f64::from_bits(self.probability.load(Relaxed));
        // The random number first: most absences are not drawn.
        probability > 0.0 && (probability >= 1.0 || rand::random::<f64>() < probability) && self.samples.capacity() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_samples_as_many_keys_as_single_lookups() {
        let gaps = |sample_rate| {
            let sampler = Sampler::new(&CanaryConfig { sample_rate, ..CanaryConfig::default() }, true);
            sampler.probability.store(f64::to_bits(sample_rate), Relaxed);
            (0..100_000).map(|_| sampler.draw_gap()).collect::<Option<Vec<u64>>>()
        };
        assert_eq!(gaps(0.0), None);
        assert_eq!(gaps(1.0).unwrap().iter().max(), Some(&0));
        for rate in [0.5, 0.01, 0.001] {
            let mean = gaps(rate).unwrap().iter().sum::<u64>() as f64 / 100_000.0;
            // Ten standard deviations.
            assert!((mean - (1.0 - rate) / rate).abs() < 10.0 / rate / 100_000f64.sqrt(), "{rate}: {mean}");
        }
    }
}
