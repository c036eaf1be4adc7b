//! Time, the database, and what expires.

use super::{NAMES, Out, Protocol, step};
use crate::rule::Rule;
use crate::world::{Again, AskStep, Data, Entry, Hot, PutStep, ReadStep, Row, SnapshotStep, World};

impl Protocol {
    pub(super) fn tick(&self, world: &World, out: Out<'_>) {
        let asked = world.asks.iter().flatten().any(|ask| ask.at != AskStep::None && ask.left == 1);
        let put = world.put.at > PutStep::NotBegun && world.put.at < PutStep::Acknowledged && world.put.left == 1;
        let changed = world.change.step > 0 && world.change.step < 9 && world.change.left == 1;
        if asked || put || changed {
            return;
        }
        let mut next = *world;
        for ask in next.asks.iter_mut().flatten() {
            down(&mut ask.left);
        }
        down(&mut next.put.left);
        down(&mut next.put.window);
        down(&mut next.put.spread);
        down(&mut next.change.left);
        self.age_nodes(&mut next);
        let ages = self.scenario.uses_ages();
        for server in &mut next.servers {
            if ages {
                up(&mut server.age, self.scenario.window + 1);
            }
            for data in [&mut server.data, &mut server.replica, &mut server.cut_off] {
                self.age_data(data, ages);
            }
        }
        if next != *world {
            out.push(step("clock", "tick", next));
        }
    }

    fn age_nodes(&self, world: &mut World) {
        let scenario = &self.scenario;
        for (x, node) in world.nodes.iter_mut().enumerate() {
            down(&mut node.memory);
            if node.memory == 0 {
                node.unheld = false;
                node.again = match node.again {
                    Again::No => Again::No,
                    _ if scenario.roll_call => Again::Appended,
                    _ => Again::No,
                };
                let kept = self.on(Rule::JournalUntilSnapshot) && scenario.left.snapshots > 0;
                node.journal &= kept && !(node.snapshot.at == SnapshotStep::Written && node.snapshot.holds);
            }
            if node.follower.log != 0 && node.follower.made.is_none() && scenario.retention > 0 {
                up(&mut node.follower.uncounted, scenario.retention);
            }
            [&mut node.lost, &mut node.pending].into_iter().flatten().for_each(down);
            if scenario.roll_call {
                up(&mut node.seen, node.longest.max(node.window) + 1);
            }
            if scenario.redis && scenario.readers[x] {
                up(&mut node.lag, scenario.max_lag + 1);
                if node.read.at != ReadStep::None {
                    up(&mut node.read.age, scenario.max_lag + 1);
                }
            }
        }
    }

    fn age_data(&self, data: &mut Data, ages: bool) {
        if data.entry.is_mark() {
            down(&mut data.left);
            if data.left == 0 {
                data.entry = Entry::Nothing;
            }
        }
        if ages {
            let oldest = self.oldest_age();
            for delta in &mut data.log[..usize::from(data.len)] {
                up(&mut delta.age, oldest);
            }
            if data.floor > 0 {
                up(&mut data.floor_age, oldest);
            }
        }
    }

    /// Older than this is as good as this old.
    fn oldest_age(&self) -> u8 {
        (self.scenario.window + self.scenario.deadline + 2).max(self.scenario.retention + 1)
    }

    pub(super) fn database(&self, world: &World, out: Out<'_>) {
        let put = &world.put;
        if put.at == PutStep::Acknowledged && world.row == Row::None && put.window > 0 && self.scenario.announces {
            out.push(step("writer", "commits: the row is visible", World { row: Row::Old, ..*world }));
        }
        if self.scenario.changed != self.scenario.row && world.row == self.scenario.row && !self.scenario.announces {
            out.push(step("writer", "commits the change of the row", World { row: self.scenario.changed, ..*world }));
        }
        if self.scenario.expires {
            self.expiries(world, out);
        }
    }

    fn expiries(&self, world: &World, out: Out<'_>) {
        let entry = world.servers[0].data.entry;
        if !entry.is_mark() && entry != Entry::Nothing {
            let mut next = *world;
            next.servers[0].data.entry = Entry::Nothing;
            out.push(step("Redis", "an entry expires", next));
        }
        for (x, who) in NAMES.into_iter().enumerate().filter(|(x, _)| world.nodes[*x].hot != Hot::Nothing) {
            let mut next = *world;
            next.nodes[x].hot = Hot::Nothing;
            out.push(step(who, "a hot entry expires", next));
        }
    }
}

fn down(ticks: &mut u8) {
    *ticks = ticks.saturating_sub(1);
}

fn up(ticks: &mut u8, most: u8) {
    *ticks = most.min(*ticks + 1);
}
