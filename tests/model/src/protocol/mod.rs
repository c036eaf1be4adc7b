//! Announces, lookups, builds and the delta log, as the code does them.
//!
//! Lifetimes and obligations are closed intervals. No tick happens while a lookup, an announce or a drop is at its
//! deadline, so that every interleaving within a tick is visited. Nothing else must happen: a connection that is not
//! renewed is a partition, and a read that is not sent is a paused process.

mod build;
mod change;
mod clock;
mod faults;
mod follower;
mod link;
mod lookup;
mod put;
mod restart;
mod server;

use crate::rule::{Rule, Rules};
use crate::scenario::Scenario;
use crate::search::{Model, Step, Steps};
use crate::world::{CACHE, Node, Pair, PutStep, Row, Server, World};

/// The protocol in one scenario, under some rules.
#[derive(Debug, Clone, Copy)]
pub struct Protocol {
    /// Participants and possible events.
    pub scenario: Scenario,
    /// The active rules.
    pub rules: Rules,
}

/// Steps, as they are found.
type Out<'a> = &'a mut Steps<World>;

const NAMES: [&str; 2] = ["A", "B"];
const NOTHING_BEGAN: u8 = 0;

impl Model for Protocol {
    type State = World;

    fn starts(&self) -> Vec<World> {
        let s = &self.scenario;
        let holds: &[bool] = if s.false_positive { &[true] } else { &[false] };
        holds
            .iter()
            .map(|holds| {
                let mut world = World { row: s.row, left: s.left, ..World::default() };
                for server in &mut world.servers {
                    *server = Server { run: 1, age: s.window + 1, ..Server::default() };
                    server.data.secret = u8::from(s.secrets);
                    // Every instance has registered its own, and read the register.
                    server.data.window = s.window;
                    server.replica = server.data;
                }
                for (x, node) in world.nodes.iter_mut().enumerate() {
                    *node = Node {
                        filter: Some(*holds || s.row != Row::None),
                        links: [1; 2],
                        agreed: 1,
                        ..Node::default()
                    };
                    node.secret = u8::from(s.secrets);
                    node.follower.log = 1;
                    node.follower.made = Some(NOTHING_BEGAN);
                    node.window = if x == crate::world::A { s.window } else { s.after_restart() };
                    node.longest = s.window;
                }
                world
            })
            .collect()
    }

    fn steps(&self, world: &World, out: &mut Steps<World>) {
        let nothing_promised = world.put.at == PutStep::Failed
            || world.put.at == PutStep::Acknowledged
                && world.row == Row::None
                && world.put.window == 0
                && !self.scenario.deletes();
        if self.scenario.announces && nothing_promised {
            return;
        }
        self.tick(world, out);
        self.database(world, out);
        if self.scenario.redis {
            self.faults(world, out);
        }
        for x in 0..2 {
            self.crash(world, x, out);
            self.snapshot(world, x, out);
            if self.scenario.redis {
                self.link(world, x, out);
                self.read_log(world, x, out);
            }
            self.build(world, x, out);
        }
        self.put(world, out);
        self.change(world, out);
        for x in 0..2 {
            for slot in 0..2 {
                self.lookup(world, x, slot, out);
            }
        }
    }
}

impl Protocol {
    fn on(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    /// The server that holds the log.
    fn log(&self) -> usize {
        usize::from(self.scenario.split)
    }

    /// Ticks for which an announce is remembered under this window, as a closed interval.
    fn life(&self, window: u8, longer: Rule) -> u8 {
        window + 1 + if self.on(longer) { self.scenario.deadline } else { 0 }
    }

    /// The window that applies at an instance.
    fn window(&self, node: &Node) -> u8 {
        if self.on(Rule::LongestWindowCounts) { node.longest.max(node.window) } else { node.window }
    }

    /// Life of a mark of this instance, in ticks.
    fn mark_life(&self, node: &Node) -> u8 {
        self.life(self.window(node), Rule::MarkLastsADeadlineMore)
    }

    /// Returns true if the instance's filter is trusted.
    fn trusted(&self, node: &Node) -> bool {
        let fresh = !self.scenario.redis || !self.on(Rule::LagEndsTrust) || node.lag <= self.scenario.max_lag;
        node.filter.is_some() && node.lost.is_none() && node.pending.is_none() && fresh
    }

    /// Drops the hot absence before the filter is trusted again.
    fn void_untrusted(&self, node: &mut Node) {
        if !self.trusted(node) && self.on(Rule::VoidBeforeTrust) {
            node.drop_absence();
        }
    }

    /// Records a loss, which a scan fixes that begins in `within` ticks.
    fn lose(&self, node: &mut Node, within: u8) {
        let within = if self.on(Rule::ScanAWindowAfterLoss) { within } else { 0 };
        node.lost = Some(node.lost.unwrap_or_default().max(within));
        if self.on(Rule::LossOutlastsBuild) {
            node.build.fixes_loss = false;
        }
        node.drop_absence();
    }

    /// Returns true if a lookup at `x`, with the version or without, must find the row.
    fn must_find(&self, world: &World, x: usize, version: bool) -> bool {
        self.scenario.announces
            && world.put.at == PutStep::Acknowledged
            && world.row == Row::Old
            && (x == crate::world::A || version || world.put.spread == 0)
    }

    /// Returns true if the announced version has taken effect at the instance.
    fn applied(world: &World, node: &Node) -> bool {
        node.follower.log == world.put.version.0 && node.follower.cursor >= world.put.version.1
    }

    /// Returns true if the cache server's run is older than a window, as far as the instance knows.
    fn ripe(&self, world: &World, node: &Node) -> bool {
        let server = &world.servers[CACHE];
        !self.scenario.split || node.links[CACHE] != server.run || server.age > self.scenario.window
    }
}

impl Node {
    /// Sets k's bits in a filter pair that was loaded earlier; `both`: in the candidate too.
    fn insert(&mut self, pair: Pair, both: bool) {
        if self.generation == pair.generation {
            self.filter = self.filter.map(|_| true);
        }
        if pair.candidate && both {
            if self.generation == pair.generation {
                self.candidate = self.candidate.map(|_| true);
            } else if self.generation == pair.generation + 1 {
                self.filter = self.filter.map(|_| true);
            }
        }
    }

    fn pair(&self) -> Pair {
        Pair { generation: self.generation, candidate: self.candidate.is_some() }
    }

    fn drop_absence(&mut self) {
        if self.hot == crate::world::Hot::Absence {
            self.hot = crate::world::Hot::Nothing;
        }
    }
}

/// A step that breaks no promise.
fn step(who: &'static str, what: &'static str, next: World) -> Step<World> {
    Step { who, what, next, wrong: None }
}
