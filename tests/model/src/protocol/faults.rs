//! Faults of the servers, and a third instance that announces other keys.

use super::server::Access;
use super::{Out, Protocol, step};
use crate::scenario::Fault;
use crate::world::{Before, Data, Delta, Kind, PutStep, Server, World};

impl Protocol {
    pub(super) fn faults(&self, world: &World, out: Out<'_>) {
        let too_early = self.scenario.late && world.put.at != PutStep::Acknowledged;
        if world.left.faults > 0 && !too_early {
            for (at, who) in self.struck() {
                self.strike(world, at, who, out);
            }
        }
        if world.left.others > 0 {
            self.other_key(world, out);
        }
    }

    /// The servers that may have faults.
    fn struck(&self) -> impl Iterator<Item = (usize, &'static str)> {
        let names = if self.scenario.split { ["cache server", "log server"] } else { ["Redis", ""] };
        names.into_iter().enumerate().filter(|(_, who)| !who.is_empty())
    }

    fn strike(&self, world: &World, at: usize, who: &'static str, out: Out<'_>) {
        let server = world.servers[at];
        let fails_over = self.scenario.faults.iter().any(|fault| !matches!(fault, Fault::Wipe | Fault::Flush));
        if fails_over && server.replica != server.data {
            let mut next = *world;
            next.servers[at].replica = server.data;
            out.push(step(who, "the replica catches up", next));
        }
        for fault in self.scenario.faults {
            let (data, before, what) = match fault {
                Fault::Failover => (server.replica, Before::Dead, "FAILS OVER to its replica"),
                Fault::Demotion => {
                    (server.replica, Before::Demoted, "its replica takes over, and it becomes the replica of that")
                }
                Fault::Wipe => (Data::default(), Before::Dead, "IS KILLED and restarts empty"),
                Fault::Flush => (Data::default(), Before::Flushed, "IS FLUSHED"),
                Fault::CutOffWith(x) => (
                    server.replica,
                    Before::CutOffWith(*x),
                    "is CUT OFF and goes on beside its replica, which takes over",
                ),
            };
            let mut next = *world;
            next.left.faults -= 1;
            let data = Data { told: false, ..data };
            let cut_off = if matches!(before, Before::CutOffWith(_)) { server.data } else { Data::default() };
            next.servers[at] = Server { run: server.run + 1, age: 0, data, replica: data, before, cut_off };
            out.push(step(who, what, next));
        }
    }

    fn other_key(&self, world: &World, out: Out<'_>) {
        let log = self.log();
        let run = world.servers[log].run;
        let previous = if world.third.0 == run { world.third.1 } else { 0 };
        let mut next = *world;
        next.left.others -= 1;
        next.last_entry += 1;
        next.third = (run, next.last_entry);
        let secret = next.servers[log].data.secret;
        if self.append(&mut next.servers[log].data, Delta::new(next.last_entry, Kind::Other, previous, secret)) {
            out.push(step("third instance", "announces another key", next));
        }
    }

    /// Appends an entry about k for instance `x`; `None`: the append fails.
    pub(super) fn append_entry(
        &self,
        world: &mut World,
        x: usize,
        kind: Kind,
        previous: u8,
        secret: u8,
    ) -> Option<(u8, u8)> {
        let number = world.last_entry + 1;
        let run = world.nodes[x].links[self.log()];
        let window = world.nodes[x].window;
        let data = self.reach(world, x, self.log(), Access::Append)?;
        if !self.append(data, Delta { window, ..Delta::new(number, kind, previous, secret) }) {
            return None;
        }
        data.window = data.window.max(window);
        world.last_entry = number;
        Some((run, number))
    }
}
