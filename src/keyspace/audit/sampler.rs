//! Draws a sample of the filter's absences for the sampler. [`policy`] says how many and which.

mod policy;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use self::policy::Policy;
use super::false_negatives::Suspect;
use crate::clock::Moment;
use crate::config::CanaryConfig;

/// Samples that may wait for their check; further ones are not taken.
pub(crate) const QUEUE: usize = 64;

/// Draws samples and keeps those that wait.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// There is a backend to ask; a set is what the filter was built of.
    backed: bool,
    /// Share of the absences that are drawn, as bits: read at each of them. Derived from `policy`, which alone is the truth.
    probability: AtomicU64,
    policy: Mutex<Policy>,
    /// From the begin of one check to that of the next.
    pace: Mutex<Duration>,
    samples: mpsc::Sender<Suspect>,
    /// Until the task that checks has taken it.
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

    /// Nothing is known yet of the filter that answers from now on.
    pub(crate) fn heat_up(&self) {
        self.change(Policy::heat_up);
    }

    /// A later scan is in force.
    pub(crate) fn warm_up(&self) {
        self.change(Policy::warm_up);
    }

    /// So many absences were answered until now.
    pub(crate) fn tick(&self, absences: u64, now: Moment) {
        self.change(|policy| policy.tick(absences, now));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Policy) -> T) -> T {
        let mut policy = self.policy.lock();
        let changed = change(&mut policy);
        let probability = if self.backed { policy.probability() } else { 0.0 };
        // Relaxed, as where it is read: it publishes nothing else.
        self.probability.store(probability.to_bits(), Relaxed);
        changed
    }

    /// Draws how many keys are passed over until the next that would be checked: one random number for as many keys. `None`: none ever is.
    pub(crate) fn draw_gap(&self) -> Option<u64> {
        let probability = f64::from_bits(self.probability.load(Relaxed));
        // By the geometric distribution: in `1 - random` so that the logarithm is finite. A share of 1 divides by minus infinity, which is a gap of 0.
        (probability > 0.0).then(|| ((1.0 - rand::random::<f64>()).ln() / (-probability).ln_1p()) as u64)
    }

    /// The waiting samples; `None`: another task has taken them.
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

    /// A sample was checked; `clean`: the backend has no row of it either.
    pub(super) fn checked(&self, sample: &Suspect, clean: bool) {
        self.change(|policy| policy.checked(sample.hash, clean, Moment::now()));
    }

    /// Returns true if there is room for one more sample.
    pub(super) fn has_room(&self) -> bool {
        self.samples.capacity() > 0
    }

    /// Has an absence checked that was drawn.
    pub(crate) fn offer(&self, drawn: Suspect) {
        // Where the queue is full, there are more answers to check than may be.
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
    fn of_a_batch_as_many_keys_are_drawn_as_of_single_ones() {
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
