//! One key, asked of the filter only.

use super::standing::Standing;
use super::{Keyspace, Probe};
use crate::clock::Moment;
use crate::key::{Key, KeyHash};
use crate::labels::{State, Verdict};

/// The filter and the right to believe it, as they were at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Glance {
    pub(super) probe: Probe,
    /// The filter is there and as fresh as promised, whatever `enforcement` says.
    pub(super) trusted: bool,
    pub(super) at: Moment,
}

impl Keyspace {
    /// Asks the filter only.
    pub fn check(&self, key: &Key) -> Probe {
        let (hash, Glance { probe, trusted, .. }) = self.hash_and_glance(key);
        self.count_probe(hash, probe);
        if probe.effective() == Verdict::Absent {
            self.sample(hash, probe, || key.clone());
        } else if probe.verdict == Verdict::Absent && trusted {
            self.sample_for_proof(key, hash, probe);
        }
        probe
    }

    /// Asks the filter without counting the answer.
    #[must_use]
    pub fn peek(&self, key: &Key) -> Probe {
        self.hash_and_glance(key).1.probe
    }

    /// Steps 2 and 3 of a lookup: hashes once and asks the filter.
    pub(super) fn hash_and_glance(&self, key: &Key) -> (KeyHash, Glance) {
        loop {
            let secret = self.secret.load();
            let hash = secret.hash(key);
            let mut glance = self.glance(hash, Moment::now());
            // The source may list the database's lower case, and the database fold this key otherwise than we do.
            if glance.probe.verdict == Verdict::Absent
                && let Some(other) = key.folded_apart()
            {
                glance.probe.verdict = self.glance(secret.hash(&other), glance.at).probe.verdict;
            }
            // A thread may have been held up meanwhile until there was another secret, and a filter under that: it finds no key by this hash.
            if glance.probe.effective() != Verdict::Absent || self.secret.is_still(&secret) {
                return (hash, glance);
            }
        }
    }

    pub(super) fn count_probe(&self, hash: KeyHash, probe: Probe) {
        if probe.generation > 0 {
            self.metrics.check(probe.verdict);
            if probe.verdict == Verdict::Absent {
                self.observed.true_negative();
                self.growth.true_negative(hash);
            }
        }
    }

    pub(super) fn glance(&self, hash: KeyHash, now: Moment) -> Glance {
        // In this order: a swap in between can only make the answer stricter.
        let until = self.standing.trusted_until();
        let (verdict, generation) = match self.active.probe(hash.get()) {
            Some((false, generation)) => (Verdict::Absent, generation),
            Some((true, generation)) => (Verdict::Maybe, generation),
            None => (Verdict::Maybe, 0),
        };
        let trusted = generation > 0 && now < until;
        let in_force = self.standing.enforcing.in_force();
        let state = Standing::state(in_force, generation > 0, trusted);
        Glance {
            probe: Probe { verdict, state, enforced: state == State::Enforcing && in_force.covers(hash), generation },
            trusted,
            at: now,
        }
    }
}
