//! What is known about the filter's freshness, and how long it may be trusted.

use std::time::Duration;

use super::first_start::YoungStart;
use super::hold::Hold;
use super::polled::PollEvidence;
use super::reason::Distrust;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::labels::State;

/// What a keyspace promises about its filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) freshness: Freshness,
    /// Oldest scan (`rebuilt`) or poll (`polled`) that keeps the promise.
    pub(crate) max_staleness: Duration,
    pub(crate) log: LogRole,
}

/// What the delta log is to the right to reject. Everything that depends on it asks the promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogRole {
    /// There is none.
    None,
    /// It has announces of other instances: the right rests on it.
    Announces {
        /// Longest time without reading it to its end.
        max_lag: Duration,
    },
    /// It has drops and the fleet's enforcement setting: whatever happens to it, the right stays.
    DropsOnly,
}

impl Promise {
    /// Returns true if the right rests on the log: what is lost of it takes the right away.
    pub(crate) fn rests_on_log(&self) -> bool {
        self.max_lag().is_some()
    }

    /// Longest time without reading the log to its end, if the right rests on it.
    pub(crate) fn max_lag(&self) -> Option<Duration> {
        match self.log {
            LogRole::Announces { max_lag } => Some(max_lag),
            LogRole::None | LogRole::DropsOnly => None,
        }
    }
}

/// A filter without known faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompleteFilter {
    pub(crate) scan_started: Moment,
    /// True if complete polls add the rows after the scan.
    pub(crate) polled: bool,
}

/// What the trust depends on.
#[derive(Debug)]
pub(super) struct FreshnessInputs {
    /// Start of the scan behind the active filter, once there is one.
    pub(super) scan_started: Option<Moment>,
    /// Why there is no filter yet.
    pub(super) cold_reason: Option<String>,
    /// Only a filter whose scan begins after this moment restores the promise.
    pub(super) revoked: Option<(Moment, Distrust)>,
    /// As `revoked`, but reports of the fleet restore the promise too.
    pub(super) awaits_reports: Option<(Moment, Distrust)>,
    /// The scan is requested that does so without them.
    pub(super) scan_is_requested: bool,
    /// Why it was revoked when the process started, if that is still so.
    pub(super) young_start: Option<YoungStart>,
    /// Active after a row was found that the filter had called absent.
    pub(super) hold: Hold,
    /// Set if the key form does not distinguish keys as the database does.
    pub(super) conflict: Option<String>,
    /// When the last read of the delta log that left nothing unread was sent.
    pub(super) log_read: Option<Moment>,
    /// A read of the delta log has ended, in whatever way: the fleet's enforcement setting is known if Redis can be
    /// reached.
    pub(super) log_asked: bool,
    /// Why the last read failed.
    pub(super) log_error: Option<String>,
    pub(super) polls: PollEvidence,
    /// The state that was last counted and logged.
    pub(super) observed: Option<State>,
}

impl FreshnessInputs {
    pub(super) fn new(first_hold: Duration) -> Self {
        Self {
            scan_started: None,
            cold_reason: None,
            revoked: None,
            awaits_reports: None,
            scan_is_requested: false,
            young_start: None,
            hold: Hold::new(first_hold),
            conflict: None,
            log_read: None,
            log_asked: false,
            log_error: None,
            polls: PollEvidence::default(),
            observed: None,
        }
    }

    /// The later moment wins: a scan has to begin after both.
    pub(super) fn revoke(&mut self, at: Moment, why: Distrust) {
        if self.revoked.as_ref().is_none_or(|(earlier, _)| *earlier < at) {
            self.revoked = Some((at, why));
        }
    }

    /// The later moment wins here too: there may have been a further log in between.
    pub(super) fn await_reports(&mut self, at: Moment, reason: Distrust) {
        let at = self.awaits_reports.as_ref().map_or(at, |(earlier, _)| at.max(*earlier));
        self.awaits_reports = Some((at, reason));
    }

    pub(super) fn swapped(&mut self, scan_started: Moment) {
        self.scan_started = Some(scan_started);
        self.cold_reason = None;
        self.revoked.take_if(|(at, _)| *at < scan_started);
        self.awaits_reports.take_if(|(at, _)| *at < scan_started);
    }

    /// Why the filter is revoked, with the time that is left.
    pub(super) fn revocation(&self, now: Moment) -> Option<Distrust> {
        let Some((at, why)) = self.revoked.as_ref() else {
            return self.awaits_reports.as_ref().map(|(_, why)| why.clone());
        };
        let start = self.young_start.as_ref().filter(|start| start.until == *at);
        let text = start.map_or_else(|| why.text.clone(), |start| start.describe(now));
        Some(Distrust { reason: why.reason, text })
    }

    /// Returns true if neither a revocation nor a hold keeps the filter from being trusted.
    pub(super) fn is_undisturbed(&self) -> bool {
        !self.is_revoked() && self.hold.length().is_none()
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.revoked.is_some() || self.awaits_reports.is_some()
    }

    /// When a scan may begin that restores the promise.
    pub(super) fn revoked_until(&self) -> Option<Moment> {
        [&self.revoked, &self.awaits_reports].into_iter().flatten().map(|(at, _)| *at).max()
    }

    pub(super) fn complete(&self) -> Option<CompleteFilter> {
        let sound = self.is_undisturbed() && self.conflict.is_none();
        let scan_started = self.scan_started.filter(|_| sound)?;
        let polled = !self.polls.begin_after(scan_started) && self.polls.is_begun();
        Some(CompleteFilter { scan_started, polled })
    }

    /// Until when the filter may be trusted; [`Moment::NEVER`]: not at all.
    pub(super) fn trusted_until(&self, promise: &Promise) -> Moment {
        let Some(scan) = self.scan_started.filter(|_| self.is_undisturbed() && self.conflict.is_none()) else {
            return Moment::NEVER;
        };
        let until = match promise.freshness {
            Freshness::Rebuilt => scan.plus(promise.max_staleness),
            Freshness::Polled => {
                self.polls.complete(scan).map_or(Moment::NEVER, |began| began.plus(promise.max_staleness))
            }
            Freshness::Announced | Freshness::Static => Moment::FOREVER,
        };
        match promise.log {
            LogRole::None => until,
            LogRole::Announces { max_lag } => until.min(self.log_read.map_or(Moment::NEVER, |sent| sent.plus(max_lag))),
            LogRole::DropsOnly if self.log_asked => until,
            LogRole::DropsOnly => Moment::NEVER,
        }
    }

    pub(super) fn fresh_since(&self, promise: &Promise) -> Option<Moment> {
        let scan = self.scan_started?;
        let polled = promise.freshness == Freshness::Polled;
        Some(if polled { self.polls.complete(scan).unwrap_or(scan) } else { scan })
    }
}
