//! A lookup of k, step by step.

use super::server::Access;
use super::{NAMES, Out, Protocol, step};
use crate::rule::Rule;
use crate::search::Step;
use crate::world::{A, Ask, AskStep, CACHE, Entry, Hot, Node, PutStep, Row, World};

const WRONG_404: &str = "a row that exists is answered 404";
const STALE: &str = "an old value is answered after its invalidation";

impl Protocol {
    pub(super) fn lookup(&self, world: &World, x: usize, slot: usize, out: Out<'_>) {
        if !self.scenario.asks[x][slot] {
            return;
        }
        if world.asks[x][slot].at == AskStep::None {
            for version in [false, true] {
                if !version
                    || self.scenario.versions
                        && x != A
                        && world.put.at == PutStep::Acknowledged
                        && world.row != Row::None
                {
                    self.ask(world, x, slot, version, out);
                }
            }
            return;
        }
        self.give_up(world, x, slot, out);
        let mut next = *world;
        let node = world.nodes[x];
        match world.asks[x][slot].at {
            AskStep::None | AskStep::Joined => {}
            AskStep::Begun => self.ask_filter(&mut next, x, slot, out),
            AskStep::Maybe => self.ask_hot(&mut next, x, slot, out),
            AskStep::HotMissed => self.join(&mut next, x, slot, out),
            AskStep::Leading => self.ask_redis(&mut next, x, slot, out),
            AskStep::RedisMissed => {
                let ask = &mut next.asks[x][slot];
                ask.found = world.row;
                ask.at = if self.scenario.redis { AskStep::Loaded } else { AskStep::Filled };
                let what = if world.row == Row::None { "the backend says absent" } else { "the backend has the row" };
                out.push(step(NAMES[x], what, next));
            }
            AskStep::Loaded => {
                let what = self.fill_redis(&mut next, x, slot);
                next.asks[x][slot].at = AskStep::Filled;
                out.push(step(NAMES[x], what, next));
            }
            AskStep::Filled => {
                let ask = world.asks[x][slot];
                next.asks[x][slot].at = AskStep::HotStored;
                let what = if ask.detached && self.on(Rule::HotStoreIsOneStep) && ask.found != Row::None {
                    "detached: stores nothing hot"
                } else if ask.found == Row::None {
                    next.nodes[x].hot = Hot::Absence;
                    "stores a hot absence"
                } else {
                    next.nodes[x].hot = Hot::Value(ask.found);
                    "stores a hot value"
                };
                out.push(step(NAMES[x], what, next));
            }
            AskStep::HotStored => {
                self.look_again(&mut next.nodes[x], &world.asks[x][slot], &node);
                next.asks[x][slot].at = AskStep::Answering;
                if self.scenario.asks[x][1 - slot] {
                    out.push(step(NAMES[x], "looks again", next));
                } else {
                    out.push(self.answer_all(next, x, slot, "looks again"));
                }
            }
            AskStep::Answering => out.push(self.answer_all(next, x, slot, "is done")),
        }
    }

    fn ask(&self, world: &World, x: usize, slot: usize, version: bool, out: Out<'_>) {
        if self.scenario.late && world.left.faults == self.scenario.left.faults {
            return;
        }
        let node = &world.nodes[x];
        let must_find = self.must_find(world, x, version);
        let unapplied = version && !Self::applied(world, node);
        if self.scenario.probes_only {
            let rejected = self.trusted(node) && node.filter == Some(false) && !unapplied;
            if must_find && rejected {
                out.push(Step {
                    wrong: Some(WRONG_404),
                    ..step(NAMES[x], "GET is answered 404 from the filter", *world)
                });
            }
            return;
        }
        let mut next = *world;
        let stale = self.scenario.row == Row::Old && !self.scenario.announces;
        next.asks[x][slot] = Ask {
            at: AskStep::Begun,
            left: self.scenario.deadline + 1,
            must_find,
            must_be_new: stale && world.change.step == 9 && node.dropped && world.row != Row::Old,
            version,
            ..Ask::default()
        };
        let what = match (version, must_find) {
            (false, false) => "GET begins",
            (false, true) => "GET begins, and must find the row",
            (true, _) => "GET begins with the version, and must find the row",
        };
        out.push(step(NAMES[x], what, next));
    }

    fn give_up(&self, world: &World, x: usize, slot: usize, out: Out<'_>) {
        let ask = world.asks[x][slot];
        if ask.left != 1 || ask.at == AskStep::HotStored && self.on(Rule::LookAgainIsNotCut) {
            return;
        }
        let mut next = *world;
        next.asks[x][slot] = Ask::default();
        if ask.at >= AskStep::Leading && next.asks[x][1 - slot].at == AskStep::Joined {
            next.asks[x][1 - slot] = Ask::default();
        }
        out.push(step(NAMES[x], "GET gives up, 503", next));
    }

    fn ask_filter(&self, next: &mut World, x: usize, slot: usize, out: Out<'_>) {
        let node = next.nodes[x];
        let trusted = self.trusted(&node);
        let unapplied = next.asks[x][slot].version && !Self::applied(next, &node);
        if trusted && node.filter == Some(false) && !unapplied {
            out.push(self.answer_one(*next, x, slot, Row::None, "the filter answers"));
            return;
        }
        let ripe = self.ripe(next, &node);
        let ask = &mut next.asks[x][slot];
        (ask.at, ask.unapplied, ask.trusted) = (AskStep::Maybe, unapplied, trusted && node.filter == Some(true));
        (ask.log, ask.ripe, ask.scans) = (node.follower.log, ripe, node.scans);
        out.push(step(NAMES[x], if trusted { "the filter says maybe" } else { "may not reject" }, *next));
    }

    fn ask_hot(&self, next: &mut World, x: usize, slot: usize, out: Out<'_>) {
        let node = next.nodes[x];
        match node.hot {
            Hot::Value(row) => out.push(self.answer_one(*next, x, slot, row, "the hot tier answers")),
            Hot::Absence if self.may_serve(&node, &next.asks[x][slot]) => {
                out.push(self.answer_one(*next, x, slot, Row::None, "the hot tier answers"));
            }
            _ => {
                next.asks[x][slot].at =
                    if self.scenario.asks[x][1 - slot] { AskStep::HotMissed } else { AskStep::Leading };
                out.push(step(NAMES[x], "the hot tier has nothing to use", *next));
            }
        }
    }

    fn join(&self, next: &mut World, x: usize, slot: usize, out: Out<'_>) {
        let leader = next.asks[x][1 - slot];
        let ask = &mut next.asks[x][slot];
        let under_way = leader.at >= AskStep::Leading && leader.at < AskStep::Joined;
        let joinable = under_way && !(leader.detached && self.on(Rule::Detach));
        if joinable && !(ask.unapplied && self.on(Rule::VersionJoinsNobody)) {
            ask.at = AskStep::Joined;
            ask.detached = leader.at >= AskStep::Loaded || leader.at == AskStep::RedisMissed;
            out.push(step(NAMES[x], "joins the load", *next));
        } else {
            ask.at = AskStep::Leading;
            out.push(step(NAMES[x], "leads a load", *next));
        }
    }

    fn ask_redis(&self, next: &mut World, x: usize, slot: usize, out: Out<'_>) {
        let node = next.nodes[x];
        let entry =
            if self.scenario.redis { self.reach(next, x, CACHE, Access::Read).map(|data| data.entry) } else { None };
        let ask = &mut next.asks[x][slot];
        ask.link = node.links[CACHE];
        let usable = |absence: Entry| match absence {
            Entry::Absence { cache, log, scans } => {
                (!self.on(Rule::AbsenceOfThisScan) || scans >= node.scan)
                    && (!self.on(Rule::AbsenceOfOneLog) || log == node.follower.log)
                    && (!self.on(Rule::AbsenceOfOneCache) || cache == node.links[CACHE])
            }
            _ => false,
        };
        let what = match entry {
            Some(Entry::Value(row)) => {
                (ask.found, ask.at) = (row, AskStep::Filled);
                "finds the value in Redis"
            }
            Some(absence) if usable(absence) && self.may_serve(&node, ask) => {
                (ask.found, ask.at) = (Row::None, AskStep::Filled);
                "finds an absence in Redis"
            }
            Some(entry) => {
                (ask.seen, ask.at) = (entry, AskStep::RedisMissed);
                "finds nothing to use in Redis"
            }
            None => {
                // No answer: the entry is unknown, and nothing will replace it.
                (ask.seen, ask.link, ask.at) = (Entry::Nothing, 0, AskStep::RedisMissed);
                "has no Redis"
            }
        };
        out.push(step(NAMES[x], what, *next));
    }

    fn fill_redis(&self, next: &mut World, x: usize, slot: usize) -> &'static str {
        let ask = next.asks[x][slot];
        let node = next.nodes[x];
        let same = ask.link == node.links[CACHE] || !self.on(Rule::SameConnection) && ask.link != 0;
        let absence = self.stamped_absence(&node, &ask);
        let only_in_nothings_place = self.on(Rule::AbsenceOnlyInNothingsPlace);
        let compare = self.on(Rule::CompareAndSet);
        let Some(data) = self.reach(next, x, CACHE, Access::Store).filter(|_| same) else {
            return "stores nothing in Redis";
        };
        if ask.found == Row::None {
            let Some(absence) = absence else { return "stores no absence in Redis" };
            if only_in_nothings_place && data.entry != Entry::Nothing {
                return "finds the entry taken, stores no absence in Redis";
            }
            (data.entry, data.left) = (absence, 0);
            "stores an absence in Redis"
        } else if !compare || data.entry == ask.seen {
            (data.entry, data.left) = (Entry::Value(ask.found), 0);
            "stores the value in Redis"
        } else {
            "finds another entry, stores no value in Redis"
        }
    }

    /// The absence that may be stored, if one may.
    fn stamped_absence(&self, node: &Node, ask: &Ask) -> Option<Entry> {
        let trusted = ask.trusted && self.trusted(node);
        let forbidden = node.memory > 0 && self.on(Rule::MemoryForbidsShared)
            || !trusted && self.on(Rule::OnlyTrustedStore)
            || !ask.ripe && self.on(Rule::YoungCacheKeepsNoAbsence);
        if forbidden {
            return None;
        }
        let cache = node.links[CACHE];
        if !self.on(Rule::AbsenceStampedByFollower) {
            return Some(Entry::Absence { cache, log: node.links[self.log()], scans: ask.scans });
        }
        // If log and entries are on one server, both must mean the same run.
        (self.scenario.split || ask.log == cache).then_some(Entry::Absence { cache, log: ask.log, scans: ask.scans })
    }

    fn look_again(&self, next: &mut Node, ask: &Ask, node: &Node) {
        let detached = ask.detached && self.on(Rule::Detach);
        if ask.found == Row::None {
            let remembered = self.on(Rule::LookAgain) && node.memory > 0;
            let untrusted = self.on(Rule::LookAgainAtTrust) && !(ask.trusted && self.trusted(node));
            if remembered || untrusted || detached {
                next.drop_absence();
            }
        } else if detached && next.hot == Hot::Value(ask.found) {
            next.hot = Hot::Nothing;
        }
    }

    fn may_serve(&self, node: &Node, ask: &Ask) -> bool {
        (node.memory == 0 || !self.on(Rule::MemoryForbidsServing))
            && (self.trusted(node) || !self.on(Rule::OnlyTrustedServe))
            && (!ask.unapplied || !self.on(Rule::VersionForbidsAbsence))
    }

    /// Answers a lookup and the one that has joined it.
    fn answer_all(&self, mut next: World, x: usize, slot: usize, what: &'static str) -> Step<World> {
        let found = next.asks[x][slot].found;
        let mut wrong = wrong_of(&next.asks[x][slot], found);
        next.asks[x][slot] = Ask::default();
        let other = &mut next.asks[x][1 - slot];
        if other.at == AskStep::Joined {
            if found == Row::None && other.detached && self.on(Rule::ShareEarlyOnly) {
                (other.at, other.detached) = (AskStep::Leading, false);
            } else {
                wrong = wrong.or(wrong_of(other, found));
                *other = Ask::default();
            }
        }
        Step { who: NAMES[x], what: answer(what, found), next, wrong }
    }

    fn answer_one(&self, mut next: World, x: usize, slot: usize, found: Row, what: &'static str) -> Step<World> {
        let wrong = wrong_of(&next.asks[x][slot], found);
        next.asks[x][slot] = Ask::default();
        Step { who: NAMES[x], what: answer(what, found), next, wrong }
    }
}

fn wrong_of(ask: &Ask, found: Row) -> Option<&'static str> {
    match found {
        Row::None if ask.must_find => Some(WRONG_404),
        Row::Old if ask.must_be_new => Some(STALE),
        _ => None,
    }
}

fn answer(what: &'static str, found: Row) -> &'static str {
    match (what, found) {
        ("the filter answers", _) => "404 from the filter",
        ("the hot tier answers", Row::None) => "404 from the hot tier",
        ("the hot tier answers", _) => "200 from the hot tier",
        ("looks again", Row::None) => "looks again, 404",
        ("looks again", _) => "looks again, 200",
        (_, Row::None) => "404",
        _ => "200",
    }
}
