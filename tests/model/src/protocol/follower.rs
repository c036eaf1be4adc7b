//! The follower of the log, and the losses that it notices.

use super::server::Access;
use super::{NAMES, Out, Protocol, step};
use crate::rule::Rule;
use crate::world::{A, Data, Delta, Follower, Kind, Node, Page, Read, ReadStep, World};

impl Protocol {
    pub(super) fn read_log(&self, world: &World, x: usize, out: Out<'_>) {
        if !self.scenario.readers[x] || self.scenario.secrets && world.nodes[x].secret == 0 {
            return;
        }
        let mut next = *world;
        let at = world.nodes[x].read.at;
        let what = match at {
            ReadStep::None => {
                let Some(data) = self.reach(&mut next, x, self.log(), Access::Follow) else { return };
                let node = &world.nodes[x];
                if node.lag == 0 && node.follower.log == node.links[self.log()] && data.last == node.follower.cursor {
                    return;
                }
                next.nodes[x].read = Read { at: ReadStep::Sent, ..Read::default() };
                "sends a read of the log"
            }
            ReadStep::Sent => return self.is_answered(world, x, out),
            ReadStep::Answered => {
                self.take_note(&mut next, x, false);
                if world.nodes[x].read.page.announces && world.left.full > 0 && x != A {
                    let mut full = *world;
                    full.left.full -= 1;
                    self.take_note(&mut full, x, true);
                    out.push(step(NAMES[x], "the reader finds no room to remember k", full));
                }
                "the reader remembers, drops hot entries, loads the filter pair"
            }
            ReadStep::Remembered => {
                let node = &mut next.nodes[x];
                if node.read.page.announces {
                    node.insert(node.read.pair, self.on(Rule::DualInsert));
                }
                node.read.at = ReadStep::Inserted;
                "the reader sets bits"
            }
            ReadStep::Inserted => {
                self.finish(&mut next.nodes[x], x);
                "the reader moves its cursor"
            }
        };
        out.push(step(NAMES[x], what, next));
    }

    /// The server answers the read, and the follower evaluates the page.
    fn is_answered(&self, world: &World, x: usize, out: Out<'_>) {
        let mut next = *world;
        let log = self.log();
        let age = if world.nodes[x].links[log] == world.servers[log].run { world.servers[log].age } else { u8::MAX };
        let identity = world.nodes[x].links[log];
        let Some(data) = self.reach(&mut next, x, log, Access::Follow).copied() else {
            next.nodes[x].read = Read::default();
            out.push(step(NAMES[x], "the read fails", next));
            return;
        };
        let node = &mut next.nodes[x];
        let page = self.judge(node, x, &data, identity, age);
        node.read.page = page;
        node.read.at = ReadStep::Answered;
        if !self.on(Rule::LagFromSending) {
            node.read.age = 0;
        }
        if !self.on(Rule::EffectBeforeCursor) && page.complete {
            (node.follower, node.lag) = (page.follower, node.read.age);
        }
        if page.loss.is_none() && !page.announces && !page.drops && !page.pends {
            self.finish(node, x);
        }
        out.push(step(NAMES[x], "the read is answered", next));
    }

    fn judge(&self, node: &Node, x: usize, data: &Data, identity: u8, age: u8) -> Page {
        let follower = node.follower;
        let node = &Node { longest: self.registered(node, data), ..*node };
        let replaced = follower.log != identity;
        let shrunk = data.last < follower.last || follower.made.is_some_and(|made| data.made < made);
        if follower.log == 0 || replaced || shrunk {
            let rule = if follower.restored { Rule::ReplaySameLog } else { Rule::AnotherLogIsALoss };
            let lost = follower.log != 0 && self.on(rule);
            return self.begin(node, data, identity, age, lost);
        }
        self.go_on(node, x, data)
    }

    /// The longest window that the instance knows, once it has read the register.
    fn registered(&self, node: &Node, data: &Data) -> u8 {
        if self.on(Rule::WindowsAreRegistered) { node.longest.max(data.window) } else { node.longest }
    }

    /// Only determines where to begin.
    fn begin(&self, node: &Node, data: &Data, identity: u8, age: u8, lost: bool) -> Page {
        let window = self.window(node);
        let life = window + self.scenario.deadline;
        let start = if self.on(Rule::BeginAWindowAgo) { data.since(life) } else { data.last };
        let trimmed = self.on(Rule::FloorAtBegin) && data.floor > 0 && data.floor_age <= life;
        let young = (self.on(Rule::YoungLogIsALoss) && age <= window).then(|| window + 1 - age);
        let pends = lost && self.scenario.roll_call && !node.reborn && node.lost.is_none();
        let loss = match (lost, pends) {
            (true, false) => Some(window + 1),
            _ if trimmed => Some(window + 1),
            _ => young.filter(|_| !pends),
        };
        let follower = Follower { log: identity, cursor: start, last: data.last, start, ..Follower::default() };
        Page { follower, loss, longest: node.longest, pends, ..Page::default() }
    }

    fn go_on(&self, node: &Node, x: usize, data: &Data) -> Page {
        let mut longest = node.longest;
        let life = self.window(node) + self.scenario.deadline;
        let mut follower = Follower { last: data.last, restored: false, ..node.follower };
        let rewound = node.follower.restored && self.on(Rule::ReplayAWindowToo);
        let from = if rewound { follower.cursor.min(data.since(life)) } else { follower.cursor };
        let uncounted = follower.made.is_none();
        let mut lost = rewound && data.floor > from && data.floor_age <= life;
        lost |= uncounted && self.on(Rule::FloorUntilCounted) && data.floor > follower.cursor;
        let retention = self.scenario.retention;
        lost |= uncounted && self.on(Rule::CountSoon) && retention > 0 && follower.uncounted + life > retention;
        follower.uncounted = 0;
        let read = data.behind(follower.cursor).count() as u8;
        lost |= self.on(Rule::CountEntries) && follower.made.is_some_and(|made| made + read < data.made);
        let mut page = Page { complete: true, told: data.told, ..Page::default() };
        for delta in data.behind(from) {
            lost |= self.watch(&mut follower, delta);
            if delta.kind != Kind::Other && delta.secret != node.secret {
                lost |= self.on(Rule::ForeignEntryIsALoss);
                continue;
            }
            longest = longest.max(delta.window);
            if self.scenario.other_form && delta.kind == Kind::Announce {
                lost |= self.on(Rule::OtherFormIsALoss);
                continue;
            }
            page.announces |= delta.kind == Kind::Announce && (x != A || node.reborn);
            page.drops |= delta.kind == Kind::Drop && self.scenario.changer != Some(x);
        }
        (follower.cursor, follower.made) = (data.last.max(follower.cursor), Some(data.made));
        page.follower = follower;
        page.longest = longest;
        page.loss = lost.then_some(self.window(&Node { longest, ..*node }) + 1);
        page
    }

    /// Checks an entry's chain.
    fn watch(&self, follower: &mut Follower, delta: &Delta) -> bool {
        let writer = match delta.kind {
            Kind::Announce => 0,
            Kind::Other => 1,
            Kind::Drop => return false,
        };
        let seen = follower.seen[writer].max(follower.start);
        follower.seen[writer] = delta.number;
        self.on(Rule::Chains) && delta.previous > seen
    }

    fn take_note(&self, next: &mut World, x: usize, full: bool) {
        let node = &mut next.nodes[x];
        let page = node.read.page;
        node.longest = page.longest;
        let life = self.life(self.window(node), Rule::MemoryLastsADeadlineMore);
        if let Some(within) = page.loss {
            self.lose(node, within);
        }
        if page.pends {
            node.pending = Some(self.window(node) + 1);
            node.build.fixes_loss &= !self.on(Rule::LossOutlastsBuild);
            node.drop_absence();
        }
        node.read.pair = node.pair();
        node.read.at = ReadStep::Remembered;
        if page.announces {
            if !full {
                node.memory = life;
                node.unheld = false;
            } else {
                node.unheld = true;
                if self.on(Rule::FullMemoryIsAllKeys) {
                    node.memory = life;
                }
            }
            if self.on(Rule::DeltaDropsHot) {
                node.drop_absence();
            }
        }
        let lost = page.loss.is_some() || page.pends;
        if lost && next.left.builds[x] == 0 && next.left.repairs > 0 {
            (next.left.builds[x], next.left.repairs) = (1, next.left.repairs - 1);
        }
        if page.announces || page.drops {
            self.detach(next, x);
        }
        if page.drops {
            self.forget(next, x);
        }
        if !page.announces {
            // Nothing to insert.
            self.finish(&mut next.nodes[x], x);
        }
    }

    /// The page has taken effect.
    fn finish(&self, node: &mut Node, x: usize) {
        let Read { page, age, .. } = node.read;
        node.longest = page.longest;
        if page.complete {
            self.void_untrusted(node);
            node.lag = age;
            let heard = x == A || page.told || !self.on(Rule::HearEveryWriter);
            let remembered = node.seen <= self.window(node) || !self.on(Rule::WritersStillRemember);
            if node.pending.is_some() && heard && remembered {
                node.pending = None;
            }
            if node.pending.is_none() && self.scenario.roll_call {
                node.seen = age;
            }
        }
        node.follower = page.follower;
        node.read = Read::default();
    }
}
