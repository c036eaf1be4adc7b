//! Proof before enforcing: a keyspace without a proof first compares absences of its filter with the backend.
//!
//! A source that lists too few keys produces a filter that calls rows absent, and nothing in the filter shows it. So
//! the filter answers no lookup until `canary.proof` absences were compared and none of them was a row. Until then
//! lookups go to the backend, and its answers are the comparisons.
//!
//! A repeated key proves little, but a flood of one key must not delay the proof for ever: repetitions count a tenth.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::Serialize;

use crate::key::KeyHash;

/// Repetitions that count as one key.
const REPETITIONS: u32 = 10;

/// Progress of a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProofStatus {
    /// Absences of the filter that the backend has confirmed.
    pub compared: u32,
    /// Absences to compare: `canary.proof`.
    pub needed: u32,
}

/// The proof of one keyspace.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    /// True if a proof is required and not finished. Derived from `inner`, because it is read at each answer of the
    /// backend.
    open: AtomicBool,
    inner: Mutex<ProofState>,
}

#[derive(Debug, Default)]
struct ProofState {
    /// 0: no proof is required.
    needed: u32,
    /// True if absences were compared, by this process or by the one whose snapshot it started from.
    proven: bool,
    compared: HashSet<KeyHash>,
    repeated: u32,
    /// Rows that lookups have found and that are not classified yet.
    waiting: u32,
}

impl Proof {
    pub(crate) fn new(needed: u32) -> Self {
        Self { open: AtomicBool::new(needed > 0), inner: Mutex::new(ProofState { needed, ..ProofState::default() }) }
    }

    /// Returns true if absences still have to be compared.
    pub(crate) fn is_open(&self) -> bool {
        // Relaxed: it publishes no other memory, and a comparison too early or too late does no harm.
        self.open.load(Relaxed)
    }

    /// For a snapshot. A proof that is not required was not made.
    pub(crate) fn is_proven(&self) -> bool {
        self.inner.lock().proven
    }

    pub(crate) fn status(&self) -> Option<ProofStatus> {
        let inner = self.inner.lock();
        inner.is_open().then(|| ProofStatus { compared: inner.count(), needed: inner.needed })
    }

    /// Sets how many comparisons are required. Returns true if the proof is open then.
    pub(crate) fn require(&self, needed: u32) -> bool {
        self.change(|inner| inner.needed = needed)
    }

    /// A snapshot's keyspace had finished its proof.
    pub(crate) fn inherit(&self) -> bool {
        self.change(|inner| inner.proven = true)
    }

    /// The backend has no row of a key that the filter called absent.
    pub(crate) fn confirm(&self, hash: KeyHash) -> bool {
        self.change(|inner| {
            // Bounded, also while a found row is not classified.
            let is_new = (inner.compared.len() as u64) < u64::from(inner.needed) && inner.compared.insert(hash);
            if !is_new {
                inner.repeated = inner.repeated.saturating_add(1);
            }
        })
    }

    /// A row was found that the filter had called absent: the proof can't finish before it is classified.
    pub(crate) fn suspect(&self) {
        self.change(|inner| inner.waiting += 1);
    }

    /// One such row is classified.
    pub(crate) fn suspect_classified(&self) -> bool {
        self.change(|inner| inner.waiting = inner.waiting.saturating_sub(1))
    }

    /// The filter was wrong: the next one starts a new proof. Returns true if the proof was open.
    pub(crate) fn fail(&self) -> bool {
        let was_open = self.is_open();
        self.change(|inner| {
            inner.compared.clear();
            inner.repeated = 0;
        });
        was_open
    }

    fn change(&self, change: impl FnOnce(&mut ProofState)) -> bool {
        let mut inner = self.inner.lock();
        change(&mut inner);
        if inner.needed > 0 && inner.waiting == 0 && inner.count() == inner.needed {
            inner.proven = true;
        }
        let open = inner.is_open();
        if !open {
            inner.compared = HashSet::new();
        }
        self.open.store(open, Relaxed);
        open
    }
}

impl ProofState {
    const fn is_open(&self) -> bool {
        self.needed > 0 && !self.proven
    }

    fn count(&self) -> u32 {
        let distinct = u32::try_from(self.compared.len()).unwrap_or(u32::MAX);
        distinct.saturating_add(self.repeated / REPETITIONS).min(self.needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u32) -> KeyHash {
        KeyHash::from_bits(xxhash_rust::xxh3::xxh3_128(&n.to_be_bytes()))
    }

    fn compared(proof: &Proof) -> Option<u32> {
        proof.status().map(|status| status.compared)
    }

    #[test]
    fn a_proof_ends_with_as_many_keys_as_it_needs() {
        let proof = Proof::new(300);
        assert!((0..299).all(|n| proof.confirm(hash(n))));
        assert_eq!((compared(&proof), proof.is_proven()), (Some(299), false));
        assert!(!proof.confirm(hash(299)));
        assert!(proof.is_proven() && !proof.is_open());
        assert!(!proof.require(1000), "what is proven stays proven");
    }

    #[test]
    fn one_key_alone_proves_after_ten_times_as_many_answers() {
        let proof = Proof::new(300);
        let answers = (1..).find(|_| !proof.confirm(hash(1))).unwrap();
        assert_eq!(answers, 1 + 299 * 10);
    }

    #[test]
    fn no_proof_finishes_while_a_found_row_is_not_classified() {
        let proof = Proof::new(2);
        proof.suspect();
        assert!((0..10).all(|n| proof.confirm(hash(n))));
        assert!(!proof.suspect_classified());
        assert!(proof.is_proven());
    }

    #[test]
    fn a_proof_that_fails_starts_anew() {
        let proof = Proof::new(3);
        assert!((0..2).all(|n| proof.confirm(hash(n))));
        assert!(proof.fail());
        assert_eq!(compared(&proof), Some(0));
        assert!(!(0..3).all(|n| proof.confirm(hash(n))));
        assert!(!proof.fail() && proof.is_proven(), "it was made before");
    }

    #[test]
    fn a_proof_that_is_not_required_is_not_made() {
        let proof = Proof::new(3);
        assert!(!proof.require(0));
        assert!(!proof.is_proven() && !proof.is_open());
        assert!(proof.require(3));
        assert!(!proof.inherit());
    }
}
