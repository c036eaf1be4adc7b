//! A build as the keyspace sees it: the candidate from begin to swap, and what only the keyspace knows of it.

use std::sync::Arc;
use std::time::Duration;

use super::Keyspace;
use super::backend::Verified;
use super::build_state::{LastRebuild, SourceSample};
use super::secret::{Adoption, CurrentSecret};
use crate::backend::{BackendError, KeySet, Members};
use crate::clock::Moment;
use crate::filter::{Busy, Candidate, Filter};
use crate::key::{Key, KeyBatch, KeyForm, KeyHash};
use crate::labels::State;

/// Keys that are hashed before they go into the candidate: their hashes stay in the first-level cache.
const HASHED_TOGETHER: usize = 1024;

/// A candidate that is being filled. Dropped before its swap, it changes nothing.
#[derive(Debug)]
pub struct Build {
    keyspace: Arc<Keyspace>,
    candidate: Option<Candidate>,
    /// Under which its keys are hashed: the present one, or the one that is adopted with it.
    secret: Arc<CurrentSecret>,
    began: Moment,
}

/// Why a build can't begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CantBegin {
    /// One at a time.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The fleet's secret is not known, and no filter can be built without it.
    #[error("the keyspace secret could not be read from Redis yet")]
    NoSecret,
    /// The delta log has not been read yet: a build could miss announces that began before it.
    #[error("the delta log could not be read from Redis yet")]
    NoLog,
    /// Announces of others are within their commit window that are not held here: the filter would lack them.
    #[error(
        "more announces of other instances are within their commit window than server.max_announce_bytes holds, and a \
         filter that is built now would lack some"
    )]
    Unheld,
}

/// Why a candidate can't become the active filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CantSwap {
    /// A filter can't be active beside the set of an earlier scan.
    #[error("the build has no set of keys")]
    NoSet,
    /// The fleet has another secret by now than the one under which the candidate's keys are hashed.
    #[error("the keyspace secret has changed during the build")]
    OtherSecret,
}

/// What the size of the next filter depends on, beside the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizing {
    /// Keys in the active filter, estimated from its fill.
    pub(crate) items: Option<u64>,
    /// Keys that announces and polls have brought lately, whether their rows came or not. If these are more than the
    /// headroom is for, the next filter gets room for as many again, so that it lasts about as long as the keys took to
    /// come. Those whose rows never come are gone with the first build after their window.
    pub(crate) announced_lately: u64,
    /// The keys themselves are kept too.
    pub(crate) keeps_keys: bool,
}

/// How soon the next filter is needed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Urgency {
    /// The keyspace is neither cold nor degraded.
    pub(crate) has_trusted_filter: bool,
    /// Time until age ends the trust in it; `None`: something else has, or its age never does.
    pub(crate) ages_in: Option<Duration>,
    /// What the last build took, seconds.
    pub(crate) last_took: f64,
}

/// What a snapshot has left for the first build.
#[derive(Debug)]
pub(crate) struct FirstBuild {
    /// How long the restored filter keeps the promise without a scan.
    pub(crate) lasts: Duration,
    /// Keys of its scan, by source; empty if there is none.
    pub(crate) counted: Vec<u64>,
}

/// What `rebuild` asks of a keyspace.
impl Keyspace {
    /// Makes the key form known; the first call decides.
    pub(crate) fn learn_form(&self, form: KeyForm) -> KeyForm {
        let is_new = self.identity.form().is_none();
        let form = *self.identity.form.get_or_init(|| form);
        if let Some(follower) = self.follower.as_ref().filter(|_| is_new) {
            follower.recheck_terms();
        }
        self.snapshots.trust(form);
        form
    }

    /// Returns true once it is known whether a snapshot's filter can be used.
    pub(crate) fn has_evaluated_snapshot(&self) -> bool {
        !self.snapshots.awaits_form()
    }

    pub(crate) fn first_build(&self) -> FirstBuild {
        let lasts = self.freshness.lasts_without_scan(Moment::now()).unwrap_or_default();
        FirstBuild { lasts, counted: self.builds.counted() }
    }

    /// Returns once something has happened that only a new filter fixes.
    pub(crate) async fn rebuild_requested(&self) {
        self.builds.signal.requested().await;
    }

    /// How long to wait for a scan that restores the promise; `None`: it is not revoked.
    #[must_use]
    pub fn rescan_in(&self) -> Option<Duration> {
        let lost = self.backend.members().and_then(Members::lost_until);
        self.freshness.revoked_until().max(lost).map(|at| at.since(Moment::now()))
    }

    pub(crate) fn urgency(&self) -> Urgency {
        let last_took = self.builds.last_rebuild().map_or(0.0, |last| last.duration_seconds);
        let has_trusted_filter = matches!(self.state(), State::Enforcing | State::Shadow);
        Urgency { has_trusted_filter, ages_in: self.freshness.ages_in(Moment::now()), last_took }
    }

    pub(crate) fn sizing(&self) -> Sizing {
        let inserted = self.stats.growth().distinct_inserted();
        Sizing {
            items: self.items(),
            announced_lately: inserted.max(self.writer.windows.recent.held().0 as u64),
            keeps_keys: self.backend.members().is_some(),
        }
    }

    /// What the rebuild in progress waits for, for `/status`; `None`: nothing.
    pub(crate) fn set_rebuild_wait(&self, what: Option<&'static str>) {
        if self.builds.set_waits_for(what) {
            self.freshness.explain_cold(what.map_or_else(
                || "the first filter is being built".into(),
                |what| format!("the first filter waits: {what}"),
            ));
        }
    }

    /// Waits until a scan may begin: the log has been read, and polls find rows that become visible while it runs.
    ///
    /// # Errors
    /// [`CantBegin::NoSecret`] and [`CantBegin::NoLog`].
    pub(crate) async fn prepare_scan(&self) -> Result<(), CantBegin> {
        if !self.wait_for_secret().await {
            return Err(CantBegin::NoSecret);
        }
        if let Some(follower) = self.follower.as_ref().filter(|_| self.freshness.promise().rests_on_log())
            && !follower.has_begun().await
        {
            return Err(CantBegin::NoLog);
        }
        self.polls.cover_scan().await;
        Ok(())
    }

    /// Begins a build: from now on every insert reaches `filter` too, and the announces within their window are in it
    /// already.
    ///
    /// # Errors
    /// [`CantBegin`].
    pub(crate) fn begin(self: &Arc<Self>, filter: Filter) -> Result<Build, CantBegin> {
        // The next one first: it may become the present one in between.
        let known = &self.identity.secret;
        let secret = known.next().unwrap_or_else(|| known.load_full());
        let candidate = self.prober.active.begin(filter)?;
        self.builds.deletes.scan_began();
        let build = Build { keyspace: Arc::clone(self), candidate: Some(candidate), secret, began: Moment::now() };
        if let Some(members) = self.backend.members() {
            members.begin(build.began);
        }
        // After `begin`: an announce that loaded the filter pair too early for the candidate is in the memory by now.
        build.replay_recent();
        // After the candidate is published and before anything is scanned.
        if self.freshness.promise().rests_on_log() && self.writer.windows.recent.lacks_some(Moment::now()) {
            return Err(CantBegin::Unheld);
        }
        Ok(build)
    }

    /// Keeps how a rebuild ended. `counted`: the keys of its scan by source, if its filter has become active.
    pub(crate) fn finish_rebuild(&self, last: LastRebuild, counted: Option<Vec<u64>>) {
        if let Some(reason) = last.reason.as_ref().filter(|_| self.state() == State::Cold) {
            self.freshness.explain_cold(reason.clone());
        }
        self.builds.set_last_rebuild(last);
        if let Some(counted) = counted {
            self.builds.set_counted(counted);
            self.snapshots.want();
        }
    }
}

impl Build {
    #[allow(clippy::expect_used)] // Only `swap` takes the candidate, and it consumes the build.
    const fn candidate(&self) -> &Candidate {
        self.candidate.as_ref().expect("the candidate is there until the swap")
    }

    /// Puts scanned keys into the candidate.
    pub fn fill(&self, keys: &KeyBatch) {
        let mut hashes = keys.iter().map(|key| self.secret.hash_ref(key).get());
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

    /// Puts every announce within its window into the candidate: its row may be committed after the scan has passed.
    pub fn replay_recent(&self) {
        let recent = self.keyspace.writer.windows.recent.hashes(Moment::now());
        self.candidate().fill(&recent.into_iter().map(KeyHash::get).collect::<Vec<_>>());
    }

    /// Waits for a poll that began after the scan.
    pub async fn poll_to_end(&self) {
        self.keyspace.polls.poll_after(self.began).await;
    }

    /// What of the key source an operator should fix; also if the candidate is refused: it may explain that.
    pub(crate) fn set_source_warning(&self, warning: Option<String>) {
        self.keyspace.builds.set_source_warning(warning);
    }

    /// Keeps what the backend has of the keys that were sampled from the source.
    pub(crate) fn set_sample(&self, sample: SourceSample) {
        self.keyspace.builds.set_sample(sample);
    }

    /// The hash of a scanned key.
    #[must_use]
    pub fn hash(&self, key: &Key) -> KeyHash {
        self.secret.hash(key)
    }

    /// Keys that the backend answered before the scan began, that no client has deleted, and that the candidate lacks
    /// nevertheless.
    #[must_use]
    pub fn missing(&self) -> Vec<Key> {
        let filter = self.filter();
        let confirmed = self.keyspace.builds.confirmed.before(self.began);
        // Hashed now: they may have been confirmed before the fleet's secret was known. A source may list the
        // database's lower case.
        let holds = |key: &Key| filter.contains(self.hash(key).get());
        let is_missing = |key: &Key| !holds(key) && !key.folded_apart().is_some_and(|other| holds(&other));
        confirmed.into_iter().filter(is_missing).collect()
    }

    /// A key turned out to be gone: later builds need not hold it.
    pub fn gone(&self, key: &Key) {
        self.keyspace.builds.confirmed.gone(self.keyspace.identity.hash(key));
    }

    /// Asks the backend for each of `keys`.
    ///
    /// # Errors
    /// [`BackendError`] if it gives no answer; what it says of single keys is in their [`Verified`].
    pub(crate) async fn verify(&self, keys: &[Key]) -> Result<Vec<Verified>, BackendError> {
        self.keyspace.backend.verify(keys).await
    }

    /// Why the backend finds rows under keys that `form` distinguishes; `None` if it does not, or if that is unknown.
    pub(crate) async fn form_conflict(&self, form: KeyForm) -> Result<Option<String>, BackendError> {
        self.keyspace.backend.form_conflict(form).await
    }

    /// Makes the candidate the active filter, and the scanned keys the set of a backend that is one. Returns the
    /// filter's number.
    ///
    /// # Errors
    /// [`CantSwap`].
    pub(crate) fn swap(mut self, set: Option<KeySet>, conflict: Option<String>) -> Result<u64, CantSwap> {
        let keyspace = Arc::clone(&self.keyspace);
        keyspace.freshness.set_conflict(conflict);
        let known = &keyspace.identity.secret;
        // A change after this check has revoked the promise, and this scan began too early to restore it.
        let adoption = if known.fingerprint() == self.secret.fingerprint {
            None
        } else {
            Some(known.begin_adoption(&self.secret).ok_or(CantSwap::OtherSecret)?)
        };
        // Dropped at the end: gigabytes may be freed.
        let _former_set = match (keyspace.backend.members(), set) {
            // Before the filter, and so before the right to call a key absent: a lookup that trusts the new scan must
            // not read the old set.
            (Some(members), Some(set)) => Some(members.swap(set)),
            (Some(_), None) => return Err(CantSwap::NoSet),
            (None, _) => None,
        };
        let is_first = keyspace.prober.current().is_none();
        let number = match adoption {
            Some(adoption) => self.exchange(adoption),
            None => self.activate(),
        };
        keyspace.polls.rescan_if_needed();
        keyspace.stats.swapped();
        keyspace.audit.storms.swapped();
        if is_first || keyspace.freshness.complete().is_none() {
            keyspace.audit.canary.sampler.heat_up();
        } else {
            keyspace.audit.canary.sampler.warm_up();
        }
        keyspace.builds.swapped();
        keyspace.freshness.observe_state();
        Ok(number)
    }

    fn activate(&mut self) -> u64 {
        let number = self.candidate.take().map_or(0, Candidate::swap);
        // After the swap: a reader of the new limit also reads the new filter.
        self.keyspace.freshness.swapped(self.began);
        number
    }

    /// Makes the candidate the active filter and its secret the present one.
    fn exchange(&mut self, adoption: Adoption<'_>) -> u64 {
        let (keyspace, now) = (&self.keyspace, Moment::now());
        // Announces of an earlier configuration, from the journal. Without room for them the filter has them all the
        // same.
        let _ = keyspace.writer.rehash(&self.secret, now);
        // Before the exchange: which keys were found lately is known by their former hashes only.
        keyspace.writer.windows.recent.doubt_all(now);
        // Dropped afterwards: it may be large, and nothing is answered from a filter during the exchange.
        let former = keyspace.prober.current();
        let mut number = 0;
        keyspace.freshness.exchanged(self.began, || {
            // The secret first: a lookup that finds this filter by a former hash then notices it.
            adoption.adopt();
            number = self.candidate.take().map_or(0, Candidate::swap);
        });
        drop(former);
        // Entries by their former hashes can't be found, nor dropped.
        keyspace.writer.effects.drop_everything();
        keyspace.builds.confirmed.rehash(|key| self.secret.hash(key));
        tracing::info!(keyspace = keyspace.name(), "adopted the fleet's secret");
        number
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if self.candidate.is_some() {
            self.keyspace.builds.deletes.scan_failed();
            // While the candidate still keeps others from beginning a build.
            if let Some(members) = self.keyspace.backend.members() {
                members.withdraw();
            }
        }
    }
}
