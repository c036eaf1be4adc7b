//! The reader: pages, pending, the roll call's end, scans.

use super::state::{PRESENT, PutStep, R, Reader, State};
use super::{MAX_LAG, NAMES, RollCall, step};
use crate::rule::Rule;
use crate::search::Steps;

const OWN: u8 = 1 << R;

impl RollCall {
    pub(super) fn read(&self, state: &State, out: &mut Steps<State>) {
        let mut next = *state;
        let reader = &mut next.reader;
        let what = if reader.log == PRESENT { self.complete(reader, state) } else { self.first_page(reader, state) };
        out.push(step(NAMES[R], what, next));
        if self.confirms {
            self.enrol_reader(state, out);
        }
        if self.confirms && reader_confirms(state) {
            let mut next = *state;
            if let Some(field) = &mut next.log.roster[R] {
                field.confirmed = state.reader.viewed;
            }
            out.push(step(NAMES[R], "confirms whom it knows", next));
        }
        if state.left.restarts > 0 {
            let mut next = *state;
            next.left.restarts -= 1;
            let lag = MAX_LAG + 1;
            let seen = self.oldest();
            next.reader = Reader { lag, seen, renewed: seen, ..Reader::default() };
            next.log.roster[R] = None;
            out.push(step(NAMES[R], "CRASHES, and starts cold", next));
        }
    }

    fn enrol_reader(&self, state: &State, out: &mut Steps<State>) {
        let present = state.log.roster[R].is_some();
        let mut next = *state;
        next.reader.renewed = 0;
        if !self.on(Rule::RenewalAloneMovesNothing) {
            next.reader.seen = 0;
        }
        next.enrol(R);
        if !present || next != *state {
            out.push(step(NAMES[R], if present { "renews" } else { "enrols" }, next));
        }
    }

    /// The first page of a log only tells where to begin.
    fn first_page(&self, reader: &mut Reader, state: &State) -> &'static str {
        let within = self.window + 1;
        let started = reader.log == 0;
        (reader.log, reader.viewed) = (PRESENT, 0);
        if started {
            reader.lost = (state.log.age < self.oldest()).then_some(within);
            return "reads its first page";
        }
        let whole = reader.lost.is_none() || !self.on(Rule::OnlyWholeBecomesPending);
        let leased = reader.seen < self.lease || !self.on(Rule::PageWithinLease);
        if whole && leased {
            let unheard = if self.on(Rule::UnheardStayRequired) { reader.required } else { 0 };
            reader.required = (unheard | reader.known) & !OWN;
            reader.pending = Some(within);
            return "reads the first page of another log: PENDING";
        }
        reader.lost = Some(within);
        (reader.pending, reader.required) = (None, 0);
        "reads the first page of another log: a loss"
    }

    fn complete(&self, reader: &mut Reader, state: &State) -> &'static str {
        if state.log.holds {
            reader.remembers = true;
            reader.filter = reader.filter.map(|_| true);
        }
        reader.lag = 0;
        if state.log.roster[R].is_none() && self.on(Rule::OwnFieldOnThePage) {
            return "reads the log to its end, is not on the roster";
        }
        let renewals = self.confirms && self.silence > 0 && self.on(Rule::RenewalBeforePage);
        let seen = if renewals { reader.renewed } else { 0 };
        reader.known = state.log.members();
        reader.viewed = state.log.members();
        let mut what = "reads the log to its end";
        if reader.pending.is_some() {
            reader.required &= !state.log.told();
            if !self.on(Rule::HearEveryWriter) && state.log.told() & !OWN != 0 {
                reader.required = 0;
            }
            let remembered = reader.seen <= self.window || !self.on(Rule::WritersStillRemember);
            if reader.required == 0 && remembered {
                reader.pending = None;
                what = "reads the log to its end: EVERYONE HAS TOLD";
            }
        }
        if reader.pending.is_none() {
            reader.seen = seen;
        }
        what
    }

    pub(super) fn scan(&self, state: &State, out: &mut Steps<State>) {
        let reader = &state.reader;
        let over = |timer: Option<u8>| timer.unwrap_or_default() == 0;
        let wanted = reader.filter.is_none() || reader.lost.is_some() || reader.pending.is_some();
        if reader.log == 0 || !wanted || !over(reader.lost) || !over(reader.pending) {
            return;
        }
        let visible = state.put.at == PutStep::Acknowledged && state.put.age > self.window;
        let mut next = *state;
        let holds = visible || reader.remembers;
        next.reader = Reader { filter: Some(holds), lost: None, pending: None, required: 0, ..*reader };
        out.push(step(NAMES[R], if holds { "scans: k is there" } else { "scans: k is NOT there" }, next));
    }
}

fn reader_confirms(state: &State) -> bool {
    let reader = &state.reader;
    reader.log == PRESENT && state.log.roster[R].is_some_and(|field| field.confirmed != reader.viewed)
}
