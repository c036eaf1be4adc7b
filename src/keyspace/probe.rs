//! The filter's answer for one key.

use std::sync::Arc;

use super::freshness::FreshnessTracker;
use super::identity::Identity;
use super::outcome::Probe;
use crate::clock::Moment;
use crate::filter::{Active, Generation};
use crate::key::{Key, KeyHash};
use crate::labels::{State, Verdict};

/// The filter and the right to believe it, as they were at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeResult {
    pub(crate) probe: Probe,
    /// There is a filter and it is as fresh as promised; independent of `enforcement`.
    pub(crate) trusted: bool,
    pub(crate) at: Moment,
}

/// Asks the active filter.
pub(crate) struct Prober {
    pub(crate) identity: Arc<Identity>,
    pub(crate) active: Arc<Active>,
    pub(crate) freshness: Arc<FreshnessTracker>,
}

impl Prober {
    /// Steps 2 and 3 of a lookup: hashes the key once and asks the filter.
    pub(crate) fn probe(&self, key: &Key) -> (KeyHash, ProbeResult) {
        loop {
            let secret = self.identity.secret.load();
            let hash = secret.hash(key);
            let mut result = self.probe_hash(hash, Moment::now());
            // The source may list the database's lower case, and the database fold this key otherwise than `KeyForm`
            // does.
            if result.probe.verdict == Verdict::Absent
                && let Some(other) = key.folded_apart()
            {
                result.probe.verdict = self.probe_hash(secret.hash(&other), result.at).probe.verdict;
            }
            // If the secret changed meanwhile, a filter under the new one finds no key by this hash.
            if result.probe.effective() != Verdict::Absent || self.identity.secret.is_still(&secret) {
                return (hash, result);
            }
        }
    }

    /// Asks the filter about a hash, as of `now`.
    pub(crate) fn probe_hash(&self, hash: KeyHash, now: Moment) -> ProbeResult {
        // The limit before the filter: a swap between the two reads only makes the answer stricter.
        let until = self.freshness.trusted_until();
        let (verdict, generation) = match self.active.probe(hash.get()) {
            Some((false, generation)) => (Verdict::Absent, generation),
            Some((true, generation)) => (Verdict::Maybe, generation),
            None => (Verdict::Maybe, 0),
        };
        let trusted = generation > 0 && now < until;
        let enforcement = self.freshness.enforcement().active();
        let state = FreshnessTracker::state(enforcement, generation > 0, trusted);
        let enforced = state == State::Enforcing && enforcement.covers(hash);
        ProbeResult { probe: Probe { verdict, state, enforced, generation }, trusted, at: now }
    }

    /// Returns true if the active filter holds the key, or if there is none.
    pub(crate) fn holds(&self, hash: KeyHash) -> bool {
        self.active.probe(hash.get()).is_none_or(|(maybe, _)| maybe)
    }

    /// Puts a key into the active filter and into the candidate of a build.
    pub(crate) fn insert(&self, hash: KeyHash) {
        self.active.insert(hash.get());
    }

    pub(crate) fn current(&self) -> Option<Arc<Generation>> {
        self.active.current()
    }
}
