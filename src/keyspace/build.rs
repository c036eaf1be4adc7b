//! What a build needs of the keyspace: the candidate from begin to swap, and what only the keyspace knows of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Keyspace;
use crate::backend::{KeySet, Members};
use crate::clock::Moment;
use crate::filter::{Busy, Candidate, Filter};
use crate::key::{Key, KeyBatch, KeyForm, KeyHash, KeySecret};

/// Keys that are hashed before they go into the candidate: hashes that stay in the first cache.
const HASHED_TOGETHER: usize = 1024;

/// A candidate that is being filled. Dropped before its swap, it changes nothing.
#[derive(Debug)]
pub struct Build {
    keyspace: Arc<Keyspace>,
    candidate: Option<Candidate>,
    /// Fingerprint of the secret under which its keys are hashed.
    secret: u64,
    began: Moment,
}

/// Why a build can't begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CantBegin {
    /// One at a time.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// Announces of others are within their commit window that are not held here: the filter would lack them.
    #[error(
        "more announces of other instances are within their commit window than server.max_announce_bytes holds, and a filter that is built now would lack some"
    )]
    Unheld,
}

/// Why a build can't be put in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CantSwap {
    /// A filter can't be in force beside the set of an earlier scan.
    #[error("the build has no set of keys")]
    NoSet,
    /// Its keys were hashed under a secret that is the fleet's no more.
    #[error("the keyspace secret has changed during the build")]
    OtherSecret,
}

impl Keyspace {
    /// The form of the keys, once it is known.
    #[must_use]
    pub fn form(&self) -> Option<KeyForm> {
        self.form.get().copied()
    }

    /// Makes the key form known; the first call decides.
    pub(crate) fn learn_form(&self, form: KeyForm) -> KeyForm {
        let is_news = self.form.get().is_none();
        let form = *self.form.get_or_init(|| form);
        if is_news {
            self.judge_terms_again();
        }
        self.trust_snapshot(form);
        form
    }

    /// Whether the secret is known under which filters can be built.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        self.secret.is_agreed()
    }

    /// What is proposed to a Redis that holds no secret for this keyspace.
    #[must_use]
    pub fn proposed_secret(&self) -> KeySecret {
        self.secret.proposal()
    }

    /// Takes the fleet's secret. What had been hashed under another one is hashed again, as far as it matters: announces within their window. A
    /// filter of before knows no key under the new one, and announces of others were read under the old: both end the rejecting.
    pub fn agree_on_secret(&self, secret: KeySecret) {
        let now = Moment::now();
        if self.secret.is_agreed() {
            if self.secret.fingerprint() == secret.fingerprint() {
                return;
            }
            tracing::warn!(
                keyspace = self.name(),
                "Redis holds another keyspace secret than before, as after it was wiped: everything is built anew"
            );
            // First, see `Secret`.
            self.standing.broken(
                now.plus(self.windows().window),
                "the keyspace secret has changed, as after Redis was wiped; a scan mends it".into(),
            );
            self.rebuild_wanted.notify_one();
        }
        self.secret.agree(secret);
        self.hot.drop_all_absences();
        let secret = self.secret.load();
        let (hashes, remembered) =
            self.recent.rehash_own(now, |key| secret.hash(&Key::from_canonical(Bytes::copy_from_slice(key))));
        if let Err(full) = remembered {
            let why = format!(
                "{} announces are within their window, and no more can be held; a scan after it mends that",
                full.0
            );
            self.standing.broken(now.plus(self.recent.life()), why);
        }
        hashes.iter().for_each(|hash| self.active.insert(hash.get()));
        self.note_announced(&hashes);
    }

    /// The database compares keys otherwise than the key form does (or no longer).
    pub(crate) fn form_conflict(&self, conflict: Option<String>) {
        self.standing.conflict(conflict);
    }

    /// What of the key source an operator should mend (or nothing any more).
    pub(crate) fn source_warning(&self, warning: Option<String>) {
        *self.source_warning.lock() = warning;
    }

    /// What the rebuild under way waits for (or nothing any more).
    pub(crate) fn rebuild_waits(&self, what: Option<&'static str>) {
        let before = std::mem::replace(&mut *self.rebuild_waits.lock(), what);
        if before != what {
            self.still_cold(what.map_or_else(
                || "the first filter is being built".into(),
                |what| format!("the first filter waits: {what}"),
            ));
        }
    }

    /// How long the filter in force stays young enough to be trusted; `None`: it is not trusted, or does not age.
    pub(crate) fn ages_in(&self) -> Option<Duration> {
        self.standing.ages_in(Moment::now())
    }

    /// There is still no filter, because …
    pub(crate) fn still_cold(&self, reason: String) {
        self.standing.still_cold(reason);
    }

    /// Before the right to reject may come back: where the keyspace could not reject until this moment, no absence from before may be served from now
    /// on.
    pub(super) fn void_untrusted_absences(&self) {
        if Moment::now() >= self.standing.trusted_until() {
            self.hot.drop_all_absences();
        }
    }

    /// How long to wait for the scan that mends what is broken; `None`: nothing is.
    #[must_use]
    pub fn rescan_in(&self) -> Option<Duration> {
        let lost = self.members().and_then(Members::lost_until);
        self.standing.broken_until().max(lost).map(|at| at.since(Moment::now()))
    }

    /// Returns when something happened that only a new filter mends.
    pub(crate) async fn rebuild_wanted(&self) {
        self.rebuild_wanted.notified().await;
    }

    /// Begins a build: from now on every insert reaches `filter` too, and the announces within their window are in it already.
    ///
    /// # Errors
    /// [`CantBegin`].
    pub(crate) fn begin(self: &Arc<Self>, filter: Filter) -> Result<Build, CantBegin> {
        let secret = self.secret.fingerprint();
        let candidate = self.active.begin(filter)?;
        self.deleted.scan_began();
        let build = Build { keyspace: Arc::clone(self), candidate: Some(candidate), secret, began: Moment::now() };
        if let Some(members) = self.members() {
            members.begin(build.began);
        }
        // After `begin`, never before: an announce that loaded the filter pair too early for the candidate is in the memory by now.
        build.replay_recent();
        // Asked after the candidate was published and before anything is scanned.
        if self.recent.lacks_some(Moment::now()) {
            return Err(CantBegin::Unheld);
        }
        Ok(build)
    }
}

impl Build {
    #[allow(clippy::expect_used)] // Only `swap` takes the candidate, and it consumes the build.
    const fn candidate(&self) -> &Candidate {
        self.candidate.as_ref().expect("the candidate is there until the swap")
    }

    /// Puts scanned keys into the candidate.
    pub fn fill(&self, keys: &KeyBatch) {
        let secret = self.keyspace.secret.load();
        let mut hashes = keys.iter().map(|key| secret.hash_ref(key).get());
        let mut together = Vec::with_capacity(keys.len().min(HASHED_TOGETHER));
        while hashes.len() > 0 {
            together.clear();
            together.extend(hashes.by_ref().take(HASHED_TOGETHER));
            self.candidate().fill(&together);
        }
    }

    /// The filter, once the scan is over: filling is slower from the first call on.
    #[must_use]
    pub fn filter(&self) -> &Arc<Filter> {
        self.candidate().filter()
    }

    /// When the build began, which is when its scan did.
    #[must_use]
    pub const fn began(&self) -> Moment {
        self.began
    }

    /// Puts every announce within its window into the candidate: its row may be committed after the scan has passed.
    pub fn replay_recent(&self) {
        let recent = self.keyspace.recent.hashes(Moment::now());
        self.candidate().fill(&recent.into_iter().map(KeyHash::get).collect::<Vec<_>>());
    }

    /// The hash of a scanned key.
    #[must_use]
    pub fn hash(&self, key: &Key) -> KeyHash {
        self.keyspace.secret.hash(key)
    }

    /// Keys that the backend answered before the scan began, that nobody deleted, and that the candidate lacks nevertheless.
    #[must_use]
    pub fn missing(&self) -> Vec<Key> {
        let filter = self.filter();
        let proven = self.keyspace.proven.before(self.began);
        // Hashed now: they may have been proven before the fleet's secret was known. A source may list the lower case that its database makes.
        let holds = |key: &Key| filter.contains(self.hash(key).get());
        proven.into_iter().filter(|key| !holds(key) && !key.folded_apart().is_some_and(|other| holds(&other))).collect()
    }

    /// A key turned out to be gone: later builds need not hold it.
    pub fn gone(&self, key: &Key) {
        self.keyspace.proven.gone(self.keyspace.secret.hash(key));
    }

    /// Puts the candidate in force, and with it the scanned keys where the backend is a set of them, and returns its number.
    ///
    /// # Errors
    /// [`CantSwap`].
    pub fn swap(mut self, set: Option<KeySet>) -> Result<u64, CantSwap> {
        // Where it changes only after this, the change has ended the rejecting, and this scan began too early to mend that.
        if self.secret != self.keyspace.secret.fingerprint() {
            return Err(CantSwap::OtherSecret);
        }
        match (self.keyspace.members(), set) {
            // Before the filter, and so before the right to call a key absent: who trusts the new scan must not read the old set.
            (Some(members), Some(set)) => members.swap(set),
            (Some(_), None) => return Err(CantSwap::NoSet),
            (None, _) => {}
        }
        let is_first = self.keyspace.active.current().is_none();
        let number = self.candidate.take().map_or(0, Candidate::swap);
        let keyspace = Arc::clone(&self.keyspace);
        keyspace.void_untrusted_absences();
        // Before the right to believe any of them comes back.
        keyspace.shared.believe_absences_since(self.began);
        // After the swap: who reads the new limit also reads the new filter.
        keyspace.standing.swapped(self.began);
        keyspace.rescan_under_polls();
        keyspace.observed.swapped();
        keyspace.storm.swapped();
        if is_first || keyspace.standing.whole().is_none() {
            keyspace.canary.heat_up()
        } else {
            keyspace.canary.warm_up()
        }
        keyspace.deleted.swapped();
        *keyspace.swapped_at.lock() = Some(Moment::now());
        let (state, reason) = keyspace.standing.explain(Moment::now());
        keyspace.note_state(state, &reason);
        Ok(number)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if self.candidate.is_some() {
            self.keyspace.deleted.scan_failed();
            // While the candidate still keeps others from beginning a build.
            if let Some(members) = self.keyspace.members() {
                members.withdraw();
            }
        }
    }
}
