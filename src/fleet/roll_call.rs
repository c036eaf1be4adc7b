//! What a reader needs so that another log costs it no scan: a report of every writer of the log before.
//!
//! Knows neither a clock nor a connection, like [`Follower`](super::Follower). Rules and proof: `docs/consistency.md`.

use std::collections::BTreeSet;
use std::time::Duration;

use super::roster::{RollCallTerms, Roster};
use super::writer::WriterId;
use crate::clock::Moment;
use crate::redis::LogIdentity;

/// A reader's part of the roll call.
#[derive(Debug)]
pub struct RollCall {
    own: WriterId,
    terms: RollCallTerms,
    /// The log of the last enrolment that was answered, and when that was sent.
    enrolled: Option<(LogIdentity, Moment)>,
    heard: Option<Heard>,
    pending: Option<Pending>,
}

/// What the last page showed that left nothing of its log unread.
#[derive(Debug, Clone)]
struct Heard {
    log: LogIdentity,
    members: BTreeSet<WriterId>,
    /// When that page was asked for.
    sent: Moment,
    /// When the enrolment was sent that was answered before that.
    enrolled: Moment,
}

/// The reports that are awaited.
#[derive(Debug, Clone)]
struct Pending {
    unheard: BTreeSet<WriterId>,
    /// Everything that was acknowledged before this has been read.
    since: Moment,
    /// When the enrolment was sent by which these writers are all that there are. Further logs move neither.
    enrolled: Moment,
}

/// How the roll call stands after a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollCallState {
    /// None is under way.
    Idle,
    /// These have not reported yet.
    Waiting(Vec<WriterId>),
    /// All have reported: nothing was lost.
    Complete,
    /// It can't complete any more: only a scan helps.
    Failed(&'static str),
}

impl RollCall {
    /// A reader that has read nothing yet.
    #[must_use]
    pub const fn new(own: WriterId, terms: RollCallTerms) -> Self {
        Self { own, terms, enrolled: None, heard: None, pending: None }
    }

    /// An enrolment in this log was answered that was sent then.
    pub fn enrolled(&mut self, log: LogIdentity, sent: Moment) {
        self.enrolled = Some((log, sent));
    }

    /// The first page of another log arrived. Returns true if reports of writers can stand in for a scan. `is_whole`:
    /// nothing was lost of the log before that no scan has found since.
    pub fn log_replaced(&mut self, before: LogIdentity, is_whole: bool, arrived: Moment) -> bool {
        let earlier = self.pending.take();
        let Some(heard) = &self.heard else { return false };
        let judges = match &earlier {
            // What began in the logs since then could only be acknowledged by writers that are known here.
            Some(earlier) => arrived.since(earlier.enrolled) < self.terms.lease,
            None => is_whole && heard.log == before && arrived.since(heard.enrolled) < self.terms.lease,
        };
        if !judges {
            self.heard = None;
            return false;
        }
        let members = heard.members.iter().copied();
        self.pending = Some(match earlier {
            Some(earlier) => Pending { unheard: earlier.unheard.into_iter().chain(members).collect(), ..earlier },
            None => Pending { unheard: members.collect(), since: heard.sent, enrolled: heard.enrolled },
        });
        true
    }

    /// A page of this log that leaves nothing unread has taken effect. `slack`: an announce of another instance may
    /// take this long to arrive.
    pub fn applied(
        &mut self,
        log: LogIdentity,
        roster: &Roster,
        sent: Moment,
        arrived: Moment,
        slack: Duration,
    ) -> RollCallState {
        self.note_members(log, roster, sent);
        let Some(pending) = &mut self.pending else { return RollCallState::Idle };
        if !agrees(roster, self.terms) {
            return self.fail("an instance takes no part in the roll call, or with another roll_call or commit_window");
        }
        let has_reported = |writer: &WriterId| roster.member(*writer).is_some_and(|member| member.reported);
        pending.unheard.retain(|writer| !has_reported(writer));
        if arrived.since(pending.since) > self.terms.window.saturating_sub(slack) {
            return self.fail("not all reports came in time: announces of before may be forgotten by now");
        }
        if !pending.unheard.is_empty() {
            return RollCallState::Waiting(pending.unheard.iter().copied().collect());
        }
        self.pending = None;
        RollCallState::Complete
    }

    fn note_members(&mut self, log: LogIdentity, roster: &Roster, sent: Moment) {
        if !agrees(roster, self.terms) || roster.member(self.own).is_none() {
            self.heard = None;
            return;
        }
        // Over another connection than the pages, an enrolment may be in a further log already.
        let Some((_, enrolled)) = self.enrolled.filter(|(enrolled, _)| *enrolled == log) else {
            self.heard.take_if(|heard| heard.log != log);
            return;
        };
        let members = roster.members.iter().map(|member| member.writer).collect();
        self.heard = Some(Heard { log, members, sent, enrolled });
    }

    fn fail(&mut self, why: &'static str) -> RollCallState {
        self.pending = None;
        RollCallState::Failed(why)
    }
}

/// Returns true if all that announce in the log take part under these terms.
fn agrees(roster: &Roster, terms: RollCallTerms) -> bool {
    !roster.has_strangers && roster.members.iter().all(|member| member.terms == terms)
}

#[cfg(test)]
mod tests;
