//! The reader's part of the roll call, with the roster that it knows.

use std::sync::Arc;

use super::LogFollower;
use crate::clock::Moment;
use crate::fleet::{LogPage, Loss, RollCall, RollCallState, Roster, RosterPage, WriterId};
use crate::keyspace::membership::Membership;
use crate::labels::{ResyncReason, RollCallOutcome};
use crate::redis::LogIdentity;

/// `None` where no roll call is held: another log always costs a scan.
pub(super) struct Reports(Option<Awaited>);

struct Awaited {
    membership: Arc<Membership>,
    roll_call: RollCall,
    /// Of the page that was read last.
    roster: Roster,
    wants_all: bool,
}

/// What a page brought beside its entries.
pub(super) struct RosterRead {
    page: RosterPage,
    roster: Option<Roster>,
    sent: Moment,
    arrived: Moment,
}

impl RosterRead {
    pub(super) fn of(page: &mut LogPage, sent: Moment) -> Self {
        Self { page: RosterPage::from(&*page), roster: page.roster.take(), sent, arrived: Moment::now() }
    }

    pub(super) const fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }
}

impl Reports {
    pub(super) fn new(membership: Option<Arc<Membership>>, own: WriterId) -> Self {
        Self(membership.map(|membership| Awaited {
            roll_call: RollCall::new(own, membership.terms()),
            membership,
            roster: Roster::default(),
            wants_all: true,
        }))
    }

    /// Enrols in the log that is read, or renews.
    pub(super) async fn enrol(&mut self, read: Option<LogIdentity>) {
        let Some(awaited) = &mut self.0 else { return };
        if let Some((log, sent)) = awaited.membership.enrol(read).await {
            awaited.roll_call.enrolled(log, sent);
            // Now and then all of it: renewals are no change.
            awaited.wants_all = true;
        }
    }

    /// The version of the roster that need not be read again.
    pub(super) fn known(&self) -> Option<&str> {
        let awaited = self.0.as_ref()?;
        let wants_all = awaited.wants_all || awaited.membership.is_waiting();
        (!wants_all).then_some(awaited.roster.version.as_str())
    }

    /// As [`RollCall::log_replaced`].
    pub(super) fn log_replaced(&mut self, before: LogIdentity, is_whole: bool) -> bool {
        self.0.as_mut().is_some_and(|awaited| awaited.roll_call.log_replaced(before, is_whole, Moment::now()))
    }

    /// A page that leaves nothing unread has taken effect.
    pub(super) async fn applied(&mut self, read: RosterRead, slack: std::time::Duration) -> RollCallState {
        let Some(awaited) = &mut self.0 else { return RollCallState::Idle };
        let RosterRead { page, roster, sent, arrived } = read;
        if let Some(roster) = roster {
            awaited.roster = roster;
            awaited.wants_all = false;
            awaited.membership.applied(&page, &awaited.roster, arrived).await;
        }
        awaited.roll_call.applied(page.log, &awaited.roster, sent, arrived, slack)
    }
}

impl LogFollower {
    /// Reports of the instances that wrote to the log before may stand in for a scan.
    pub(super) fn await_reports(&self) {
        let window = self.parts.windows.longest().window;
        tracing::warn!(
            keyspace = self.name(),
            scan_in = ?window,
            "delta log replaced: waiting until every instance has announced again"
        );
        let reason = format!(
            "{}; instances announce again what they had announced, and a scan after the commit window restores it if one \
             does not",
            Loss::Replaced
        );
        self.parts.freshness.await_reports(Moment::now().plus(window), reason);
    }

    /// What follows from the reports that have come.
    pub(super) fn apply_roll_call(&self, state: RollCallState) {
        match state {
            RollCallState::Idle => {}
            RollCallState::Waiting(missing) => *self.missing.lock() = missing,
            RollCallState::Complete => {
                tracing::info!(keyspace = self.name(), "every instance has announced again: no scan needed");
                self.parts.freshness.reports_complete();
                self.parts.metrics.log.roll_call(RollCallOutcome::Complete);
            }
            RollCallState::Failed(why) => {
                tracing::warn!(keyspace = self.name(), why, "not every instance has announced again: a scan follows");
                self.parts.metrics.log.roll_call(RollCallOutcome::Failed);
            }
        }
    }

    /// Asks for the scan once the time for reports is over.
    pub(super) fn scan_without_reports(&self) {
        if self.parts.freshness.scan_is_due(Moment::now()) {
            let missing: Vec<String> = self.missing.lock().iter().map(ToString::to_string).collect();
            tracing::warn!(keyspace = self.name(), ?missing, "instances have not announced again in time: scanning");
            self.parts.metrics.log.resync(ResyncReason::Replaced);
            self.parts.rebuild.request();
        }
    }
}
