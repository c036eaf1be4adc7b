//! Crashes, and what a snapshot and the journal restore.

use super::{NAMES, Out, Protocol, step};
use crate::rule::Rule;
use crate::world::{A, Ask, Node, PutStep, Snapshot, SnapshotStep, World};

impl Protocol {
    pub(super) fn snapshot(&self, world: &World, x: usize, out: Out<'_>) {
        let node = &world.nodes[x];
        let Some(holds) = node.filter else { return };
        let place_first = self.on(Rule::PlaceBeforeBits);
        let mut next = *world;
        let snapshot = &mut next.nodes[x].snapshot;
        let begins = snapshot.at != SnapshotStep::Half;
        if begins {
            let lost = node.lost.is_some() && self.on(Rule::SnapshotOfAWholeFilter);
            if world.left.snapshots == 0 || lost || self.scenario.redis && node.follower.log == 0 {
                return;
            }
            *snapshot = Snapshot { at: SnapshotStep::Half, ..Snapshot::default() };
        } else {
            snapshot.at = SnapshotStep::Written;
        }
        if begins == place_first {
            snapshot.place = node.follower;
        } else {
            snapshot.holds = holds;
        }
        if begins {
            next.left.snapshots -= 1;
        }
        let what = if begins == place_first {
            "notes its place in the log for a snapshot"
        } else {
            "copies the filter's bits for a snapshot"
        };
        out.push(step(NAMES[x], what, next));
    }

    pub(super) fn crash(&self, world: &World, x: usize, out: Out<'_>) {
        if world.left.crashes[x] == 0 {
            return;
        }
        let mut next = *world;
        next.left.crashes[x] -= 1;
        next.left.builds[x] = next.left.builds[x].max(1);
        next.asks[x] = [Ask::default(); 2];
        if x == A && world.put.at > PutStep::NotBegun && world.put.at < PutStep::Acknowledged {
            next.put.at = PutStep::Failed;
        }
        if self.scenario.changer == Some(x) && world.change.step > 0 && world.change.step < 9 {
            next.change.step = 10;
        }
        let before = world.nodes[x];
        let node = &mut next.nodes[x];
        *node = Node {
            generation: before.generation + 2,
            lag: self.scenario.max_lag + 1,
            reborn: true,
            journal: before.journal,
            window: self.scenario.after_restart(),
            snapshot: before.snapshot,
            ..Node::default()
        };
        if before.journal && self.on(Rule::JournalIntoMemory) {
            if self.on(Rule::JournalTellsTheWindow) {
                node.longest = before.window;
            }
            node.memory = self.life(self.window(node), Rule::MemoryLastsADeadlineMore);
        }
        if before.snapshot.at == SnapshotStep::Written {
            let mut restored = next;
            self.restore(&mut restored.nodes[x], before.journal);
            out.push(step(NAMES[x], "CRASHES, and starts from its snapshot", restored));
        }
        if next.nodes[x].snapshot.at == SnapshotStep::Half {
            next.nodes[x].snapshot = Snapshot::default();
        }
        out.push(step(NAMES[x], "CRASHES, and starts cold", next));
    }

    fn restore(&self, node: &mut Node, journal: bool) {
        let Snapshot { place, holds, .. } = node.snapshot;
        node.filter = Some(holds || journal);
        if !self.on(Rule::ReplayBeforeTrust) {
            node.lag = 0;
        }
        if !self.scenario.redis {
            return;
        }
        if self.on(Rule::ReplayFromPlace) {
            node.follower = place;
            node.follower.restored = true;
            if !self.on(Rule::SnapshotCounts) {
                node.follower.made = None;
            }
        }
    }
}
