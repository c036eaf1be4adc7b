//! The roster of a delta log: which instances read it, and may announce in it.
//!
//! A register beside the log, lost with it. Each page of the log carries it, so that a reader knows every writer of the
//! log that it reads: see [`RollCall`](super::RollCall) and [`Enrolment`](super::Enrolment).

use std::time::Duration;

use super::writer::WriterId;
use crate::redis::LogIdentity;

/// The members of one log at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roster {
    /// Another one after every change but renewals and confirmations.
    pub version: String,
    /// Number of the last member that enrolled.
    pub view: u64,
    /// Time since it was made, by the server's clock. Younger than its log if it was lost alone.
    pub age: Duration,
    /// In no order.
    pub members: Vec<Member>,
    /// Instances are registered that do not enrol: nobody knows what they announce.
    pub has_strangers: bool,
}

/// An instance in the roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its process.
    pub writer: WriterId,
    /// How it takes part.
    pub terms: RollCallTerms,
    /// Grows with every renewal.
    pub serial: u64,
    /// It knows all members up to this view.
    pub confirmed: u64,
    /// The view that it enrolled with.
    pub view: u64,
    /// It may announce.
    pub admitted: bool,
    /// It has announced again what it had announced in earlier logs within its window.
    pub reported: bool,
}

/// How an instance takes part in the roll call. All must take part alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollCallTerms {
    /// How long its enrolment lets a reader judge another log.
    pub lease: Duration,
    /// Announces of this age are announced again.
    pub window: Duration,
}

/// What an instance does in the roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RosterChange {
    /// Enrols, or renews its enrolment.
    Enrol {
        /// Of its member.
        terms: RollCallTerms,
        /// Confirms all members of this log up to this view.
        confirmed: Option<(LogIdentity, u64)>,
        /// The log in which it was admitted last, if that is not long ago: in any other log it is admitted at once.
        admitted_in: Option<LogIdentity>,
    },
    /// May announce from now on.
    Admit,
    /// Has announced again in this log what it had announced within its window.
    Report(LogIdentity),
    /// Removes another member, unless that has renewed its enrolment since this serial.
    Remove(WriterId, u64),
    /// Leaves. It announces nothing after this.
    Leave,
}

/// The answer to a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enrolled {
    /// The log whose roster it is.
    pub log: LogIdentity,
    /// The own member; `None`: it is not in the roster.
    pub member: Option<Member>,
    /// As many replicas have it as an announce needs.
    pub is_replicated: bool,
}

impl Roster {
    /// The member of this process.
    #[must_use]
    pub fn member(&self, writer: WriterId) -> Option<&Member> {
        self.members.iter().find(|member| member.writer == writer)
    }
}

impl RollCallTerms {
    /// The terms of an instance with `redis.roll_call`, `commit_window` and `redis.max_lag`; `None`: it takes no part.
    ///
    /// An announce may take `max_lag` to arrive, and must still be remembered where it came from.
    #[must_use]
    pub fn new(roll_call: Duration, window: Duration, max_lag: Duration) -> Option<Self> {
        let lease = roll_call.min(window.saturating_sub(max_lag));
        (!lease.is_zero()).then_some(Self { lease, window })
    }

    /// The longest time that matters to either.
    pub(super) fn longest(self, other: Self) -> Duration {
        [self.lease, self.window, other.lease, other.window].into_iter().fold(Duration::ZERO, Duration::max)
    }
}

impl Member {
    /// Reads the text under its name in Redis: `lease window serial confirmed view admitted reported`, times in
    /// milliseconds; `None` for another form.
    pub(super) fn parse(writer: &str, text: &str) -> Option<Self> {
        let writer = WriterId(u64::from_str_radix(writer, 16).ok()?);
        let numbers: Vec<u64> = text.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [lease, window, serial, confirmed, view, admitted, reported] = *numbers.as_slice() else { return None };
        Some(Self {
            writer,
            terms: RollCallTerms { lease: Duration::from_millis(lease), window: Duration::from_millis(window) },
            serial,
            confirmed,
            view,
            admitted: admitted == 1,
            reported: reported == 1,
        })
    }
}
