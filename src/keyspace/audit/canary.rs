//! Canary: a sample of the filter's absences is looked up at the backend, beside the requests that got them.
//!
//! While a keyspace enforces, the filter answers and the backend is not asked: a writer that does not announce, or a
//! scan that misses a row, would show in nothing but complaints.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::false_negatives::{FalseNegatives, Suspect};
use super::proof_end::ProofEnd;
use super::sampler::Sampler;
use crate::key::{Key, KeyHash};
use crate::keyspace::backend::{BackendClient, SpareCall};
use crate::keyspace::outcome::Probe;
use crate::labels::CanaryResult;
use crate::metrics::KeyspaceMetrics;

pub(crate) struct Canary {
    pub(crate) sampler: Arc<Sampler>,
    pub(crate) proof_end: Arc<ProofEnd>,
    pub(crate) backend: Arc<BackendClient>,
    pub(crate) false_negatives: Arc<FalseNegatives>,
    pub(crate) metrics: Arc<KeyspaceMetrics>,
}

impl Canary {
    fn has_open_proof(&self) -> bool {
        self.proof_end.freshness.enforcement().has_open_proof()
    }

    /// The filter has answered that a key is absent. Costs one random number, and now and then a copy of the key.
    pub(crate) fn sample(&self, hash: KeyHash, probe: Probe, key: impl FnOnce() -> Key) {
        if self.sampler.draws() {
            self.sampler.offer(Suspect { key: key(), hash, probe });
        }
    }

    /// The filter was only asked, and would have answered that a key is absent: such comparisons prove a filter with
    /// few lookups.
    pub(crate) fn sample_for_proof(&self, key: &Key, hash: KeyHash, probe: Probe) {
        if self.has_open_proof() && self.sampler.has_room() {
            self.sampler.offer(Suspect { key: key.clone(), hash, probe });
        }
    }

    /// Number of keys of a batch that are passed over before the next one is sampled; a proof takes all that it gets.
    /// `None`: none is.
    pub(crate) fn draw_gap(&self) -> Option<u64> {
        self.sampler.draw_gap().or_else(|| self.has_open_proof().then_some(0))
    }

    /// A sampled key of a batch turned out to be absent.
    pub(crate) fn offer(&self, sample: Suspect) {
        self.sampler.offer(sample);
    }

    /// The backend has confirmed an absence of a trusted filter.
    pub(crate) fn confirm_absence(&self, hash: KeyHash) {
        self.proof_end.confirm_absence(hash);
    }

    /// Checks samples, one after another and no faster than the pace. Runs until dropped; only the first call does
    /// anything.
    pub(crate) async fn run(&self) {
        let Some(mut queue) = self.sampler.take_queue() else { return };
        while let Some(sample) = queue.recv().await {
            let proves = self.has_open_proof();
            if !self.sampler.admits(&sample) && !proves {
                continue;
            }
            let next = Instant::now() + self.sampler.pace();
            // A sample gives way to lookups. If no lookup asks the backend, a sample finds out that it has recovered.
            if let Some(call) = self.backend.spare_call() {
                let result = self.check(&sample, call).await;
                self.metrics.canary_check(result);
                let clean = result == CanaryResult::Absent;
                self.sampler.checked(&sample, clean);
                if clean {
                    self.confirm_absence(sample.hash);
                }
            }
            sleep_until(next).await;
        }
    }

    async fn check(&self, sample: &Suspect, call: SpareCall<'_>) -> CanaryResult {
        match call.fetch(&sample.key).await {
            Ok(None) => CanaryResult::Absent,
            Ok(Some(_)) => self.false_negatives.classify_now(sample).await,
            Err(_) => CanaryResult::Error,
        }
    }
}
