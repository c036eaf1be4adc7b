//! When an instance may announce in a log: [`Enrolment`].
//!
//! A writer that a reader does not know must not acknowledge announces while that reader may still judge another log
//! by the writers that it knows. So a new one waits until every reader knows it, or until the leases of the others are
//! over. Rules and proof: `docs/consistency.md`.

use std::collections::HashMap;
use std::time::Duration;

use super::log::LogPage;
use super::roster::{Enrolled, Member, RollCallTerms, Roster, RosterChange};
use super::writer::WriterId;
use crate::clock::Moment;
use crate::redis::LogIdentity;

/// An instance's standing in the roster of the log that it reads.
#[derive(Debug)]
pub struct Enrolment {
    own: WriterId,
    terms: RollCallTerms,
    /// The first instance of all need not wait for those of an earlier log.
    is_first_start: bool,
    place: Option<Place>,
    /// The log in which it was admitted last, and when the last renewal there was sent.
    admitted_in: Option<(LogIdentity, Moment)>,
    /// The members seen up to this view have taken effect here.
    seen: u64,
    /// Serial numbers of other members, and when they were first seen.
    serials: HashMap<WriterId, (u64, Moment)>,
    /// Why it may not announce yet, as of the last page.
    enrolling: Option<Enrolling>,
}

/// Where it is enrolled.
#[derive(Debug, Clone, Copy)]
struct Place {
    log: LogIdentity,
    view: u64,
    /// Grows with each renewal; a roster that was lost begins at the same view and at 1.
    serial: u64,
    confirmed: u64,
    /// When the first enrolment was answered.
    since: Moment,
    /// When the last one was sent.
    renewed: Moment,
    admitted: bool,
}

/// Why announces are not acknowledged yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Enrolling {
    /// It is in no roster yet.
    #[error("this instance is not enrolled in the delta log yet")]
    NotYet,
    /// Instances that read an earlier log may not know this one.
    #[error("the delta log is new, and instances may not know this one: it may announce in {0:?}")]
    YoungLog(Duration),
    /// Other instances do not know this one.
    #[error("{0} other instances have not confirmed that they know this one: it may announce in {1:?} at the latest")]
    Unconfirmed(usize, Duration),
}

impl Enrolling {
    /// When to ask again.
    #[must_use]
    pub const fn retry_in(&self) -> Duration {
        match self {
            Self::YoungLog(left) => *left,
            Self::NotYet | Self::Unconfirmed(..) => Duration::from_secs(1),
        }
    }
}

impl Enrolment {
    /// Of a process that has just started.
    #[must_use]
    pub fn new(own: WriterId, terms: RollCallTerms, is_first_start: bool) -> Self {
        Self {
            own,
            terms,
            is_first_start,
            place: None,
            admitted_in: None,
            seen: 0,
            serials: HashMap::new(),
            enrolling: None,
        }
    }

    /// There were announces before.
    pub fn refuse_first_start(&mut self) {
        self.is_first_start = false;
    }

    /// The log in which this instance is enrolled.
    #[must_use]
    pub fn log(&self) -> Option<LogIdentity> {
        self.place.map(|place| place.log)
    }

    /// Returns true while it waits for others: it must see each confirmation.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.place.is_none_or(|place| !place.admitted)
    }

    /// The enrolment that is due; `None`: none. `read`: the log that was read last.
    #[must_use]
    pub fn due(&self, read: Option<LogIdentity>, now: Moment) -> Option<RosterChange> {
        let is_due = self.place.is_none_or(|place| {
            read.is_some_and(|read| read != place.log)
                || now.since(place.renewed) >= self.terms.lease / 4
                || place.confirmed < self.seen
        });
        is_due.then(|| RosterChange::Enrol {
            terms: self.terms,
            confirmed: self.log().map(|log| (log, self.seen)),
            admitted_in: self.heritage(now),
        })
    }

    /// Only for a window: a reader that lost a log knows its writers until then, and after that a scan has forgotten
    /// them.
    fn heritage(&self, now: Moment) -> Option<LogIdentity> {
        self.admitted_in.filter(|(_, renewed)| now.since(*renewed) < self.terms.window).map(|(log, _)| log)
    }

    /// An enrolment that was sent then is answered.
    pub fn enrolled(&mut self, answer: Enrolled, sent: Moment, answered: Moment) {
        let Enrolled { log, member: Some(member), is_replicated } = answer else {
            return;
        };
        // Only the first log can be one without announces before it.
        self.is_first_start &= self.log().is_none_or(|before| before == log);
        let Member { view, serial, confirmed, admitted, .. } = member;
        let is_renewed = |place: &Place| place.log == log && place.view == view && place.serial < serial;
        let before = self.place.filter(is_renewed);
        if before.is_none() {
            self.serials.clear();
            self.seen = 0;
        }
        let since = before.map_or(answered, |place| place.since);
        self.place = Some(Place { log, view, serial, confirmed, since, renewed: sent, admitted });
        // What a failover may lose is no heritage: nobody need know this writer there.
        self.admitted_in = (admitted && is_replicated).then_some((log, sent));
    }

    /// It may announce in this log from now on.
    pub fn admitted(&mut self, answer: Enrolled) {
        if let Some(place) = self.place.as_mut().filter(|place| place.log == answer.log && answer.member.is_some()) {
            place.admitted = true;
            self.admitted_in = answer.is_replicated.then_some((place.log, place.renewed));
        }
    }

    /// A page that leaves nothing unread has taken effect, with the whole roster. Returns what it has to do next.
    pub fn applied(&mut self, page: &RosterPage, roster: &Roster, arrived: Moment) -> Option<RosterChange> {
        let place = self.place.filter(|place| place.log == page.log)?;
        self.seen = self.seen.max(roster.view);
        self.note_serials(roster, arrived);
        self.enrolling = self.awaits(page, place, roster, arrived);
        if !place.admitted && self.enrolling.is_none() {
            return Some(RosterChange::Admit);
        }
        // A window, so that it can't come back as a descendant. Until then its absence costs a scan if the log is lost.
        let is_gone = |member: &&Member| self.silent_for(member.writer, arrived) > member.terms.longest(self.terms);
        let gone = self.others(roster).find(is_gone)?;
        Some(RosterChange::Remove(gone.writer, gone.serial))
    }

    /// Why it may not announce yet; `None`: it may.
    #[must_use]
    pub fn enrolling(&self) -> Option<Enrolling> {
        match self.place {
            Some(place) if place.admitted => None,
            Some(_) => Some(self.enrolling.unwrap_or(Enrolling::NotYet)),
            None => Some(Enrolling::NotYet),
        }
    }

    fn awaits(&self, page: &RosterPage, place: Place, roster: &Roster, now: Moment) -> Option<Enrolling> {
        let lease = roster.members.iter().map(|member| member.terms.lease).fold(self.terms.lease, Duration::max);
        let left = lease.saturating_sub(now.since(place.since));
        if left.is_zero() {
            return None;
        }
        // Readers of an earlier log, or of a roster that was lost, may not have enrolled in this one yet.
        let age = page.age.min(roster.age);
        if age < lease && !self.is_first_start {
            return Some(Enrolling::YoungLog(left.min(lease - age)));
        }
        let unaware = self.others(roster).filter(|member| member.confirmed < place.view).count();
        (unaware > 0).then_some(Enrolling::Unconfirmed(unaware, left))
    }

    fn others<'a>(&self, roster: &'a Roster) -> impl Iterator<Item = &'a Member> + use<'a> {
        let own = self.own;
        roster.members.iter().filter(move |member| member.writer != own)
    }

    fn note_serials(&mut self, roster: &Roster, now: Moment) {
        self.serials.retain(|writer, _| roster.member(*writer).is_some());
        for member in &roster.members {
            let seen = self.serials.entry(member.writer).or_insert((member.serial, now));
            if seen.0 != member.serial {
                *seen = (member.serial, now);
            }
        }
    }

    fn silent_for(&self, writer: WriterId, now: Moment) -> Duration {
        self.serials.get(&writer).map_or(Duration::ZERO, |(_, since)| now.since(*since))
    }
}

/// What a page says of the log that its roster belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RosterPage {
    /// Which log.
    pub log: LogIdentity,
    /// How old it is, by the server's clock.
    pub age: Duration,
}

impl From<&LogPage> for RosterPage {
    fn from(page: &LogPage) -> Self {
        Self { log: page.identity, age: Duration::from_millis(page.now.saturating_sub(page.born)) }
    }
}

#[cfg(test)]
mod tests;
