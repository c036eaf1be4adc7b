//! What the end of a proof changes beside the enforcement.

use std::sync::Arc;

use super::sampler::Sampler;
use crate::key::KeyHash;
use crate::keyspace::freshness::FreshnessTracker;
use crate::keyspace::identity::Identity;
use crate::keyspace::snapshot_file::SnapshotFile;

pub(crate) struct ProofEnd {
    pub(crate) identity: Arc<Identity>,
    pub(crate) freshness: Arc<FreshnessTracker>,
    pub(crate) sampler: Arc<Sampler>,
    pub(crate) snapshot: Option<Arc<SnapshotFile>>,
}

impl ProofEnd {
    /// The backend has confirmed an absence of a trusted filter.
    pub(super) fn confirm_absence(&self, hash: KeyHash) {
        if self.freshness.enforcement().confirm_absence(hash) {
            self.finished();
        }
    }

    /// A row that a lookup found is classified.
    pub(super) fn suspect_classified(&self) {
        if self.freshness.enforcement().suspect_classified() {
            self.finished();
        }
    }

    fn finished(&self) {
        tracing::info!(keyspace = %self.identity.name, "proof finished: the backend confirmed the filter's absences");
        self.sampler.heat_up();
        self.freshness.observe_state();
        // The next process need not repeat it.
        if let Some(snapshot) = &self.snapshot {
            snapshot.want();
        }
    }
}
