//! The reader's part of the roll call, with the roster that it knows.

use std::sync::Arc;

use crate::clock::Moment;
use crate::fleet::{LogPage, RollCall, RollCallState, Roster, RosterPage, WriterId};
use crate::keyspace::membership::Membership;
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
