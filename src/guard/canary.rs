//! Canary: a sample of the filter's absences is looked for at the backend, beside the requests that got them.
//!
//! While a keyspace enforces nobody else would notice that its filter lacks a row: the filter answers, and the backend is not asked. So a writer that
//! does not announce, or a scan that passed a row by, would stay unseen until somebody complains.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{SemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Guard;
use super::call::{Trial, is_no_answer};
use super::missed::Found;
use super::outcome::Probe;
use crate::backend::FetchContext;
use crate::clock::Moment;
use crate::config::CanaryConfig;
use crate::key::{Key, KeyHash};
use crate::words::{CanaryResult, FoundBy};

/// Samples that may wait for their check; further ones are not taken.
const QUEUE: usize = 64;

/// Draws samples and keeps those that wait.
#[derive(Debug)]
pub(super) struct Canary {
    /// There is a backend to ask; a set is what the filter was built of.
    backed: bool,
    /// Share of the absences that are checked, as bits: read at each of them.
    sample_rate: AtomicU64,
    /// From the begin of one check to that of the next.
    pace: Mutex<Duration>,
    samples: mpsc::Sender<Found>,
    /// Until the task that checks has taken it.
    waiting: Mutex<Option<mpsc::Receiver<Found>>>,
}

impl Canary {
    pub(super) fn new(config: &CanaryConfig, backed: bool) -> Self {
        let (samples, waiting) = mpsc::channel(QUEUE);
        let canary =
            Self { backed, sample_rate: AtomicU64::default(), pace: Mutex::default(), samples, waiting: Mutex::new(Some(waiting)) };
        canary.reconfigure(config);
        canary
    }

    pub(super) fn reconfigure(&self, config: &CanaryConfig) {
        let sample_rate = if self.backed { config.sample_rate } else { 0.0 };
        // Relaxed, as where it is read: it publishes nothing else.
        self.sample_rate.store(sample_rate.to_bits(), Relaxed);
        *self.pace.lock() = Duration::from_secs(1) / config.max_per_second.max(1);
    }

    /// Draws how many keys are passed over until the next that would be checked: one random number for as many keys. `None`: none ever is.
    pub(super) fn draw_gap(&self) -> Option<u64> {
        let sample_rate = f64::from_bits(self.sample_rate.load(Relaxed));
        // By the geometric distribution: in `1 - random` so that the logarithm is finite. A rate of 1 divides by minus infinity, which is a gap of 0.
        (sample_rate > 0.0).then(|| ((1.0 - rand::random::<f64>()).ln() / (-sample_rate).ln_1p()) as u64)
    }

    /// Has an absence checked that was drawn.
    pub(super) fn offer(&self, drawn: Found) {
        // Where the queue is full, there are more answers to check than may be.
        let _ = self.samples.try_send(drawn);
    }

    /// Draws whether an absence is checked.
    fn draws(&self) -> bool {
        let sample_rate = f64::from_bits(self.sample_rate.load(Relaxed));
        sample_rate > 0.0 && rand::random::<f64>() < sample_rate
    }
}

impl Guard {
    /// The filter has answered that a key is absent. Costs one random number, and now and then a copy of the key.
    pub(super) fn sample(&self, hash: KeyHash, probe: Probe, key: impl FnOnce() -> Key) {
        if self.canary.draws() {
            self.canary.offer(Found { key: key(), hash, probe });
        }
    }

    /// Checks samples, one after another and no more than so many a second. Runs until dropped; only the first call does anything.
    pub async fn run_canary(self: Arc<Self>) {
        let Some(mut waiting) = self.canary.waiting.lock().take() else { return };
        while let Some(sample) = waiting.recv().await {
            let next = Instant::now() + *self.canary.pace.lock();
            // Lookups go first: a sample whose turn comes while the backend is busy, or gives no answer, is not checked. Where no lookup asks the backend it
            // is a sample that finds out that it is back.
            if let Some(turn) = self.gate.enter_if_free()
                && let Ok(trial) = self.breaker.try_call()
            {
                let result = self.check_at_backend(&sample, turn, trial).await;
                self.metrics.canary_check(result);
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
