//! Polls: whether repeated queries from a watermark on find all rows of a table.
//!
//! One row k gets its watermark when it is inserted, and becomes visible when its transaction ends: within `overlap`,
//! or later if the transaction is visibly open. Other rows commit meanwhile and raise the highest watermark. One
//! poller, one build at a time. A row that was visible when the last complete poll began must be in a filter that may
//! answer 404.

use crate::rule::{Rule, Rules};
use crate::search::{Model, Step, Steps};

/// Bounds of one search.
#[derive(Debug, Clone, Copy)]
pub struct Polls {
    /// Its name.
    pub name: &'static str,
    /// Watermarks are the database's clock; else they are numbers.
    pub timestamps: bool,
    /// k's transaction may be open for longer than the overlap.
    pub long: bool,
    /// Number of ticks.
    pub end: u8,
    /// The active rules.
    pub rules: Rules,
}

/// The searches, the shortest first.
pub const POLLS: &[Polls] = &[
    Polls { name: "polled-numbers", timestamps: false, long: false, end: 5, rules: Rules::ALL },
    Polls { name: "polled-timestamps", timestamps: true, long: false, end: 4, rules: Rules::ALL },
    Polls { name: "polled-transactions", timestamps: false, long: true, end: 5, rules: Rules::ALL },
];

/// Ticks within which a row becomes visible, unless its transaction is visibly open for longer.
const OVERLAP: u8 = 1;
/// The watermark of a row that is dated far ahead.
const FAR: u8 = 100;
const SEEN: usize = 3;

/// Database, poller and filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State {
    now: u8,
    /// The last number given.
    number: u8,
    /// The highest visible watermark, and the highest that is not ahead of the clock.
    highest: u8,
    highest_past: u8,
    others: u8,
    k: K,
    poller: Poller,
    poll: Poll,
    build: Option<Build>,
    /// k is in the filter, and the filter's scan began when the polls covered it.
    filter: Option<(bool, bool)>,
    /// A poll that began after that scan is complete.
    polled: bool,
    /// k was visible when the last complete poll began.
    owed: bool,
    builds: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum K {
    #[default]
    Nowhere,
    /// Its transaction is open since then.
    Open {
        since: u8,
    },
    Inserted {
        since: u8,
        at: u8,
        watermark: u8,
    },
    Visible {
        watermark: u8,
    },
}

/// By when a watermark had been seen.
type Sighting = (u8, u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Poller {
    seen: [Option<Sighting>; SEEN],
    /// When the last complete poll began, and how long the oldest transaction had been open then.
    began: u8,
    open_for: u8,
    covers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Poll {
    #[default]
    No,
    Begun(Under),
    /// One of transactions and rows was read.
    Half(Under),
    Read(Under),
}

/// A poll in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Under {
    began: u8,
    from: u8,
    open_for: u8,
    highest: u8,
    found: bool,
    /// k was visible when it began.
    owed: bool,
    /// The active filter's scan, and the running one, had begun.
    after_scan: bool,
    after_build: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Build {
    covered: bool,
    scanned: bool,
    holds: bool,
    /// A poll that began later is complete.
    polled: bool,
}

impl Model for Polls {
    type State = State;

    fn starts(&self) -> Vec<State> {
        vec![State {
            now: 1,
            builds: 1,
            others: 1 + u8::from(self.timestamps),
            highest: 1,
            highest_past: 1,
            number: 1,
            ..State::default()
        }]
    }

    fn steps(&self, state: &State, out: &mut Steps<State>) {
        self.database(state, out);
        self.poll(state, out);
        self.build(state, out);
        if state.owed
            && state.polled
            && matches!(state.filter, Some((false, covered)) if covered || !self.on(Rule::ScanAfterCoverage))
        {
            let wrong = Some("a row that was visible when the last complete poll began is answered 404");
            out.push(Step { who: "keyspace", what: "GET is answered from the filter", next: *state, wrong });
        }
    }
}

impl Polls {
    fn on(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    fn database(&self, state: &State, out: &mut Steps<State>) {
        let mut add = |what, next| out.push(Step { who: "database", what, next, wrong: None });
        let due = matches!(state.k, K::Inserted { at, .. } if !self.long && state.now >= at + OVERLAP);
        if state.now < self.end && !due {
            add("tick", State { now: state.now + 1, ..*state });
        }
        let watermark = if self.timestamps { state.now } else { state.number + 1 };
        match state.k {
            K::Nowhere => add("k's transaction begins", State { k: K::Open { since: state.now }, ..*state }),
            K::Open { since } => {
                add(
                    "k is inserted",
                    State { k: K::Inserted { since, at: state.now, watermark }, number: state.number + 1, ..*state },
                );
            }
            K::Inserted { watermark, .. } => {
                add("k is committed: visible", self.visible(State { k: K::Visible { watermark }, ..*state }, watermark))
            }
            K::Visible { .. } => {}
        }
        if state.others > 0 {
            let next = State { number: state.number + 1, others: state.others - 1, ..*state };
            add("another row is committed", self.visible(next, watermark));
            if self.timestamps {
                add(
                    "a row that is dated far ahead is committed",
                    State { others: state.others - 1, highest: FAR, ..*state },
                );
            }
        }
    }

    fn visible(&self, state: State, watermark: u8) -> State {
        State { highest: state.highest.max(watermark), highest_past: state.highest_past.max(watermark), ..state }
    }

    fn poll(&self, state: &State, out: &mut Steps<State>) {
        let mut add = |what, next| out.push(Step { who: "poller", what, next, wrong: None });
        let transactions_first = self.on(Rule::TransactionsBeforeRows);
        match state.poll {
            Poll::No if state.poller.seen[0].is_none() => add("asks where the table stands", self.first(state)),
            Poll::No => add("begins a poll", State { poll: Poll::Begun(self.plan(state)), ..*state }),
            Poll::Begun(mut under) => {
                let what = self.look(state, &mut under, transactions_first);
                add(what, State { poll: Poll::Half(under), ..*state });
            }
            Poll::Half(mut under) => {
                let what = self.look(state, &mut under, !transactions_first);
                add(what, State { poll: Poll::Read(under), ..*state });
            }
            Poll::Read(under) => {
                let mut failed = State { poll: Poll::No, ..*state };
                if !self.on(Rule::FailedPollMovesNothing) {
                    self.note(&mut failed, &under);
                }
                add("the poll fails", failed);
                add("the poll is complete", self.complete(state, &under));
            }
        }
    }

    /// The first watermark: a timestamp can be lowered to cover rows that may still become visible below it.
    fn first(&self, state: &State) -> State {
        let open_for = self.open_for(state);
        let watermark = self.highest(state);
        let lowered = if self.timestamps { watermark.saturating_sub(OVERLAP + 1 + open_for) } else { watermark };
        let mut next = *state;
        next.poller = Poller {
            began: state.now,
            open_for,
            covers: self.timestamps || !self.on(Rule::ScanAfterCoverage),
            ..Poller::default()
        };
        next.poller.seen[0] = Some((state.now, lowered));
        next
    }

    fn plan(&self, state: &State) -> Under {
        let poller = &state.poller;
        let behind = OVERLAP + if self.on(Rule::PollReachesOpenTransactions) { poller.open_for } else { 0 };
        let before = if self.on(Rule::PollFromTheLastOne) { poller.began } else { state.now };
        let seen = poller.seen.iter().flatten();
        let from = seen
            .clone()
            .rfind(|(at, _)| at + behind < before)
            .or(seen.clone().next())
            .map_or(0, |(_, watermark)| *watermark);
        let owed = matches!(state.k, K::Visible { .. });
        let after_build = state.build.is_some();
        Under { began: state.now, from, owed, after_scan: state.filter.is_some(), after_build, ..Under::default() }
    }

    fn look(&self, state: &State, under: &mut Under, transactions: bool) -> &'static str {
        if transactions {
            under.open_for = self.open_for(state);
            return "looks at open transactions";
        }
        under.highest = self.highest(state);
        under.found = matches!(state.k, K::Visible { watermark } if watermark >= under.from);
        if under.found { "reads rows, k among them" } else { "reads rows, without k" }
    }

    fn open_for(&self, state: &State) -> u8 {
        match state.k {
            K::Open { since } | K::Inserted { since, .. } if self.long => state.now - since,
            _ => 0,
        }
    }

    fn highest(&self, state: &State) -> u8 {
        if self.on(Rule::WatermarkNotBeyondNow) { state.highest_past } else { state.highest }
    }

    fn note(&self, next: &mut State, under: &Under) {
        let poller = &mut next.poller;
        (poller.began, poller.open_for) = (under.began, under.open_for);
        let behind = OVERLAP + under.open_for;
        poller.covers |= poller.seen[0].is_some_and(|(at, _)| at + behind < under.began);
        let last = poller.seen.iter().rposition(Option::is_some).unwrap_or_default();
        if poller.seen[last].is_some_and(|(_, watermark)| watermark == under.highest) {
            return;
        }
        // When the list is full, the second entry is dropped: polls then start from a lower one.
        if last + 1 == SEEN {
            poller.seen[1..].rotate_left(1);
            poller.seen[SEEN - 1] = Some((next.now, under.highest));
        } else {
            poller.seen[last + 1] = Some((next.now, under.highest));
        }
    }

    fn complete(&self, state: &State, under: &Under) -> State {
        let mut next = State { poll: Poll::No, ..*state };
        self.note(&mut next, under);
        if under.found {
            next.filter = next.filter.map(|(_, covered)| (true, covered));
            next.build = next.build.map(|build| Build { holds: true, ..build });
        }
        next.owed = under.owed;
        next.polled |= under.after_scan;
        if under.after_build {
            next.build = next.build.map(|build| Build { polled: true, ..build });
        }
        next
    }

    fn build(&self, state: &State, out: &mut Steps<State>) {
        let mut add = |what, next| out.push(Step { who: "build", what, next, wrong: None });
        match state.build {
            None if state.builds > 0 => {
                let build = Build { covered: state.poller.covers, ..Build::default() };
                add(
                    "begins",
                    State { build: Some(build), builds: state.builds - 1, poll: begun_before(state.poll), ..*state },
                );
            }
            None => {}
            Some(build) if !build.scanned => {
                let found = matches!(state.k, K::Visible { .. });
                let scanned = Build { scanned: true, holds: build.holds || found, ..build };
                add(if found { "scans k" } else { "scans, without k" }, State { build: Some(scanned), ..*state });
            }
            Some(build) if build.polled || !self.on(Rule::PollAfterScan) => {
                let polled = build.polled || !self.on(Rule::PollAfterScan);
                add(
                    "swaps",
                    State {
                        build: None,
                        filter: Some((build.holds, build.covered)),
                        polled,
                        poll: begun_before(state.poll),
                        ..*state
                    },
                );
            }
            Some(_) => {}
        }
    }
}

/// A poll in progress has not begun after the present step.
fn begun_before(poll: Poll) -> Poll {
    let before = |under: Under| Under { after_build: false, ..under };
    match poll {
        Poll::No => Poll::No,
        Poll::Begun(under) => Poll::Begun(before(under)),
        Poll::Half(under) => Poll::Half(before(under)),
        Poll::Read(under) => Poll::Read(before(under)),
    }
}
