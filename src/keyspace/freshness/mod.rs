//! The trust in the filter, without which it answers no lookup with 404: when a keyspace has it, what revokes it and
//! how it returns.
//!
//! The tracker gathers what is known of the filter's freshness (scans, delta log, polls, failures) and derives one
//! moment from it: until then the filter is trusted. A lookup compares that moment with the clock, so a filter that
//! ages loses the right by itself.
//!
//! Everything that shortens or extends the right goes through [`FreshnessTracker::change`]. When the right comes back,
//! that function voids the hot tier's absences first: rows may have come while the filter could not reject.
//!
//! Knows no key and no filter.

mod enforcement;
mod first_start;
mod hold;
mod inputs;
mod losses;
mod polled;
mod proof;
mod reason;
mod unprotected;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use self::enforcement::{ActiveEnforcement, EnforcementSwitch};
pub use self::enforcement::{EnforcementOrigin, EnforcementStatus, SwitchError};
pub(crate) use self::first_start::YoungStart;
use self::inputs::FreshnessInputs;
pub(crate) use self::inputs::{CompleteFilter, LogRole, Promise};
pub use self::polled::PollCoverage;
use self::polled::PollEvidence;
pub use self::proof::ProofStatus;
use self::reason::Distrust;
use self::unprotected::UnprotectedTime;
use super::snapshot_file::SnapshotFile;
use crate::cache::{HotCache, SharedCache};
use crate::clock::Moment;
use crate::config::{Enforcement, EnforcementSetting, Freshness, KeyspaceConfig};
use crate::fleet::Switch;
use crate::labels::{FoundBy, State, UnprotectedReason};
use crate::metrics::KeyspaceMetrics;

/// The absences that caches hold. Those of the time without the right to reject must not be served later.
pub(crate) struct CachedAbsences {
    pub(crate) hot: Arc<HotCache>,
    pub(crate) shared: Arc<dyn SharedCache>,
}

/// The freshness of one keyspace's filter.
pub(crate) struct FreshnessTracker {
    keyspace: String,
    promise: Promise,
    enforcement: EnforcementSwitch,
    inputs: Mutex<FreshnessInputs>,
    /// Nanoseconds since boot; 0 = the filter is not trusted. Derived from `inputs`, which are the truth.
    trusted_until: AtomicU64,
    absences: CachedAbsences,
    /// A snapshot on disk is worth nothing once the promise is broken.
    snapshot: Option<Arc<SnapshotFile>>,
    unprotected: UnprotectedTime,
    metrics: Arc<KeyspaceMetrics>,
}

impl FreshnessTracker {
    /// The tracker of a keyspace without a filter. `has_proof`: absences are compared with the backend before the
    /// filter answers.
    pub(crate) fn new(
        keyspace: &str,
        config: &KeyspaceConfig,
        promise: Promise,
        has_proof: bool,
        absences: CachedAbsences,
        snapshot: Option<Arc<SnapshotFile>>,
        metrics: &Arc<KeyspaceMetrics>,
    ) -> Self {
        let proof = if has_proof { config.canary.proof } else { 0 };
        Self {
            keyspace: keyspace.to_owned(),
            promise,
            enforcement: EnforcementSwitch::new(config.enforcement_setting(), proof),
            inputs: Mutex::new(FreshnessInputs::new(config.canary.hold)),
            trusted_until: AtomicU64::new(0),
            absences,
            snapshot,
            unprotected: UnprotectedTime::new(Moment::now()),
            metrics: Arc::clone(metrics),
        }
    }

    /// Until when the filter is trusted. Read it **before** the filter: a swap between the two reads then only makes
    /// the answer stricter.
    pub(crate) fn trusted_until(&self) -> Moment {
        // Acquire: pairs with the release in `change`, which follows the swap; a reader of the new limit also reads the
        // new filter.
        Moment::from_nanos(self.trusted_until.load(Ordering::Acquire))
    }

    /// The one place where the right to reject changes.
    fn change(&self, change: impl FnOnce(&mut FreshnessInputs)) {
        let mut inputs = self.inputs.lock();
        change(&mut inputs);
        let (before, until) = (self.trusted_until(), inputs.trusted_until(&self.promise));
        // The right comes back. Absences of the shared cache stay: each was true when it was stored, and none outlives
        // `max_staleness`.
        if until > before && Moment::now() >= before {
            self.absences.hot.drop_all_absences();
        }
        // Release: pairs with the acquire in `trusted_until`. Under the lock, so that two changes can't leave the older
        // value.
        self.trusted_until.store(until.as_nanos(), Ordering::Release);
        drop(inputs);
        self.count_unprotected_time();
    }

    /// The one place that takes the right away until a scan that begins after `at` is active.
    pub(crate) fn revoke(&self, at: Moment, reason: UnprotectedReason, text: String) {
        self.change(|inputs| inputs.revoke(at, Distrust { reason, text }));
        self.void_snapshot();
    }

    /// A row was found that the filter had called absent: revokes, and holds the right back for a while after the next
    /// scan.
    pub(crate) fn revoke_and_hold(&self, now: Moment, reason: &str) {
        self.change(|inputs| {
            // What is found while the filter is not trusted anyway has the same cause, and is no recurrence.
            if inputs.is_undisturbed() {
                inputs.hold.begin(now);
            }
            inputs.revoke(now, Distrust { reason: UnprotectedReason::FalseNegative, text: reason.into() });
        });
        self.void_snapshot();
    }

    /// Sets why the key form does not distinguish keys as the database does; `None`: it does.
    pub(crate) fn set_conflict(&self, conflict: Option<String>) {
        let conflicts = conflict.is_some();
        self.change(|inputs| inputs.conflict = conflict);
        if conflicts {
            self.void_snapshot();
        }
    }

    /// After the change, so that the writer of a snapshot sees the one or the other.
    fn void_snapshot(&self) {
        if let Some(snapshot) = &self.snapshot {
            snapshot.discard();
        }
    }

    /// A filter whose scan began at `scan_started` is active.
    pub(crate) fn swapped(&self, scan_started: Moment) {
        // Before the filter is trusted: a lookup of then may believe these absences.
        self.absences.shared.believe_absences_since(scan_started);
        self.change(|inputs| inputs.swapped(scan_started));
    }

    /// As [`FreshnessTracker::swapped`], for a filter under another secret: `exchange` replaces both. No lookup is
    /// answered from a filter meanwhile, see [`Secret`](super::secret::Secret).
    pub(crate) fn exchanged(&self, scan_started: Moment, exchange: impl FnOnce()) {
        self.absences.shared.believe_absences_since(scan_started);
        self.change(|inputs| {
            // Release: a lookup that reads the new secret reads this, or what follows the exchange.
            self.trusted_until.store(Moment::NEVER.as_nanos(), Ordering::Release);
            exchange();
            inputs.swapped(scan_started);
        });
    }

    /// The delta log was read to its end, as it was when the read was sent.
    pub(crate) fn log_read(&self, sent: Moment) {
        self.change(|inputs| {
            (inputs.log_read, inputs.log_asked) = (Some(sent), true);
            inputs.log_error = None;
        });
    }

    /// A read of the delta log failed. The right lapses by itself.
    pub(crate) fn log_failed(&self, reason: String) {
        self.change(|inputs| (inputs.log_error, inputs.log_asked) = (Some(reason), true));
    }

    /// Polls begin (again): what earlier ones have shown counts no more.
    pub(crate) fn polls_began(&self, covers: Option<Moment>) {
        self.change(|inputs| inputs.polls = PollEvidence::beginning(covers));
    }

    /// A poll that began then is complete.
    pub(crate) fn polled(&self, began: Moment, coverage: PollCoverage) {
        self.change(|inputs| inputs.polls = PollEvidence::completed(began, coverage));
    }

    /// A poll failed. The right lapses by itself.
    pub(crate) fn poll_failed(&self, reason: &'static str) {
        self.inputs.lock().polls.failed(reason);
    }

    /// Lifts a hold whose time is over; nothing else does. Returns true if there was one.
    pub(crate) fn lift_finished_hold(&self, now: Moment) -> bool {
        let is_over = self.inputs.lock().hold.is_over(now);
        if is_over {
            self.change(|inputs| inputs.hold.lift());
        }
        is_over
    }

    /// Keeps why there is still no filter.
    pub(crate) fn explain_cold(&self, reason: String) {
        self.inputs.lock().cold_reason = Some(reason);
    }

    /// Applies live settings.
    pub(crate) fn reconfigure(&self, config: &KeyspaceConfig, has_proof: bool) {
        self.inputs.lock().hold.set_first(config.canary.hold);
        self.enforcement.configure(config.enforcement_setting(), has_proof.then_some(config.canary.proof));
    }

    /// Replaces the enforcement of this instance; `None`: the fleet's applies, or the configuration.
    pub(crate) fn switch_instance(&self, setting: Option<EnforcementSetting>) -> EnforcementStatus {
        self.enforcement.set_instance(setting);
        self.log_switch()
    }

    /// Applies a new setting of the fleet, which goes before an earlier one of this instance.
    pub(crate) fn switch_here_and_fleet(&self, switch: Switch) -> EnforcementStatus {
        self.enforcement.set_instance(None);
        self.enforcement.set_fleet(Some(switch));
        self.log_switch()
    }

    /// Applies the fleet's setting as read from Redis. Returns the setting that Redis has lost, if it has.
    pub(crate) fn apply_switch(&self, switch: Option<Switch>) -> Option<Switch> {
        let before = self.enforcement.status();
        let lost = self.enforcement.set_fleet(switch);
        if self.enforcement.status() != before {
            self.log_switch();
        }
        lost
    }

    fn log_switch(&self) -> EnforcementStatus {
        let status = self.enforcement.status();
        let EnforcementSetting { mode, percent } = status.in_force;
        let (keyspace, mode) = (&self.keyspace, mode.as_str());
        tracing::warn!(keyspace, mode, percent, origin = ?status.origin, "enforcement switched");
        self.observe_state();
        status
    }

    pub(crate) const fn enforcement(&self) -> &EnforcementSwitch {
        &self.enforcement
    }

    pub(crate) const fn promise(&self) -> &Promise {
        &self.promise
    }

    /// The active filter's scan, of any age, if the filter has no known faults.
    pub(crate) fn complete(&self) -> Option<CompleteFilter> {
        self.inputs.lock().complete()
    }

    /// The moment after which a scan has to begin to restore what is revoked.
    pub(crate) fn revoked_until(&self) -> Option<Moment> {
        self.inputs.lock().revoked_until()
    }

    /// Why polls may miss transactions that are longer than the overlap.
    pub(crate) fn hidden_transactions(&self) -> Option<&'static str> {
        self.inputs.lock().polls.hidden
    }

    /// Returns true if the active filter lacks rows between its scan and the first of the polls that the promise
    /// depends on.
    pub(crate) fn needs_scan_under_polls(&self) -> bool {
        let inputs = self.inputs.lock();
        self.promise.freshness == Freshness::Polled
            && inputs.scan_started.is_some_and(|scan| inputs.polls.begin_after(scan))
    }

    /// How long the active filter keeps the promise without a scan; `None`: it does not keep it now.
    pub(crate) fn lasts_without_scan(&self, now: Moment) -> Option<Duration> {
        let scan_started = self.complete()?.scan_started;
        Some(match self.promise.freshness {
            Freshness::Rebuilt => scan_started.plus(self.promise.max_staleness).since(now),
            _ => Duration::MAX,
        })
    }

    /// Time until the filter's age ends the trust; `None`: something else has ended it, or its age never does.
    pub(crate) fn ages_in(&self, now: Moment) -> Option<Duration> {
        let inputs = self.inputs.lock();
        let ages = self.promise.freshness == Freshness::Rebuilt && !inputs.is_revoked() && inputs.conflict.is_none();
        let end = inputs.scan_started.filter(|_| ages)?.plus(self.promise.max_staleness);
        (end > now).then(|| end.since(now))
    }

    /// Time since the delta log was read to its end; `None`: never, or there is none.
    pub(crate) fn log_lag(&self, now: Moment) -> Option<Duration> {
        self.inputs.lock().log_read.map(|sent| now.since(sent))
    }

    /// Returns true if a read of the delta log that was sent after `moment` has left nothing unread.
    pub(crate) fn log_was_read_after(&self, moment: Moment) -> bool {
        self.inputs.lock().log_read.is_some_and(|sent| sent > moment)
    }

    /// The filter holds every row that was visible at this moment.
    pub(crate) fn fresh_since(&self) -> Option<Moment> {
        self.inputs.lock().fresh_since(&self.promise)
    }

    /// Returns true if the promise is broken by a row that the filter had called absent, and that neither log nor polls
    /// have brought.
    ///
    /// Between two scans `rebuilt` promises none. But if the canary finds one, a client was answered 404 for a row that
    /// exists, and many more were not sampled; a lookup that finds one has given it to its client.
    pub(crate) fn is_broken_by(&self, found_by: FoundBy) -> bool {
        self.promise.freshness != Freshness::Rebuilt || found_by == FoundBy::Canary
    }

    /// The state that follows from the enforcement, from whether there is a filter, and from whether it is trusted.
    pub(crate) fn state(active: ActiveEnforcement, has_filter: bool, trusted: bool) -> State {
        match (has_filter, active.mode(), trusted) {
            (false, ..) => State::Cold,
            (true, Enforcement::Shadow, _) => State::Shadow,
            (true, Enforcement::Enforce, true) if active.is_proving() => State::Shadow,
            (true, Enforcement::Enforce, true) => State::Enforcing,
            (true, Enforcement::Enforce, false) => State::Degraded,
        }
    }

    /// The present state and its reason in words. Counts and logs a change since the last call.
    pub(crate) fn observe_state(&self) -> (State, String) {
        self.count_unprotected_time();
        let (state, reason) = self.explain(Moment::now());
        if self.inputs.lock().observed.replace(state) == Some(state) {
            return (state, reason);
        }
        self.metrics.state_entered(state);
        let keyspace = &self.keyspace;
        if state == State::Degraded {
            tracing::warn!(keyspace, %state, reason, "filter disabled: no lookup is answered 404 from it");
        } else {
            tracing::info!(keyspace, %state, reason, "state changed");
        }
        (state, reason)
    }
}

#[cfg(test)]
mod tests;
