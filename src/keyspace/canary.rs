//! Canary: a sample of the filter's absences is looked for at the backend, beside the requests that got them.
//!
//! While a keyspace enforces nobody else would notice that its filter lacks a row: the filter answers, and the backend is not asked. So a writer that
//! does not announce, or a scan that passed a row by, would stay unseen until somebody complains. Which absences are checked says [`policy`].

mod policy;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};

use self::policy::Policy;
use super::Keyspace;
use super::call::{Trial, is_no_answer};
use super::missed::Found;
use super::outcome::Probe;
use crate::backend::FetchContext;
use crate::clock::Moment;
use crate::config::CanaryConfig;
use crate::key::{Key, KeyHash};
use crate::labels::{CanaryResult, FoundBy};

/// Samples that may wait for their check; further ones are not taken.
pub(super) const QUEUE: usize = 64;

/// Draws samples and keeps those that wait.
#[derive(Debug)]
pub(super) struct Canary {
    /// There is a backend to ask; a set is what the filter was built of.
    backed: bool,
    /// Share of the absences that are drawn, as bits: read at each of them. Derived from `policy`, which alone is the truth.
    probability: AtomicU64,
    policy: Mutex<Policy>,
    /// From the begin of one check to that of the next.
    pace: Mutex<Duration>,
    samples: mpsc::Sender<Found>,
    /// Until the task that checks has taken it.
    waiting: Mutex<Option<mpsc::Receiver<Found>>>,
}

impl Canary {
    pub(super) fn new(config: &CanaryConfig, backed: bool) -> Self {
        let (samples, waiting) = mpsc::channel(QUEUE);
        let canary = Self {
            backed,
            probability: AtomicU64::default(),
            policy: Mutex::new(Policy::new(config)),
            pace: Mutex::default(),
            samples,
            waiting: Mutex::new(Some(waiting)),
        };
        canary.reconfigure(config);
        canary
    }

    pub(super) fn reconfigure(&self, config: &CanaryConfig) {
        self.change(|policy| policy.reconfigure(config));
        *self.pace.lock() = Duration::from_secs(1) / config.max_per_second.max(1);
    }

    /// Nothing is known yet of the filter that answers from now on.
    pub(super) fn heat_up(&self) {
        self.change(Policy::heat_up);
    }

    /// A later scan is in force.
    pub(super) fn warm_up(&self) {
        self.change(Policy::warm_up);
    }

    /// So many absences were answered until now.
    pub(super) fn tick(&self, absences: u64, now: Moment) {
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
    pub(super) fn draw_gap(&self) -> Option<u64> {
        let probability = f64::from_bits(self.probability.load(Relaxed));
        // By the geometric distribution: in `1 - random` so that the logarithm is finite. A share of 1 divides by minus infinity, which is a gap of 0.
        (probability > 0.0).then(|| ((1.0 - rand::random::<f64>()).ln() / (-probability).ln_1p()) as u64)
    }

    /// Has an absence checked that was drawn.
    pub(super) fn offer(&self, drawn: Found) {
        // Where the queue is full, there are more answers to check than may be.
        let _ = self.samples.try_send(drawn);
    }

    /// Draws whether an absence is checked.
    fn draws(&self) -> bool {
        let probability = f64::from_bits(self.probability.load(Relaxed));
        // The random number first: most absences are not drawn.
        probability > 0.0 && (probability >= 1.0 || rand::random::<f64>() < probability) && self.samples.capacity() > 0
    }
}

impl Keyspace {
    /// The filter has answered that a key is absent. Costs one random number, and now and then a copy of the key.
    pub(super) fn sample(&self, hash: KeyHash, probe: Probe, key: impl FnOnce() -> Key) {
        if self.canary.draws() {
            self.canary.offer(Found { key: key(), hash, probe });
        }
    }

    /// The filter was asked alone, and would have answered that a key is absent: where lookups are few, such comparisons prove it.
    pub(super) fn sample_for_proof(&self, key: &Key, hash: KeyHash, probe: Probe) {
        if self.standing.enforcing.proof.is_open() && self.canary.samples.capacity() > 0 {
            self.canary.offer(Found { key: key.clone(), hash, probe });
        }
    }

    /// Checks samples, one after another and no more than so many a second. Runs until dropped; only the first call does anything.
    pub async fn run_canary(self: Arc<Self>) {
        let Some(mut waiting) = self.canary.waiting.lock().take() else { return };
        while let Some(sample) = waiting.recv().await {
            let proves = self.standing.enforcing.proof.is_open();
            if !self.canary.change(|policy| policy.admits(sample.hash, Moment::now())) && !proves {
                continue;
            }
            let next = Instant::now() + *self.canary.pace.lock();
            // Lookups go first: a sample whose turn comes while the backend is busy, or gives no answer, is not checked. Where no lookup asks the backend it
            // is a sample that finds out that it is back.
            if let Some(turn) = self.gate.enter_if_free()
                && let Ok(trial) = self.breaker.try_call()
            {
                let result = self.check_at_backend(&sample, turn, trial).await;
                self.metrics.canary_check(result);
                let clean = result == CanaryResult::Absent;
                self.canary.change(|policy| policy.checked(sample.hash, clean, Moment::now()));
                if clean {
                    self.confirm_absence(sample.hash);
                }
            }
            sleep_until(next).await;
        }
    }

    async fn check_at_backend(&self, sample: &Found, turn: SemaphorePermit<'_>, trial: Trial<'_>) -> CanaryResult {
        let deadline = Instant::now() + self.deadline;
        let context = FetchContext { trace: None, deadline: Some(deadline), ..FetchContext::default() };
        let fetched = timeout_at(deadline, self.fetch_one(&sample.key, &context)).await;
        drop(turn);
        if fetched.as_ref().is_ok_and(|row| !row.as_ref().is_err_and(is_no_answer)) {
            trial.answered(&self.name);
        } else {
            trial.failed(&self.name);
        }
        match fetched {
            Ok(Ok(None)) => CanaryResult::Absent,
            Ok(Ok(Some(_))) => {
                // It may have been announced elsewhere a moment ago, or be younger than the last poll.
                let looked = self.look_again(Moment::now()).await;
                self.judge(FoundBy::Canary, sample, looked)
            }
            Ok(Err(error)) => {
                self.trouble.backend_failed(&error);
                CanaryResult::Error
            }
            Err(_) => CanaryResult::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_batch_as_many_keys_are_drawn_as_of_single_ones() {
        let gaps = |sample_rate| {
            let canary = Canary::new(&CanaryConfig { sample_rate, ..CanaryConfig::default() }, true);
            canary.probability.store(f64::to_bits(sample_rate), Relaxed);
            (0..100_000).map(|_| canary.draw_gap()).collect::<Option<Vec<u64>>>()
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
