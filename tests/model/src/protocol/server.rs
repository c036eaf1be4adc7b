//! The effect of a command on a Redis server, and what a connection still reaches.

use super::Protocol;
use crate::rule::Rule;
use crate::world::{Before, Data, Delta, Kind, LOG_ROOM, World};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Reads k's entry.
    Read,
    /// Writes k's entry.
    Write,
    /// Stores a loaded answer.
    Store,
    /// Reads the log.
    Follow,
    /// Appends to the log.
    Append,
}

impl Protocol {
    /// The data that a command of instance `x` reaches over its present connection; `None`: it fails.
    pub(super) fn reach<'a>(
        &self,
        world: &'a mut World,
        x: usize,
        server: usize,
        access: Access,
    ) -> Option<&'a mut Data> {
        let link = world.nodes[x].links[server];
        let server = &mut world.servers[server];
        if link == server.run {
            return Some(&mut server.data);
        }
        if link == 0 || link + 1 != server.run {
            return None;
        }
        match (server.before, access) {
            (Before::Dead, _)
            | (Before::Demoted, Access::Write | Access::Store | Access::Append)
            | (Before::Flushed, Access::Follow | Access::Append) => None,
            (Before::Flushed, Access::Store) if self.on(Rule::StoreInItsLog) => None,
            (Before::Demoted, Access::Follow) if self.on(Rule::ReadPrimaryOnly) => None,
            (Before::Demoted | Before::Flushed, _) => Some(&mut server.data),
            (Before::CutOffWith(_), Access::Append) if self.on(Rule::WaitForReplicas) => None,
            (Before::CutOffWith(with), _) => (usize::from(with) == x).then_some(&mut server.cut_off),
        }
    }

    /// Appends, and trims by age and then by room. Returns false if the model's log is full; the branch ends there.
    pub(super) fn append(&self, data: &mut Data, delta: Delta) -> bool {
        let retention = self.scenario.retention;
        while data.len > 0 && retention > 0 && data.log[0].age > retention {
            data.drop_first();
        }
        if usize::from(data.len) == LOG_ROOM {
            return false;
        }
        data.log[usize::from(data.len)] = delta;
        data.len += 1;
        data.made += 1;
        data.last = delta.number;
        if self.scenario.room > 0 && data.len > self.scenario.room {
            data.drop_first();
            data.floor = data.log[0].number;
            data.floor_age = data.log[0].age;
        }
        true
    }
}

impl Data {
    fn drop_first(&mut self) {
        self.log.rotate_left(1);
        self.len -= 1;
        self.log[usize::from(self.len)] = Delta::default();
    }

    /// The entries after a place.
    pub(super) fn behind(&self, place: u8) -> impl Iterator<Item = &Delta> {
        self.log[..usize::from(self.len)].iter().filter(move |delta| delta.number > place)
    }

    /// The place after which announces are not older than `age`.
    pub(super) fn since(&self, age: u8) -> u8 {
        if self.floor > 0 && self.floor_age <= age {
            // Younger ones were trimmed, from an unknown place.
            return 0;
        }
        self.behind(0).find(|delta| delta.age <= age).map_or(self.last, |delta| delta.number - 1)
    }
}

impl Delta {
    pub(super) fn new(number: u8, kind: Kind, previous: u8, secret: u8) -> Self {
        Self { number, kind, previous, age: 0, secret, window: 0 }
    }
}
