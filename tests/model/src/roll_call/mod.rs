//! The roll call: when a reader may trust a new log without a scan.
//!
//! One reader, a writer that the log knows, a newcomer, one key k that one of them announces. The log is replaced, and
//! its entries are lost. Where a later step allows an instance more, the model takes it: a page is answered when it is
//! sent, an announce is appended and acknowledged in one step, a writer that can renew does, and the row is committed
//! at the last moment.

mod reader;
#[allow(missing_docs, reason = "the fields are the model's own, and most say what they are")]
mod state;
mod writer;

use self::state::{CUT_OFF, FORMER, Field, Log, PRESENT, PutStep, R, Reader, Writer};
pub use self::state::{Left, State};
use crate::rule::{Rule, Rules};
use crate::search::{Model, Step, Steps};

/// Bounds of one search.
#[derive(Debug, Clone, Copy)]
pub struct RollCall {
    /// Its name.
    pub name: &'static str,
    /// `commit_window` in ticks; `deadline` and `max_lag` are one.
    pub window: u8,
    /// A newcomer's wait and the reader's lease.
    pub lease: u8,
    /// A writer that renewed longer ago is no descendant.
    pub descent: u8,
    /// A member that was silent for so long may be removed; 0: never.
    pub silence: u8,
    /// A newcomer need not wait if everyone has confirmed it.
    pub confirms: bool,
    /// The primary may be cut off with the writers, and confirm nothing to them.
    pub cut_off: bool,
    /// How many events may happen.
    pub left: Left,
    /// The active rules.
    pub rules: Rules,
}

const DEADLINE: u8 = 1;
const MAX_LAG: u8 = 1;

const NONE: Left = Left { changes: 1, crashes: 0, leaves: 0, restarts: 0, rosters: 0 };
const CALL: RollCall = RollCall {
    name: "",
    window: 2,
    lease: 2,
    descent: 2,
    silence: 0,
    confirms: false,
    cut_off: false,
    left: NONE,
    rules: Rules::ALL,
};
/// Writers crash and leave.
const LOSSES: Left = Left { crashes: 1, leaves: 1, ..NONE };

/// The searches, the shortest first: those of every test run, and the others.
#[rustfmt::skip]
pub const SHORT: &[RollCall] = &[
    RollCall { name: "roll-call", left: LOSSES, ..CALL },
    RollCall { name: "roll-call-twice", left: Left { changes: 2, ..NONE }, ..CALL },
];

/// See `SHORT`.
#[rustfmt::skip]
pub const DEEP: &[RollCall] = &[
    RollCall { name: "roll-call-losses", window: 3, left: Left { changes: 3, ..LOSSES }, ..CALL },
    RollCall { name: "roll-call-restart", window: 3, left: Left { changes: 2, restarts: 1, ..LOSSES }, ..CALL },
    RollCall { name: "roll-call-cut-off", cut_off: true, left: Left { changes: 2, ..NONE }, ..CALL },
    RollCall { name: "roll-call-roster-lost", left: Left { rosters: 1, ..NONE }, ..CALL },
    RollCall { name: "roll-call-removal", silence: 2, left: Left { changes: 2, ..NONE }, ..CALL },
    RollCall { name: "roll-call-confirmed", confirms: true, left: LOSSES, ..CALL },
    RollCall { name: "roll-call-confirmed-twice", confirms: true, left: Left { changes: 2, ..NONE }, ..CALL },
    RollCall { name: "roll-call-confirmed-removal", lease: 1, descent: 1, silence: 1, confirms: true, ..CALL },
];

const NAMES: [&str; 3] = ["reader", "old writer", "newcomer"];
const WRONG: &str = "a row that exists is answered 404";

impl Model for RollCall {
    type State = State;

    fn starts(&self) -> Vec<State> {
        let field = Some(Field { confirmed: 3, told: true, silent: 0 });
        let log = Log { age: self.lease, roster: [field, field, None], ..Log::default() };
        let reader = Reader { log: PRESENT, filter: Some(false), known: 3, viewed: 3, ..Reader::default() };
        let mut state = State { log, reader, ..State::default() };
        state.writers[1] = Writer { alive: true, link: PRESENT, admitted: true, ..Writer::default() };
        state.writers[2] = Writer { alive: true, ..Writer::default() };
        state.left = self.left;
        vec![state]
    }

    fn steps(&self, state: &State, out: &mut Steps<State>) {
        if self.is_decided(state) {
            return;
        }
        self.tick(state, out);
        self.server(state, out);
        self.read(state, out);
        self.scan(state, out);
        for x in 1..3 {
            self.writer(state, x, out);
        }
        self.ask(state, out);
        out.iter_mut().for_each(|step| self.canonical(&mut step.next));
    }
}

impl RollCall {
    fn on(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    fn oldest(&self) -> u8 {
        self.lease.max(self.window + 1)
    }

    /// What affects no later step is the same everywhere.
    fn canonical(&self, state: &mut State) {
        if !self.confirms {
            let field = Field { told: true, ..Field::default() };
            state.log.roster[R] = Some(field);
            state.reader.renewed = 0;
            state.reader.viewed = 0;
        }
        if !self.confirms && self.left.restarts == 0 {
            state.log.age = 0;
        }
        if self.silence == 0 {
            for log in [Some(&mut state.log), state.cut_off.as_mut()].into_iter().flatten() {
                log.roster.iter_mut().flatten().for_each(|field| field.silent = 0);
            }
            for x in 1..3 {
                let counts = state.writers[x].link == PRESENT
                    || state.writers[x].link == CUT_OFF && !self.on(Rule::RenewalsAreReplicated);
                if counts {
                    // Who can renew does: the later it did, the more it may do.
                    state.writers[x].renewed = 0;
                }
            }
        }
        for x in 1..3 {
            let writer = &mut state.writers[x];
            if writer.link == 0 && self.on(Rule::AdmissionIsAnswered) || writer.admitted {
                writer.waited = 0;
            }
            if writer.link == 0 && !writer.admitted
                || writer.link == 0 && writer.renewed >= self.descent && self.on(Rule::DescentEnds)
            {
                (writer.admitted, writer.renewed) = (false, 0);
            }
        }
    }

    /// Nothing can go wrong any more.
    fn is_decided(&self, state: &State) -> bool {
        let late = if self.on(Rule::AcknowledgeWithinDeadline) { DEADLINE } else { self.window };
        let failed = state.put.at == PutStep::Remembered && state.put.age > late;
        let over = state.left.changes == 0 && state.cut_off.is_none() && state.left.restarts == 0;
        let reader = &state.reader;
        let settled = reader.log == PRESENT && reader.pending.is_none() && reader.lost.is_none();
        failed || state.left.restarts == 0 && reader.remembers || over && settled && state.put.at == PutStep::NotBegun
    }

    fn tick(&self, state: &State, out: &mut Steps<State>) {
        let mut next = *state;
        let most = self.oldest();
        for log in [Some(&mut next.log), next.cut_off.as_mut()].into_iter().flatten() {
            up(&mut log.age, most);
            for field in log.roster.iter_mut().flatten() {
                up(&mut field.silent, self.silence);
            }
        }
        let reader = &mut next.reader;
        up(&mut reader.seen, most);
        up(&mut reader.renewed, most);
        up(&mut reader.lag, MAX_LAG + 1);
        for timer in [&mut reader.lost, &mut reader.pending].into_iter().flatten() {
            *timer = timer.saturating_sub(1);
        }
        for writer in &mut next.writers[1..] {
            up(&mut writer.waited, self.lease);
            up(&mut writer.renewed, self.descent.max(self.silence));
        }
        match state.put.at {
            PutStep::NotBegun => {}
            PutStep::Remembered => up(&mut next.put.age, self.window + DEADLINE + 1),
            PutStep::Acknowledged => {
                up(&mut next.put.age, self.window + DEADLINE + 1);
                up(&mut next.put.known, MAX_LAG + 1);
            }
        }
        out.push(step("clock", "tick", next));
    }

    fn server(&self, state: &State, out: &mut Steps<State>) {
        if state.left.changes > 0 {
            let mut next = *state;
            next.left.changes -= 1;
            next.log = Log::default();
            if next.reader.log == PRESENT {
                next.reader.log = FORMER;
            }
            if self.cut_off && state.cut_off.is_none() {
                let mut cut = next;
                cut.cut_off = Some(Log { holds: false, ..state.log });
                cut.writers.iter_mut().filter(|writer| writer.link == PRESENT).for_each(|writer| writer.link = CUT_OFF);
                out.push(step("Redis", "is CUT OFF with the writers; its replica takes over", cut));
            }
            next.writers.iter_mut().filter(|writer| writer.link == PRESENT).for_each(Writer::disconnect);
            out.push(step("Redis", "RESTARTS EMPTY: another log", next));
        }
        if state.cut_off.is_some() {
            let mut next = State { cut_off: None, ..*state };
            next.writers.iter_mut().filter(|writer| writer.link == CUT_OFF).for_each(Writer::disconnect);
            out.push(step("Redis", "the old primary is gone", next));
        }
        if state.left.rosters > 0 && state.log.members() != 0 {
            let mut next = *state;
            next.left.rosters -= 1;
            next.log.roster = Default::default();
            out.push(step("Redis", "LOSES THE ROSTER alone", next));
        }
        if self.silence > 0 {
            self.remove(state, out);
        }
    }

    /// Another instance removes a member.
    fn remove(&self, state: &State, out: &mut Steps<State>) {
        const WHAT: [&str; 3] =
            ["the reader's field is removed", "the old writer's field is removed", "the newcomer's field is removed"];
        for (x, what) in WHAT.into_iter().enumerate() {
            if x == R && !self.confirms {
                continue;
            }
            let Some(field) = state.log.roster[x] else { continue };
            if field.silent >= self.silence || !self.on(Rule::RemoveOnlySilent) {
                let mut next = *state;
                next.log.roster[x] = None;
                out.push(step("another instance", what, next));
            }
        }
    }

    fn ask(&self, state: &State, out: &mut Steps<State>) {
        let must_find = state.put.at == PutStep::Acknowledged && state.put.known > MAX_LAG;
        if must_find && state.reader.filter == Some(false) && self.trusted(&state.reader) {
            out.push(Step { wrong: Some(WRONG), ..step("reader", "GET is answered 404 from the filter", *state) });
        }
    }

    fn trusted(&self, reader: &Reader) -> bool {
        reader.lost.is_none() && reader.pending.is_none() && reader.lag <= MAX_LAG
    }
}

fn up(ticks: &mut u8, most: u8) {
    *ticks = most.min(*ticks + 1);
}

fn step(who: &'static str, what: &'static str, next: State) -> Step<State> {
    Step { who, what, next, wrong: None }
}
