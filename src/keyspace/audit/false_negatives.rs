//! Rows that the filter called absent. Whether the filter should have contained them is decided in the background, once
//! the delta log has been read to its end and a poll is complete.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::evidence::{Evidence, EvidenceGatherer};
use super::proof_end::ProofEnd;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::key::{Key, KeyHash};
use crate::keyspace::outcome::Probe;
use crate::keyspace::probe::Prober;
use crate::keyspace::rebuild_signal::RebuildSignal;
use crate::keyspace::stats::FilterStats;
use crate::labels::{CanaryResult, FoundBy};

/// Rows that may wait; further ones are dropped, and the next lookup finds them again.
const QUEUE: usize = 256;
/// Pause between two rounds: each asks for a poll, and a steady stream of rows must not cause polls without pause.
const PAUSE: Duration = Duration::from_secs(1);

const MISSED: &str = "a row was found that the filter had called absent; a rebuild fixes the filter";
const PROOF_FAILED: &str = "the proof failed: the backend has a row that the filter called absent. Does the source \
    list every key that the backend has? The next rebuild starts a new proof";

/// A row that exists, and the filter's earlier answer.
#[derive(Debug)]
pub(crate) struct Suspect {
    pub(crate) key: Key,
    pub(crate) hash: KeyHash,
    pub(crate) probe: Probe,
}

/// Classifies rows that the filter lacked.
pub(crate) struct FalseNegatives {
    prober: Arc<Prober>,
    stats: Arc<FilterStats>,
    evidence: EvidenceGatherer,
    rebuild: Arc<RebuildSignal>,
    proof_end: Arc<ProofEnd>,
    suspects: mpsc::Sender<Suspect>,
    /// `None` once the classifying task has it.
    queue: Mutex<Option<mpsc::Receiver<Suspect>>>,
}

impl FalseNegatives {
    pub(crate) fn new(
        prober: Arc<Prober>,
        stats: Arc<FilterStats>,
        evidence: EvidenceGatherer,
        rebuild: Arc<RebuildSignal>,
        proof_end: Arc<ProofEnd>,
    ) -> Self {
        let (suspects, queue) = mpsc::channel(QUEUE);
        Self { prober, stats, evidence, rebuild, proof_end, suspects, queue: Mutex::new(Some(queue)) }
    }

    /// A lookup found a row that the filter had called absent.
    pub(crate) fn suspect(&self, key: &Key, hash: KeyHash, probe: Probe) {
        // Its announce, or a scan, may have come between probe and read: then the filter contains it now and was not
        // wrong.
        if self.prober.holds(hash) {
            return;
        }
        // Before the send: the task that classifies it also ends the proof's wait.
        self.prober.freshness.enforcement().suspect_found();
        if self.suspects.try_send(Suspect { key: key.clone(), hash, probe }).is_err() {
            self.proof_end.suspect_classified();
        }
    }

    /// Classifies the rows that lookups found, all that wait at once. Runs until dropped; only the first call does
    /// anything.
    pub(crate) async fn run(&self) {
        let Some(mut queue) = self.queue.lock().take() else { return };
        let mut rows = Vec::new();
        while queue.recv_many(&mut rows, QUEUE).await > 0 {
            let evidence = self.evidence.gather(Moment::now()).await;
            for row in rows.drain(..) {
                self.classify(FoundBy::Lookup, &row, evidence);
                self.proof_end.suspect_classified();
            }
            sleep(PAUSE).await;
        }
    }

    /// The canary found a row that the filter had called absent, and waits for the verdict.
    pub(super) async fn classify_now(&self, row: &Suspect) -> CanaryResult {
        // Another instance may have announced it a moment ago, or it may be younger than the last poll.
        let evidence = self.evidence.gather(Moment::now()).await;
        self.classify(FoundBy::Canary, row, evidence)
    }

    /// The row exists, and a client received 404 or would have: that counts, also while polls fail.
    fn classify(&self, found_by: FoundBy, row: &Suspect, evidence: Evidence) -> CanaryResult {
        // Hashed now: the secret may have changed since the lookup.
        let hash = self.prober.identity.hash(&row.key);
        if self.prober.holds(hash) {
            return CanaryResult::Late;
        }
        self.prober.insert(hash);
        // Another instance may have announced it a moment ago: an outage of Redis must not look like a wrong filter.
        if !evidence.log_read {
            return CanaryResult::Error;
        }
        // The log has been read since the row was found, so it holds the row's announce, or its loss is known. The scan
        // that mends the loss finds the row.
        if self.prober.freshness.may_lack_announces() {
            self.stats.record_explained_negative();
            return CanaryResult::Explained;
        }
        self.stats.record_false_negative(found_by, row.probe, row.hash, &row.key);
        let freshness = &self.prober.freshness;
        // Excused if polls, on which the promise depends, would have brought the row; failing polls end the trust by
        // themselves.
        let excused = !evidence.polled && freshness.promise().freshness == Freshness::Polled;
        // Any row that an enforcing keyspace would have answered 404 fails a proof, whether a lookup or the canary
        // finds it.
        let proving = !excused && freshness.enforcement().fail_proof();
        // A revoked or held keyspace that finds another such row needs no further scan than the one in progress.
        // Without this check, rows younger than each scan would cause scans without end.
        if proving && freshness.complete().is_none() && !freshness.is_broken_by(found_by) {
            return CanaryResult::FalseNegative;
        }
        if proving || !excused && freshness.is_broken_by(found_by) {
            let keyspace = &self.prober.identity.name;
            tracing::error!(keyspace, proving, "false negative: the backend has a row that the filter did not contain");
            freshness.revoke_and_hold(Moment::now(), if proving { PROOF_FAILED } else { MISSED });
            self.rebuild.request();
        }
        CanaryResult::FalseNegative
    }
}
