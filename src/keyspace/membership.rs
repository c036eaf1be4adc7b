//! This instance as a member of the delta log's roster: whether it may announce, and what it reports.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Moment;
use crate::fleet::{
    DeltaLog, Enrolled, Enrolling, Enrolment, LogError, RollCallTerms, Roster, RosterChange, RosterPage, WriterId,
};
use crate::redis::LogIdentity;

pub(crate) struct Membership {
    log: Arc<dyn DeltaLog>,
    keyspace: String,
    terms: RollCallTerms,
    state: Mutex<MemberState>,
}

struct MemberState {
    enrolment: Enrolment,
    /// The log whose page shows the fleet's enforcement as it is known here.
    switch_is_in: Option<LogIdentity>,
    /// Until then announces of this instance are within their window that it can't announce again.
    forgotten_until: Moment,
    has_left: bool,
}

impl Membership {
    pub(crate) fn new(
        log: Arc<dyn DeltaLog>,
        keyspace: &str,
        writer: WriterId,
        terms: RollCallTerms,
        is_first_start: bool,
    ) -> Self {
        let enrolment = Enrolment::new(writer, terms, is_first_start);
        let state = MemberState { enrolment, switch_is_in: None, forgotten_until: Moment::NEVER, has_left: false };
        Self { log, keyspace: keyspace.to_owned(), terms, state: Mutex::new(state) }
    }

    pub(crate) const fn terms(&self) -> RollCallTerms {
        self.terms
    }

    /// Why announces are not acknowledged yet; `None`: they are.
    pub(crate) fn enrolling(&self) -> Option<Enrolling> {
        self.state.lock().enrolment.enrolling()
    }

    /// This is no first start.
    pub(crate) fn refuse_first_start(&self) {
        self.state.lock().enrolment.refuse_first_start();
    }

    /// Returns true if it must see the whole roster.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.lock().enrolment.is_waiting()
    }

    /// Enrols or renews, if that is due. `read` is the log that was read last. Returns the log of the answer, and when
    /// the question was sent.
    pub(crate) async fn enrol(&self, read: Option<LogIdentity>) -> Option<(LogIdentity, Moment)> {
        let sent = Moment::now();
        let due = {
            let state = self.state.lock();
            state.enrolment.due(read, sent).filter(|_| !state.has_left)?
        };
        let answer = self.change(due).await.ok()?;
        let has_left = {
            let mut state = self.state.lock();
            state.enrolment.enrolled(answer, sent, Moment::now());
            state.has_left
        };
        if has_left {
            // This enrolment was under way when it left.
            let _ = self.change(RosterChange::Leave).await;
        }
        answer.member.map(|_| (answer.log, sent))
    }

    /// A page that leaves nothing unread has taken effect, with this roster: does what follows from it.
    pub(crate) async fn applied(&self, page: &RosterPage, roster: &Roster, arrived: Moment) {
        let due = self.state.lock().enrolment.applied(page, roster, arrived);
        let Some(due) = due else { return };
        let Ok(answer) = self.change(due).await else { return };
        match due {
            RosterChange::Admit => {
                self.state.lock().enrolment.admitted(answer);
                tracing::info!(
                    keyspace = self.keyspace,
                    members = roster.members.len(),
                    "enrolled: this instance may announce"
                );
            }
            RosterChange::Remove(writer, _) => {
                tracing::warn!(keyspace = self.keyspace, %writer, "removed an instance that is silent from the roster");
            }
            RosterChange::Enrol { .. } | RosterChange::Report(_) | RosterChange::Leave => {}
        }
    }

    /// This log has the fleet's enforcement as it is known here.
    pub(crate) fn switch_is_in(&self, log: LogIdentity) {
        self.state.lock().switch_is_in = Some(log);
    }

    /// Announces that are within their window until then can't be announced again.
    pub(crate) fn forgot_until(&self, until: Moment) {
        let mut state = self.state.lock();
        state.forgotten_until = state.forgotten_until.max(until);
    }

    /// Reports that everything that this instance had announced is in the log again, over the connection that brought
    /// it. Returns true if it did.
    pub(crate) async fn report(&self, epoch: Option<u64>) -> bool {
        let log = {
            let state = self.state.lock();
            let can_report = state.switch_is_in == state.enrolment.log() && state.forgotten_until <= Moment::now();
            state.enrolment.log().filter(|_| can_report)
        };
        let Some(log) = log else { return false };
        self.log.change_roster(RosterChange::Report(log), epoch).await.is_ok_and(|answer| answer.member.is_some())
    }

    /// Leaves the roster, after the last announce: then nobody waits for this instance.
    pub(crate) async fn leave(&self) {
        self.state.lock().has_left = true;
        if let Err(error) = self.change(RosterChange::Leave).await {
            tracing::debug!(keyspace = self.keyspace, %error, "could not leave the roster");
        }
    }

    async fn change(&self, change: RosterChange) -> Result<Enrolled, LogError> {
        let answer = self.log.change_roster(change, None).await;
        answer.inspect_err(|error| tracing::debug!(keyspace = self.keyspace, ?change, %error, "roster not changed"))
    }
}
