//! What is known about the filter's freshness, and how long it may be trusted.

use std::time::Duration;

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
    /// Longest time without reading the delta log to its end; `None`: there is no log.
    pub(crate) max_lag: Option<Duration>,
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
    /// Active after a row was found that the filter had called absent.
    pub(super) hold: Hold,
    /// Set if the key form does not distinguish keys as the database does.
    pub(super) conflict: Option<String>,
    /// When the last read of the delta log that left nothing unread was sent.
    pub(super) log_read: Option<Moment>,
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
            hold: Hold::new(first_hold),
            conflict: None,
            log_read: None,
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

    pub(super) fn swapped(&mut self, scan_started: Moment) {
        self.scan_started = Some(scan_started);
        self.cold_reason = None;
        if self.revoked.as_ref().is_some_and(|(at, _)| *at < scan_started) {
            self.revoked = None;
        }
    }

    /// Returns true if neither a revocation nor a hold keeps the filter from being trusted.
    pub(super) fn is_undisturbed(&self) -> bool {
        self.revoked.is_none() && self.hold.length().is_none()
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
        promise
            .max_lag
            .map_or(until, |max_lag| until.min(self.log_read.map_or(Moment::NEVER, |sent| sent.plus(max_lag))))
    }

    pub(super) fn fresh_since(&self, promise: &Promise) -> Option<Moment> {
        let scan = self.scan_started?;
        let polled = promise.freshness == Freshness::Polled;
        Some(if polled { self.polls.complete(scan).unwrap_or(scan) } else { scan })
    }
}
