//! What losses of the delta log do to the right.

use super::FreshnessTracker;
use super::first_start::YoungStart;
use super::reason::Distrust;
use crate::clock::Moment;
use crate::labels::UnprotectedReason;

impl FreshnessTracker {
    /// Takes the right away until the fleet has reported, or until a scan that begins after `at` is active. A snapshot
    /// on disk stays: it names the log that it belongs to.
    pub(crate) fn await_reports(&self, at: Moment, text: String) {
        self.change(|inputs| inputs.await_reports(at, Distrust { reason: UnprotectedReason::RollCall, text }));
    }

    /// The fleet has reported: nothing was lost with the log before. What else has taken the right away stays.
    pub(crate) fn reports_complete(&self) {
        self.change(|inputs| inputs.awaits_reports = None);
    }

    /// Returns true, once, when the reports have not come until a scan may begin.
    pub(crate) fn scan_is_due(&self, now: Moment) -> bool {
        let mut inputs = self.inputs.lock();
        let is_due = inputs.awaits_reports.as_ref().is_some_and(|(at, _)| *at <= now);
        !std::mem::replace(&mut inputs.scan_is_requested, is_due) && is_due
    }

    /// Returns true if something was lost that no scan has found yet.
    pub(crate) fn is_revoked(&self) -> bool {
        self.inputs.lock().is_revoked()
    }

    /// As [`FreshnessTracker::revoke`]: announces of before a young log can't be excluded.
    pub(crate) fn revoke_until_proven(&self, start: YoungStart) {
        self.change(|inputs| {
            let text = start.describe(Moment::now());
            inputs.revoke(start.until, Distrust { reason: UnprotectedReason::LogLost, text });
            inputs.young_start = Some(start);
        });
        self.void_snapshot();
    }

    /// Entries of the delta log may be lost. Revokes as [`FreshnessTracker::revoke`] does, and returns true, if the right
    /// rests on announces there.
    pub(crate) fn log_lost(&self, at: Moment, reason: UnprotectedReason, text: String) -> bool {
        let rests_on_log = self.promise.rests_on_log();
        if rests_on_log {
            self.revoke(at, reason, text);
        }
        rests_on_log
    }

    /// Marks of polled rows may be missing in the shared cache until `until`: absences that any instance stores by then
    /// are not believed. Returns false if the right rests on these marks, so that they must not be missing.
    pub(crate) fn marks_lost(&self, until: Moment) -> bool {
        let is_bearable = !self.promise.rests_on_log();
        if is_bearable {
            self.absences.shared.believe_absences_since(until);
        }
        is_bearable
    }
}
