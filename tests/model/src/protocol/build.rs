//! Builds: begin, memory into the candidate, scan, memory once more, swap.

use super::{NAMES, Out, Protocol, step};
use crate::rule::Rule;
use crate::world::{Build, BuildStep, Node, Row, World};

impl Protocol {
    pub(super) fn build(&self, world: &World, x: usize, out: Out<'_>) {
        let mut next = *world;
        let node = &mut next.nodes[x];
        let early = self.on(Rule::MemoryIntoCandidate) && self.on(Rule::MemoryIntoCandidateEarly);
        let what = match node.build.at {
            BuildStep::None => return self.begin_build(world, x, out),
            BuildStep::Begun => {
                if early {
                    remember(node);
                }
                node.build.at = BuildStep::Replayed;
                "the build takes what is remembered"
            }
            BuildStep::Replayed => {
                if world.row != Row::None {
                    node.candidate = Some(true);
                }
                node.build.at = BuildStep::Scanned;
                if world.row == Row::None { "the scan passes k, which is not there" } else { "the scan finds k" }
            }
            BuildStep::Scanned => {
                if self.on(Rule::MemoryIntoCandidate) {
                    remember(node);
                }
                if node.build.secret != node.secret && self.on(Rule::OtherSecretEndsBuild) {
                    node.candidate = None;
                    node.build = Build::default();
                    "the build is dropped: another secret"
                } else {
                    self.swap(node)
                }
            }
        };
        out.push(step(NAMES[x], what, next));
    }

    fn begin_build(&self, world: &World, x: usize, out: Out<'_>) {
        let node = &world.nodes[x];
        let may =
            world.left.builds[x] > 0 && node.lost.unwrap_or_default() == 0 && node.pending.unwrap_or_default() == 0;
        let unread = node.follower.log == 0 || node.follower.restored;
        if self.scenario.redis && self.scenario.readers[x] && unread && self.on(Rule::BuildAfterFirstPage) {
            return;
        }
        if !may || self.scenario.secrets && node.secret == 0 {
            return;
        }
        if node.unheld && self.on(Rule::NoBuildWhileUnheld) {
            return;
        }
        let mut next = *world;
        next.left.builds[x] -= 1;
        let node = &mut next.nodes[x];
        if self.scenario.other_form {
            node.scans += 1;
        }
        node.candidate = Some(self.scenario.false_positive);
        node.build = Build { at: BuildStep::Begun, fixes_loss: true, secret: node.secret };
        out.push(step(NAMES[x], "a build begins", next));
    }

    fn swap(&self, node: &mut Node) -> &'static str {
        self.void_untrusted(node);
        let holds = node.candidate.unwrap_or_default() && node.build.secret == node.secret;
        (node.filter, node.candidate) = (Some(holds), None);
        node.generation += 1;
        node.scan = node.scans;
        if node.build.fixes_loss {
            (node.lost, node.pending) = (None, None);
        }
        node.build = Build::default();
        if holds { "swaps: k is in the filter" } else { "swaps: k is NOT in the filter" }
    }
}

fn remember(node: &mut Node) {
    if node.memory > 0 && !node.unheld {
        node.candidate = Some(true);
    }
}
