//! An announce of k at A, step by step.

use super::server::Access;
use super::{Out, Protocol, step};
use crate::rule::Rule;
use crate::world::{A, CACHE, Entry, Kind, PutStep, World};

impl Protocol {
    pub(super) fn put(&self, world: &World, out: Out<'_>) {
        if !self.scenario.announces || world.put.at >= PutStep::Acknowledged {
            return;
        }
        if let Some((what, mut next, at)) = self.next_step(world) {
            next.put.at = at;
            out.push(step("A", what, next));
        }
        if self.scenario.redis && world.put.at > PutStep::NotBegun && world.left.faults < self.scenario.left.faults {
            let mut next = *world;
            next.put.at = PutStep::Failed;
            out.push(step("A", "PUT fails, 503", next));
        }
    }

    fn next_step(&self, world: &World) -> Option<(&'static str, World, PutStep)> {
        use PutStep::*;
        let mut next = *world;
        let remember_first = self.on(Rule::RememberFirst);
        let mark_first = self.on(Rule::MarkFirst);
        let (act, at) = match (world.put.at, remember_first, mark_first) {
            (NotBegun, ..) => (Begun, Begun),
            (Begun, true, _) => (Remembered, Remembered),
            (Begun, false, _) | (Remembered, true, _) => (PairLoaded, PairLoaded),
            (PairLoaded, ..) => (FilterSet, FilterSet),
            (FilterSet, ..) => (CandidateSet, CandidateSet),
            (CandidateSet, false, _) => (Remembered, Remembered),
            (CandidateSet, true, first) | (Remembered, false, first) => (if first { Marked } else { Appended }, Marked),
            (Marked, _, first) => (if first { Appended } else { Marked }, Appended),
            (Appended, ..) => (Acknowledged, Acknowledged),
            (Acknowledged | Failed, ..) => return None,
        };
        let what = self.act(&mut next, act)?;
        Some((what, next, at))
    }

    fn act(&self, next: &mut World, act: PutStep) -> Option<&'static str> {
        let scenario = &self.scenario;
        match act {
            PutStep::Begun => {
                let node = &next.nodes[A];
                if scenario.secrets && node.secret == 0 {
                    return None;
                }
                next.put.secret = node.secret;
                next.put.left = scenario.deadline + 1;
                if self.on(Rule::WindowFromSending) {
                    next.put.window = next.nodes[A].window + 1;
                }
                Some("PUT begins")
            }
            PutStep::Remembered => {
                next.nodes[A].memory = self.life(self.window(&next.nodes[A]), Rule::MemoryLastsADeadlineMore);
                if self.on(Rule::AnnounceDropsHot) {
                    next.nodes[A].drop_absence();
                }
                self.detach(next, A);
                Some("PUT remembers k, drops its hot absence")
            }
            PutStep::PairLoaded => {
                next.put.pair = next.nodes[A].pair();
                Some("PUT loads the filter pair")
            }
            PutStep::FilterSet => {
                next.nodes[A].insert(next.put.pair, false);
                Some("PUT sets the filter's bits")
            }
            PutStep::CandidateSet => {
                next.nodes[A].insert(next.put.pair, self.on(Rule::DualInsert));
                Some("PUT sets the candidate's bits, where it has one")
            }
            PutStep::Marked if !scenario.redis => {
                next.nodes[A].journal = self.on(Rule::Journal);
                Some("PUT is journalled")
            }
            PutStep::Marked => {
                let life = self.mark_life(&next.nodes[A]);
                // Of another form it stands where nobody else looks.
                let mark = self.on(Rule::Mark) && !scenario.other_form;
                let data = self.reach(next, A, CACHE, Access::Write)?;
                if mark {
                    (data.entry, data.left) = (Entry::Announced, life);
                }
                next.put.links = next.nodes[A].links;
                Some("PUT sets the mark")
            }
            PutStep::Appended if !scenario.redis => Some("(no log)"),
            PutStep::Appended => {
                let same = !self.on(Rule::MarkFirst) || next.put.links == next.nodes[A].links;
                if self.on(Rule::MarkAndAppendOverOne) && !same {
                    return None;
                }
                next.put.version = self.append_entry(next, A, Kind::Announce, 0, next.put.secret)?;
                Some("PUT appends to the log")
            }
            PutStep::Acknowledged => {
                if self.on(Rule::SecretCheckedAtTheEnd) && next.put.secret != next.nodes[A].secret {
                    return None;
                }
                next.put.left = 0;
                next.put.spread = scenario.max_lag + 1;
                if !self.on(Rule::WindowFromSending) {
                    next.put.window = next.nodes[A].window + 1;
                }
                Some("204")
            }
            PutStep::NotBegun | PutStep::Failed => None,
        }
    }
}
