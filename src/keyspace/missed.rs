//! Rows that the filter has called absent: whether it should have known them is judged once the log has been read to its end and a poll is complete,
//! beside the request that found them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::Keyspace;
use super::outcome::Probe;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::key::{Key, KeyHash};
use crate::labels::{CanaryResult, FoundBy, MismatchKind};

/// Rows that may wait to be judged. Of more none is taken: whoever asks for them finds them again.
const QUEUE: usize = 256;
/// Between two rounds of judging: each asks for a poll, and what is found all the time must not make polls go on all the time.
const PACE: Duration = Duration::from_secs(1);

/// Why the keyspace stops rejecting.
const MISSED: &str = "a row was found that the filter had called absent; a rebuild mends it";
const FAILED: &str = "the proof failed: the backend has a row that the filter called absent. Does the source list every key that the backend has? The next rebuild starts a new proof";

/// A row that exists, and what the filter had said of it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) hash: KeyHash,
    pub(super) probe: Probe,
}

/// What has been asked whether it knows of a row that was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct LookedAgain {
    /// The log was read to its end, or there is none.
    read: bool,
    /// A poll was complete, or nothing is polled.
    polled: bool,
}

/// Rows found by lookups, until they are judged.
#[derive(Debug)]
pub(super) struct FoundRows {
    rows: mpsc::Sender<Found>,
    /// Until the task that judges has taken it.
    waiting: Mutex<Option<mpsc::Receiver<Found>>>,
}

impl Default for FoundRows {
    fn default() -> Self {
        let (rows, waiting) = mpsc::channel(QUEUE);
        Self { rows, waiting: Mutex::new(Some(waiting)) }
    }
}

impl Keyspace {
    /// A lookup found a row of which the filter had said absent.
    pub(super) fn found_although_absent(&self, key: &Key, hash: KeyHash, probe: Probe) {
        // Its announce, or a scan, may have come between probe and read: then the filter knows it by now and was never wrong.
        if self.is_in_filter(hash) {
            return;
        }
        // Before it is sent: who judges it also settles it.
        self.standing.enforcing.proof.suspect();
        if self.found_rows.rows.try_send(Found { key: key.clone(), hash, probe }).is_err() {
            self.row_judged();
        }
    }

    /// Judges the rows that lookups found, all that wait at once. Runs until dropped; only the first call does anything.
    pub async fn judge_found_rows(self: Arc<Self>) {
        let Some(mut waiting) = self.found_rows.waiting.lock().take() else { return };
        let mut rows = Vec::new();
        while waiting.recv_many(&mut rows, QUEUE).await > 0 {
            let looked = self.look_again(Moment::now()).await;
            for row in rows.drain(..) {
                self.judge(FoundBy::Lookup, &row, looked);
                self.row_judged();
            }
            sleep(PACE).await;
        }
    }

    /// Reads the log to its end and polls once, both from `since` on. A poll that is under way ends by itself, and so does the next.
    pub(super) async fn look_again(&self, since: Moment) -> LookedAgain {
        let longest = self.standing.max_staleness() * 2;
        let (read, polled) = tokio::join!(self.catch_up(since), timeout(longest, self.poll_after(since)));
        LookedAgain { read, polled: polled.unwrap_or(false) }
    }

    /// The row is there, and whoever asked the filter was told otherwise: that counts, also while polls fail.
    pub(super) fn judge(&self, found_by: FoundBy, row: &Found, looked: LookedAgain) -> CanaryResult {
        if self.is_in_filter(row.hash) {
            return CanaryResult::Late;
        }
        self.active.insert(row.hash.get());
        // It may have been announced elsewhere a moment ago, and nobody can know: an outage of Redis must not look like a wrong filter.
        if !looked.read {
            return CanaryResult::Error;
        }
        self.metrics.false_negative();
        self.observed.false_negative();
        self.note_mismatch(MismatchKind::FalseNegative, found_by, row.probe, row.hash, &row.key);
        // What the polls that a promise rests on would have told of is no breach; that they fail ends the rejecting by itself.
        let excused = !looked.polled && self.standing.freshness() == Freshness::Polled;
        // What clients of an enforcing keyspace would have been told breaks a proof, whoever finds it.
        let proving = !excused && self.standing.enforcing.proof.fail();
        // One that a broken or held keyspace finds again makes the build under way no less useful: without this, rows that are younger than each scan would have
        // the source scanned without end.
        if proving && self.standing.whole().is_none() && !self.standing.is_broken_by(found_by) {
            return CanaryResult::FalseNegative;
        }
        if proving || !excused && self.standing.is_broken_by(found_by) {
            tracing::error!(keyspace = %self.name, proving, "a row exists that the filter had called absent: the keyspace stops rejecting until a later scan, and for a while");
            self.standing.missed_row(Moment::now(), if proving { FAILED } else { MISSED });
            self.hot.drop_all_absences();
            self.rebuild_wanted.notify_one();
        }
        CanaryResult::FalseNegative
    }

    fn is_in_filter(&self, hash: KeyHash) -> bool {
        self.active.probe(hash.get()).is_none_or(|(maybe, _)| maybe)
    }
}
