//! Connections: what happens after each reconnect.

use super::server::Access;
use super::{NAMES, Out, Protocol, step};
use crate::rule::Rule;
use crate::world::{A, Again, CACHE, Entry, Kind, PutStep, World};

impl Protocol {
    pub(super) fn link(&self, world: &World, x: usize, out: Out<'_>) {
        let servers = if self.scenario.split { 2 } else { 1 };
        for server in 0..servers {
            if world.nodes[x].links[server] != world.servers[server].run {
                let mut next = *world;
                let node = &mut next.nodes[x];
                node.links[server] = world.servers[server].run;
                if x == A && node.memory > 0 && world.put.at >= PutStep::Remembered && world.put.at != PutStep::Failed {
                    node.again = Again::Wanted;
                } else if x == A && self.scenario.roll_call {
                    node.again = Again::Appended;
                }
                let what = ["connects to Redis anew", "connects to the log server anew"][server];
                out.push(step(NAMES[x], what, next));
            }
        }
        if self.scenario.secrets {
            self.agree_on_secret(world, x, out);
        }
        if x == A {
            self.announce_again(world, out);
        }
    }

    fn announce_again(&self, world: &World, out: Out<'_>) {
        let mut next = *world;
        let node = &mut next.nodes[A];
        let left = node.memory;
        if !self.on(Rule::TellAfterAppend) && self.scenario.roll_call {
            self.tell(*world, out);
        }
        match node.again {
            Again::No => {}
            Again::Wanted => {
                node.again = Again::Marked;
                let mark = self.on(Rule::MarkAgain);
                if let Some(data) = self.reach(&mut next, A, CACHE, Access::Write) {
                    if mark {
                        (data.entry, data.left) = (Entry::AnnouncedAgain, left);
                    }
                    out.push(step("A", "sets the mark again", next));
                }
            }
            Again::Appended => {
                node.again = Again::No;
                self.tell(next, out);
            }
            Again::Marked => {
                node.again = if self.scenario.roll_call { Again::Appended } else { Again::No };
                let secret = node.secret;
                let log = node.links[self.log()];
                let previous = if world.put.version.0 == log { world.put.version.1 } else { 0 };
                if !self.on(Rule::AppendAgain) {
                    out.push(step("A", "does not append again", next));
                } else if self.append_entry(&mut next, A, Kind::Announce, previous, secret).is_some() {
                    out.push(step("A", "appends its announce again", next));
                }
            }
        }
    }

    fn tell(&self, mut next: World, out: Out<'_>) {
        if let Some(data) = self.reach(&mut next, A, self.log(), Access::Append).filter(|data| !data.told) {
            data.told = true;
            out.push(step("A", "tells that all is there", next));
        }
    }

    /// Agrees on the secret that Redis has, or proposes one.
    fn agree_on_secret(&self, world: &World, x: usize, out: Out<'_>) {
        let server = &world.servers[CACHE];
        let before = world.nodes[x];
        let due = before.agreed == 0 || self.on(Rule::SecretAfterEachConnect) && before.agreed != server.run;
        if !due || before.links[CACHE] != server.run {
            return;
        }
        let mut next = *world;
        let fresh = 10 * (x as u8 + 1) + server.run;
        let data = &mut next.servers[CACHE].data;
        if data.secret == 0 {
            data.secret = if before.secret == 0 { fresh } else { before.secret };
        }
        let secret = data.secret;
        let node = &mut next.nodes[x];
        (node.secret, node.agreed) = (secret, server.run);
        if before.secret != 0 && before.secret != secret {
            if self.on(Rule::OtherSecretEndsTrust) {
                self.lose(node, self.window(node) + 1);
            }
            // Hashes under the other secret are useless; the announcing instance still knows its keys.
            let own = x == A && node.memory > 0;
            node.filter = node.filter.map(|_| own);
            node.candidate = node.candidate.map(|_| own);
            node.hot = crate::world::Hot::Nothing;
            if !own {
                node.memory = 0;
            }
        }
        out.push(step(NAMES[x], "learns the secret", next));
    }
}
