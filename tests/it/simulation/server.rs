//! The one Redis: what it holds, and the replica that takes over from it without what it had not received.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bloomguard::backend::Value;
use bloomguard::cache::Mark;
use bloomguard::fleet::{
    Delta, Enrolled, EntryId, LogEntry, LogEntryKind, LogPage, Member, Roster, RosterChange, WriterId,
};
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
    roster: (Option<LogIdentity>, Roster),
}

/// What became of an append.
pub enum Appended {
    At(EntryId),
    OtherLog,
    NotAdmitted,
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
    pub fn append(&mut self, identity: LogIdentity, writer: WriterId, previous: EntryId, deltas: &[Delta]) -> Appended {
        if self.identity() != Some(identity) {
            return Appended::OtherLog;
        }
        let is_admitted = self.roster(identity).member(writer).is_some_and(|member| member.admitted);
        if !is_admitted && deltas.iter().any(|delta| delta.kind == LogEntryKind::Announce) {
            return Appended::NotAdmitted;
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
        Appended::At(self.data.last)
    }

    /// The roster of this log, which is empty where there is one of another log.
    fn roster(&mut self, log: LogIdentity) -> &mut Roster {
        if self.data.roster.0 != Some(log) {
            self.data.roster = (Some(log), Roster::default());
        }
        &mut self.data.roster.1
    }

    /// As the script does it.
    pub fn change_roster(&mut self, log: LogIdentity, writer: WriterId, change: RosterChange) -> Option<Enrolled> {
        if self.identity() != Some(log) {
            return None;
        }
        let age = Duration::from_millis(self.millis() - self.data.births[&self.run].millis);
        let is_young = |lease: Duration| age < lease;
        let confirmed_here =
            |confirmed: Option<(LogIdentity, u64)>| confirmed.filter(|(of, _)| *of == log).map_or(0, |(_, view)| view);
        let roster = self.roster(log);
        let own = roster.members.iter().position(|member| member.writer == writer);
        match (change, own) {
            (RosterChange::Enrol { terms, confirmed, .. }, Some(own)) => {
                let member = &mut roster.members[own];
                (member.serial, member.terms) = (member.serial + 1, terms);
                member.confirmed = confirmed_here(confirmed);
            }
            (RosterChange::Enrol { terms, confirmed, admitted_in }, None) => {
                roster.view += 1;
                let (serial, view, reported, confirmed) = (1, roster.view, false, confirmed_here(confirmed));
                let admitted = is_young(terms.lease) && admitted_in.is_some_and(|before| before != log);
                roster.members.push(Member { writer, terms, serial, confirmed, view, admitted, reported });
            }
            (RosterChange::Admit, Some(own)) => roster.members[own].admitted = true,
            (RosterChange::Report(_), Some(own)) => roster.members[own].reported = true,
            (RosterChange::Remove(other, serial), _) => {
                roster.members.retain(|member| (member.writer, member.serial) != (other, serial));
            }
            (RosterChange::Leave, _) => roster.members.retain(|member| member.writer != writer),
            (RosterChange::Admit | RosterChange::Report(_), None) => {}
        }
        Some(Enrolled { log, member: roster.member(writer).copied(), is_replicated: true })
    }

    /// One page of the log.
    pub fn read(&self, after: EntryId) -> Option<LogPage> {
        let birth = self.data.births.get(&self.run)?;
        let (log, roster) = &self.data.roster;
        let roster = if *log == Some(birth.identity) { roster.clone() } else { Roster::default() };
        let roster = Roster { age: Duration::from_millis(self.millis() - birth.millis), ..roster };
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
            roster: Some(roster),
            is_registered: true,
            is_evictable: false,
        })
    }
}
