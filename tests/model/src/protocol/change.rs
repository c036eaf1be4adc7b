//! DELETE and invalidate.

use super::server::Access;
use super::{NAMES, Out, Protocol, step};
use crate::rule::Rule;
use crate::world::{AskStep, CACHE, Entry, Hot, Kind, World};

impl Protocol {
    pub(super) fn change(&self, world: &World, out: Out<'_>) {
        let Some(x) = self.scenario.changer else { return };
        let who = NAMES[x];
        if world.change.step >= 9 || !self.scenario.announces && world.row != self.scenario.changed {
            return;
        }
        let mut next = *world;
        match world.change.step {
            0 => {
                next.change.step = 1;
                next.change.left = self.scenario.deadline + 1;
                out.push(step(who, "DELETE or invalidate begins", next));
            }
            at @ 1..=3 => {
                next.change.step += 1;
                let tombstone_first = self.on(Rule::TombstoneFirst);
                let act = if tombstone_first { at } else { [3, 1, 2][usize::from(at) - 1] };
                if let Some(what) = self.drop_step(&mut next, x, act) {
                    out.push(step(who, what, next));
                }
                let mut failed = *world;
                failed.change.step = 10;
                failed.change.left = 0;
                self.forget(&mut failed, x);
                out.push(step(who, "DELETE or invalidate fails, 503", failed));
            }
            _ => {
                next.change.step = 9;
                next.change.left = 0;
                out.push(step(who, "DELETE or invalidate is answered", next));
            }
        }
    }

    fn drop_step(&self, next: &mut World, x: usize, act: u8) -> Option<&'static str> {
        match act {
            1 => {
                let life = if self.on(Rule::TombstoneLastsLong) {
                    self.mark_life(&next.nodes[x])
                } else {
                    self.scenario.deadline + 1
                };
                let tombstone = self.on(Rule::Tombstone);
                let data = self.reach(next, x, CACHE, Access::Write)?;
                (data.entry, data.left) = if tombstone { (Entry::Tombstone, life) } else { (Entry::Nothing, 0) };
                Some("sets the tombstone")
            }
            2 => self.append_entry(next, x, Kind::Drop, 0, next.nodes[x].secret).map(|_| "appends the drop"),
            _ => {
                self.forget(next, x);
                Some("drops its own hot entry")
            }
        }
    }

    /// The effect of a drop in an instance.
    pub(super) fn forget(&self, world: &mut World, x: usize) {
        self.detach(world, x);
        world.nodes[x].hot = Hot::Nothing;
        world.nodes[x].dropped = true;
    }

    /// No lookup joins the key's flights any more, and they store nothing hot.
    pub(super) fn detach(&self, world: &mut World, x: usize) {
        if self.on(Rule::Detach) {
            for ask in world.asks[x].iter_mut().filter(|ask| ask.at >= AskStep::Leading && ask.at < AskStep::Joined) {
                ask.detached = true;
            }
        }
    }
}
