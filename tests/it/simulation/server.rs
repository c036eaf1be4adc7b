//! The one Redis: what it holds, and the replica that takes over from it without what it had not received.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bloomguard::backend::Value;
use bloomguard::cache::Mark;
use bloomguard::fleet::{Delta, EntryId, LogEntry, LogPage, WriterId};
use bloomguard::key::{Key, KeySecret};
use bloomguard::redis::{LogBirth, LogIdentity};
use tokio::time::Instant;

/// Entries of one read.
const ENTRIES_A_READ: usize = 20;
/// Entries of so long ago are kept.
pub const RETENTION: Duration = Duration::from_secs(20);
/// Unix time at which a simulation begins, milliseconds.
const EPOCH: u64 = 1_700_000_000_000;

/// What is under a key.
#[derive(Clone)]
pub enum Content {
    Value(Value),
    Absence(LogIdentity),
    Mark(Mark),
}

#[derive(Clone)]
pub struct Slot {
    pub content: Content,
    /// Tells this write from all others.
    pub token: u64,
    expires: Instant,
}

/// All that a wipe takes and a replica receives.
#[derive(Clone, Default)]
pub struct Data {
    slots: HashMap<Key, Slot>,
    entries: VecDeque<(EntryId, LogEntry)>,
    last: EntryId,
    made: u64,
    floor: EntryId,
    /// Identities by the run of the server that they were made at.
    births: HashMap<u64, LogBirth>,
    secret: Option<KeySecret>,
}

pub struct Server {
    began: Instant,
    pub up: bool,
    /// Number of the process: commands that were sent to another one are lost.
    pub run: u64,
    data: Data,
    /// What the replica has received, and when.
    replica: (Instant, Data),
    /// How far this server's clock is ahead, milliseconds.
    skew: u64,
    next: u64,
}

impl Server {
    pub fn new() -> Self {
        let now = Instant::now();
        Self { began: now, up: true, run: 1, data: Data::default(), replica: (now, Data::default()), skew: 0, next: 0 }
    }

    fn millis(&self) -> u64 {
        EPOCH + self.skew + self.began.elapsed().as_millis() as u64
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// `FLUSHALL`.
    pub fn wipe(&mut self) {
        self.data = Data::default();
    }

    /// A process without persistence dies.
    pub fn kill(&mut self) {
        self.up = false;
        self.run += 1;
        self.data = Data::default();
    }

    /// The primary dies and the replica is promoted, whose clock may be ahead. Returns since when nothing had been
    /// received.
    pub fn fail_over(&mut self, skew: u64) -> Instant {
        self.up = false;
        self.run += 1;
        self.skew += skew;
        self.data = self.replica.1.clone();
        self.replica.0
    }

    pub fn replicate(&mut self) {
        if self.up {
            self.replica = (Instant::now(), self.data.clone());
        }
    }

    /// Want of room takes all entries but the youngest `keep`.
    pub fn trim(&mut self, keep: usize) {
        if self.data.entries.len() > keep {
            let gone = self.data.entries.len() - keep;
            self.data.entries.drain(..gone);
            self.data.floor = self.data.entries.front().map_or(self.data.last, |(id, _)| *id);
        }
    }

    /// The log's identity, made by the first connection.
    pub fn introduce(&mut self) -> LogIdentity {
        let (run, millis) = (self.run, self.millis());
        let token = self.token();
        let fresh =
            LogBirth { identity: LogIdentity((u128::from(run) << 64 | u128::from(token)).to_be_bytes()), millis };
        self.data.births.entry(run).or_insert(fresh).identity
    }

    pub fn identity(&self) -> Option<LogIdentity> {
        self.data.births.get(&self.run).map(|birth| birth.identity)
    }

    pub fn last(&self) -> EntryId {
        self.data.last
    }

    pub fn secret(&mut self, proposal: KeySecret) -> KeySecret {
        self.data.secret.get_or_insert(proposal).clone()
    }

    pub fn get(&mut self, key: &Key) -> Option<Slot> {
        let now = Instant::now();
        if self.data.slots.get(key).is_some_and(|slot| slot.expires <= now) {
            self.data.slots.remove(key);
        }
        self.data.slots.get(key).cloned()
    }

    /// `SET NX` where `seen` is none, else compare-and-set; both under the log that the entry was looked for in.
    pub fn put(
        &mut self,
        identity: LogIdentity,
        key: &Key,
        content: Content,
        ttl: Duration,
        seen: Option<u64>,
    ) -> bool {
        if self.identity() != Some(identity) || self.get(key).map(|slot| slot.token) != seen {
            return false;
        }
        self.set(key, content, ttl);
        true
    }

    pub fn set(&mut self, key: &Key, content: Content, ttl: Duration) {
        let token = self.token();
        self.data.slots.insert(key.clone(), Slot { content, token, expires: Instant::now() + ttl });
    }

    /// Appends to the log that has this identity.
    pub fn append(
        &mut self,
        identity: LogIdentity,
        writer: WriterId,
        previous: EntryId,
        deltas: &[Delta],
    ) -> Option<EntryId> {
        if self.identity() != Some(identity) {
            return None;
        }
        let now = self.millis();
        for delta in deltas {
            let last = self.data.last;
            let id = if now > last.millis { EntryId::at(now) } else { EntryId { sequence: last.sequence + 1, ..last } };
            self.data.entries.push_back((id, LogEntry { id, writer, previous, delta: delta.clone() }));
            self.data.last = id;
            self.data.made += 1;
        }
        let oldest = EntryId::at(now.saturating_sub(RETENTION.as_millis() as u64));
        while self.data.entries.front().is_some_and(|(id, _)| *id < oldest) {
            self.data.entries.pop_front();
        }
        Some(self.data.last)
    }

    /// One page of the log.
    pub fn read(&self, after: EntryId) -> Option<LogPage> {
        let birth = self.data.births.get(&self.run)?;
        let unread = self.data.entries.iter().filter(|(id, _)| *id > after);
        let entries: Vec<_> = unread.take(ENTRIES_A_READ).map(|(id, entry)| (*id, Some(entry.clone()))).collect();
        Some(LogPage {
            identity: birth.identity,
            born: birth.millis,
            now: self.millis(),
            last: self.data.last,
            made: self.data.made,
            floor: self.data.floor,
            complete: entries.len() < ENTRIES_A_READ,
            entries,
            switch: None,
            peers: Vec::new(),
        })
    }
}
