//! The writers: enrolling, being admitted, announcing, and telling again in a new log.

use super::state::{Again, CUT_OFF, Log, PRESENT, Put, PutStep, R, State, Writer};
use super::{DEADLINE, NAMES, RollCall, step};
use crate::rule::Rule;
use crate::search::Steps;

impl Writer {
    pub(super) fn disconnect(&mut self) {
        self.link = 0;
        if self.again != Again::Copied {
            self.again = Again::No;
        }
    }
}

impl RollCall {
    pub(super) fn writer(&self, state: &State, x: usize, out: &mut Steps<State>) {
        if !state.writers[x].alive {
            return;
        }
        self.connect(state, x, out);
        self.renew(state, x, out);
        self.admit(state, x, out);
        self.tell_again(state, x, out);
        self.put(state, x, out);
        if state.put.at == PutStep::Remembered && usize::from(state.put.by) == x {
            return;
        }
        if state.left.crashes > 0 {
            let mut next = *state;
            next.left.crashes -= 1;
            next.writers[x] = Writer::default();
            out.push(step(NAMES[x], "CRASHES", next));
        }
        if state.left.leaves > 0 {
            let mut next = *state;
            next.left.leaves -= 1;
            if let Some(log) = reach(&mut next, x) {
                log.roster[x] = None;
                next.writers[x] = Writer::default();
                out.push(step(NAMES[x], "leaves", next));
            }
        }
    }

    fn connect(&self, state: &State, x: usize, out: &mut Steps<State>) {
        let before = state.writers[x];
        if before.link == PRESENT {
            return;
        }
        let mut next = *state;
        let writer = &mut next.writers[x];
        let descends = before.admitted && (before.renewed < self.descent || !self.on(Rule::DescentEnds));
        *writer = Writer { alive: true, link: PRESENT, admitted: descends, again: before.again, ..Writer::default() };
        writer.admitted |= !self.on(Rule::NewcomersWait);
        if before.again != Again::Copied {
            writer.again = Again::Wanted;
        }
        let what = if descends { "connects and enrols, as a descendant" } else { "connects and enrols" };
        next.enrol(x);
        out.push(step(NAMES[x], what, next));
        if before.link == 0 && !self.on(Rule::RenewalsAreReplicated) && state.cut_off.is_some() {
            let mut next = *state;
            next.writers[x] = Writer { alive: true, link: CUT_OFF, ..before };
            next.writers[x].admitted = descends;
            if let Some(log) = &mut next.cut_off {
                log.enrol(x);
            }
            out.push(step(NAMES[x], "enrols at the primary that is cut off", next));
        }
    }

    fn renew(&self, state: &State, x: usize, out: &mut Steps<State>) {
        let before = state.writers[x];
        let mut next = *state;
        let Some(log) = reach(&mut next, x) else { return };
        if before.link == CUT_OFF && self.on(Rule::RenewalsAreReplicated) {
            return;
        }
        let gone = log.roster[x].is_none();
        log.enrol(x);
        let writer = &mut next.writers[x];
        if gone {
            (writer.admitted, writer.waited) = (!self.on(Rule::NewcomersWait), 0);
            writer.again = Again::Wanted;
        }
        writer.renewed = 0;
        if gone || self.silence > 0 {
            out.push(step(NAMES[x], if gone { "enrols anew" } else { "renews" }, next));
        }
    }

    fn admit(&self, state: &State, x: usize, out: &mut Steps<State>) {
        let writer = state.writers[x];
        let mut next = *state;
        let cut_off = writer.link == CUT_OFF && self.on(Rule::RenewalsAreReplicated);
        if writer.admitted || cut_off {
            return;
        }
        let Some(log) = reach(&mut next, x).copied().filter(|log| log.roster[x].is_some()) else {
            if writer.waited >= self.lease && !self.on(Rule::AdmissionIsAnswered) {
                next.writers[x].admitted = true;
                out.push(step(NAMES[x], "takes itself for admitted", next));
            }
            return;
        };
        let unaware = log.roster[R].is_some_and(|field| field.confirmed & (1 << x) == 0);
        let old = log.age >= self.lease || !self.on(Rule::YoungLogWaits);
        let confirmed = self.confirms && old && (!unaware || !self.on(Rule::EveryoneConfirms));
        if writer.waited >= self.lease || confirmed {
            next.writers[x].admitted = true;
            out.push(step(NAMES[x], "is admitted", next));
        }
    }

    fn tell_again(&self, state: &State, x: usize, out: &mut Steps<State>) {
        let writer = state.writers[x];
        let remembered = usize::from(state.put.by) == x
            && state.put.at != PutStep::NotBegun
            && state.put.age <= self.window + DEADLINE;
        let copied = if remembered { Again::Copied } else { Again::Appended };
        if writer.link == PRESENT && writer.again == Again::No && !self.on(Rule::CopyOverTheNewConnection) {
            let mut next = *state;
            next.writers[x].again = copied;
            out.push(step(NAMES[x], "copies its memory early", next));
        }
        if writer.again == Again::No || writer.link != PRESENT {
            return;
        }
        let mut next = *state;
        let Some(field) = &mut next.log.roster[x] else { return };
        if !self.on(Rule::TellAfterAppend) && !field.told {
            let mut next = *state;
            if let Some(field) = &mut next.log.roster[x] {
                field.told = true;
            }
            out.push(step(NAMES[x], "tells before it appends", next));
        }
        let what = match writer.again {
            Again::No => return,
            Again::Wanted => {
                next.writers[x].again = copied;
                if remembered { "copies its memory" } else { "copies its memory, without k" }
            }
            Again::Copied => {
                next.log.holds = true;
                next.writers[x].again = Again::Appended;
                "appends k again"
            }
            Again::Appended => {
                field.told = true;
                next.writers[x].again = Again::No;
                "tells that all is there"
            }
        };
        out.push(step(NAMES[x], what, next));
    }

    fn put(&self, state: &State, x: usize, out: &mut Steps<State>) {
        let writer = state.writers[x];
        let mut next = *state;
        if state.put.at == PutStep::NotBegun {
            next.put = Put { at: PutStep::Remembered, by: x as u8, ..Put::default() };
            out.push(step(NAMES[x], "PUT k is sent and remembered", next));
        }
        if state.put.at != PutStep::Remembered || usize::from(state.put.by) != x || writer.link != PRESENT {
            // Replicas confirm nothing to a primary that is cut off.
            return;
        }
        let in_time = state.put.age <= DEADLINE || !self.on(Rule::AcknowledgeWithinDeadline);
        let fenced = self.on(Rule::AppendOnlyForMembers) && state.log.roster[x].is_none();
        if in_time && writer.admitted && !fenced {
            next.log.holds = true;
            next.put.at = PutStep::Acknowledged;
            out.push(step(NAMES[x], "PUT k is appended and acknowledged, 204", next));
        }
    }
}

/// The log that the writer's connection reaches.
fn reach(state: &mut State, x: usize) -> Option<&mut Log> {
    match state.writers[x].link {
        PRESENT => Some(&mut state.log),
        CUT_OFF => state.cut_off.as_mut(),
        _ => None,
    }
}
