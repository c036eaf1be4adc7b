//! What answers of the backend say about the filter, and about the backend itself.
//!
//! Uses caches only to void absences, and knows no clients: lookups report what they found and continue.

mod canary;
mod evidence;
mod false_negatives;
mod proof_end;
mod sampler;
mod storm;
mod storms;

use std::sync::Arc;

pub(crate) use self::canary::Canary;
pub(crate) use self::evidence::EvidenceGatherer;
pub(crate) use self::false_negatives::{FalseNegatives, Suspect};
pub(crate) use self::proof_end::ProofEnd;
pub(crate) use self::sampler::{QUEUE, Sampler};
pub(crate) use self::storm::Storm;
pub(crate) use self::storms::Storms;
use super::backend::Verified;
use super::build_state::BuildState;
use super::outcome::Probe;
use super::probe::Prober;
use super::request::LookupRequest;
use super::stats::FilterStats;
use super::write::CommitWindows;
use crate::backend::{BackendError, Membership};
use crate::clock::Moment;
use crate::key::{Key, KeyHash};
use crate::labels::Verdict;

/// The audit of one keyspace's filter and backend.
pub(crate) struct Audit {
    pub(crate) prober: Arc<Prober>,
    pub(crate) stats: Arc<FilterStats>,
    pub(crate) builds: Arc<BuildState>,
    pub(crate) windows: Arc<CommitWindows>,
    pub(crate) canary: Arc<Canary>,
    pub(crate) false_negatives: Arc<FalseNegatives>,
    pub(crate) storms: Arc<Storms>,
}

impl Audit {
    /// The filter has answered a lookup or a check with absent. Costs one random number, and now and then a copy of the
    /// key.
    pub(crate) fn sample(&self, hash: KeyHash, probe: Probe, key: impl FnOnce() -> Key) {
        self.canary.sample(hash, probe, key);
    }

    /// The backend has answered a lookup. `was_cached`: the shared cache held a value of the row, expired or not.
    pub(crate) fn record_answer(&self, request: &LookupRequest, was_cached: bool, found: bool) {
        let now = Moment::now();
        let (hash, probe) = (request.hash, request.probed.probe);
        if found {
            self.builds.confirmed.found(hash, &request.backend_key(), now);
        }
        match (probe.generation, probe.verdict, found) {
            (0, ..) => {}
            (_, Verdict::Absent, false) if request.probed.trusted => self.canary.confirm_absence(hash),
            (_, Verdict::Absent, false) => {}
            (_, Verdict::Maybe, true) => self.storms.found(hash, now),
            (_, Verdict::Maybe, false) if self.is_explained(hash, now) => {}
            (_, Verdict::Maybe, false) => {
                // A refresh asked by itself, and for a row that was there: the filter was not wrong.
                if !request.refresh {
                    self.stats.record_false_positive(probe, hash, &request.key);
                }
                self.storms.false_positive(hash, &request.key, was_cached, now);
            }
            // Its announce has not been read yet, as the caller knew: the filter could not have it.
            (_, Verdict::Absent, true) if request.options.unapplied_version => {}
            (_, Verdict::Absent, true) => self.false_negatives.suspect(&request.key, hash, probe),
        }
    }

    /// A set of keys in memory has answered a lookup.
    pub(crate) fn record_membership(&self, request: &LookupRequest, membership: Membership) {
        let (hash, probe) = (request.hash, request.probed.probe);
        match (probe.verdict, membership) {
            _ if probe.generation == 0 => {}
            (Verdict::Maybe, Membership::Stranger) if !self.is_explained(hash, Moment::now()) => {
                self.stats.record_false_positive(probe, hash, &request.key);
            }
            // An announce alone proves no row: the set may still hold one that the filter has been built without.
            (Verdict::Absent, Membership::Scanned) => self.false_negatives.suspect(&request.key, hash, probe),
            _ => {}
        }
    }

    /// Returns true if the filter rightly holds an absent key: its row was deleted, or is still to come.
    fn is_explained(&self, hash: KeyHash, now: Moment) -> bool {
        self.windows.recent.contains(hash, now) || self.builds.deletes.contains(hash)
    }

    /// Compares absences of these keys with the backend: for a keyspace that has no clients yet and knows keys without
    /// rows.
    ///
    /// # Errors
    /// [`BackendError`] if the backend gives no answer.
    pub(crate) async fn prove_by(&self, keys: Vec<Key>) -> Result<(), BackendError> {
        let verified = self.windows.backend.verify(&keys).await?;
        for (key, verified) in keys.iter().zip(verified) {
            let (hash, probed) = self.prober.probe(key);
            match (probed.probe.verdict, verified) {
                (Verdict::Absent, Verified::Row) => self.false_negatives.suspect(key, hash, probed.probe),
                (Verdict::Absent, Verified::NoRow) if probed.trusted => self.canary.confirm_absence(hash),
                _ => {}
            }
        }
        Ok(())
    }
}
