//! What is remembered of answers: [`SharedCache`] (Redis, or one in this process) and the in-process hot tier.

mod entry;
mod hot;
mod lease;
mod memory;
mod none;
mod redis;
mod ttl;

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::backend::Value;
use crate::clock::Moment;
use crate::key::Key;
use crate::redis::LogIdentity;

pub use self::hot::{HotCache, HotEntry};
pub use self::lease::{Claim, Ending, Lease, Turn};
pub use self::memory::{MARK_BYTES, MemoryCache};
pub use self::none::NoCache;
pub use self::redis::RedisCache;
pub use self::ttl::jittered;
/// Why a shared cache did not answer: the connection's error. A cache in this process knows one of its kinds, `Refused`.
pub use crate::redis::LinkError as CacheError;

/// What a `get` found under a key, after checking fingerprint and log identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Nothing that can be used: no entry, one of another query, an absence of another log, or bytes that can't be decoded.
    Nothing,
    /// The value of the key.
    Value(Value),
    /// A value that has expired and is kept for the time that the backend gives no answer.
    Stale {
        /// The value.
        value: Value,
        /// How long ago it has expired.
        past: Duration,
    },
    /// The backend said that there is no such row.
    Absence,
    /// A marker of an announce or a tombstone of a drop: the truth is at the backend.
    Mark(Mark),
}

/// A note that outranks whatever a load under way wants to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The key was announced; its row may become visible at any moment.
    Announced,
    /// The row was changed or removed.
    Dropped,
}

/// What of a row that was found may be overwritten with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Whatever is there but values; and a mark is set where nothing is.
    AllButValues,
    /// Absences.
    Absences,
}

/// The entry as it was when it was read: what a later put compares against. Means something to the cache that made it only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The connection it was read under; a put under another one stores nothing.
    pub epoch: u64,
    /// The log at the server it was read from; `None`: there is none.
    pub log: Option<LogIdentity>,
    /// When the read was sent, Unix milliseconds by the cache's clock; 0 where it keeps none.
    pub sent: u64,
    /// The first bytes of the entry, its token among them; `None` where there was no entry.
    pub head: Option<Vec<u8>>,
}

impl Stamp {
    /// As a cache in this process saw it.
    #[must_use]
    pub const fn local(head: Option<Vec<u8>>) -> Self {
        Self { epoch: 0, log: None, sent: 0, head }
    }

    /// Whether both saw the same entry, or none, over the same connection, whenever they looked.
    #[must_use]
    pub fn saw_the_same(&self, other: &Self) -> bool {
        (self.epoch, &self.head) == (other.epoch, &other.head)
    }
}

/// Result of a `get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What can be used of it.
    pub entry: Entry,
    /// For the put that may follow.
    pub stamp: Stamp,
    /// Of a value, where the cache tells: what refreshing it ahead of its expiry goes by.
    pub expiry: Option<Expiry>,
}

/// When a value expires, and what it takes to load it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// How long it still lives.
    pub left: Duration,
    /// How long the backend took to answer with it.
    pub cost: Duration,
}

/// Whether a put took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It did.
    Yes,
    /// The entry had changed since it was read, or the cache's rules forbid it: nothing was stored, and that is right.
    No,
}

/// Health of a shared cache, for `/status`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CacheStatus {
    /// `redis`, `memory` or `none`.
    pub kind: &'static str,
    /// Whether commands are being answered.
    pub reachable: bool,
    /// What an operator should mend, such as an eviction policy that takes markers.
    pub warning: Option<String>,
}

/// The cache that instances share, seen by one keyspace.
///
/// Nothing ever deletes an entry: a put compares, a mark overwrites, everything expires.
#[async_trait]
pub trait SharedCache: Send + Sync {
    /// Reads the entry of `key`.
    ///
    /// # Errors
    /// [`CacheError`]: the caller goes on to the backend and stores nothing here.
    async fn get(&self, key: &Key) -> Result<Seen, CacheError>;

    /// Reads the entries of several keys, in their order.
    ///
    /// # Errors
    /// [`CacheError`]: as for [`SharedCache::get`], for all of them.
    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Seen>, CacheError> {
        let mut seen = Vec::with_capacity(keys.len());
        for key in keys {
            seen.push(self.get(key).await?);
        }
        Ok(seen)
    }

    /// Stores `value`, which the backend took `cost` to answer with, for `ttl` if the entry is still what `seen` was (compare-and-set).
    ///
    /// # Errors
    /// [`CacheError`].
    async fn put_value(
        &self,
        key: &Key,
        value: &Value,
        ttl: Duration,
        cost: Duration,
        seen: &Stamp,
    ) -> Result<Stored, CacheError>;

    /// Stores an absence for `ttl` if there is no entry at all (`SET NX`), or still the absence that counts no more, under the log identity that `seen` was read under.
    ///
    /// # Errors
    /// [`CacheError`].
    async fn put_absence(&self, key: &Key, ttl: Duration, seen: &Stamp) -> Result<Stored, CacheError>;

    /// Overwrites whatever is there with a mark that lives for `life`.
    ///
    /// # Errors
    /// [`CacheError`]: the mark may or may not be there.
    async fn put_mark(&self, key: &Key, mark: Mark, life: Duration) -> Result<(), CacheError>;

    /// Overwrites whatever is there under several keys.
    ///
    /// # Errors
    /// [`CacheError`]: some of the marks may be there and others not.
    async fn put_marks(&self, keys: &[Key], mark: Mark, life: Duration) -> Result<(), CacheError> {
        for key in keys {
            self.put_mark(key, mark, life).await?;
        }
        Ok(())
    }

    /// Overwrites absences of rows that were found with marks that live for `life`, so that no absence read before can be stored in their place.
    /// Here: no other process stores anything, and this one remembers the keys, so absences are enough.
    ///
    /// # Errors
    /// [`CacheError`]: some of the absences may be left.
    async fn end_absences(&self, keys: &[Key], _over: Over, life: Duration) -> Result<(), CacheError> {
        if keys.is_empty() {
            return Ok(());
        }
        let seen = keys.iter().zip(self.get_many(keys).await?);
        let absent: Vec<Key> =
            seen.filter(|(_, seen)| matches!(seen.entry, Entry::Absence)).map(|(key, _)| key.clone()).collect();
        if absent.is_empty() { Ok(()) } else { self.put_marks(&absent, Mark::Announced, life).await }
    }

    /// Asks for the right to load `key` for the whole fleet, for `life`, and then reads its entry: in this order, so that who gets the
    /// lease of a holder that has just released it finds what was stored. Asked again with the same `lease`, it waits in no queue: whoever
    /// asks first after the end of a lease gets the next. Here: there is no fleet, and single flight lets one load a key at a time.
    ///
    /// # Errors
    /// [`CacheError`]: the caller loads without a lease.
    async fn claim(&self, key: &Key, _lease: &Lease, _life: Duration) -> Result<Claim, CacheError> {
        Ok(Claim { turn: Turn::Ours, seen: self.get(key).await? })
    }

    /// Gives a lease back, if it is still held. One under which nothing was stored leaves a note for `life` that the key is free to load.
    ///
    /// # Errors
    /// [`CacheError`]: the lease ends with its life.
    async fn release(&self, _key: &Key, _lease: &Lease, _ending: Ending, _life: Duration) -> Result<(), CacheError> {
        Ok(())
    }

    /// Absences whose lookup began before `since` are of an earlier filter, and count no more: an announce that only a scan has brought, as one by an
    /// instance with another form of keys, has left no mark over them.
    fn believe_absences_since(&self, _since: Moment) {}

    /// Whether the absence that `seen` is of counts; see [`SharedCache::believe_absences_since`].
    fn believes_absence(&self, _seen: &Stamp) -> bool {
        true
    }

    /// Number of the connection that marks go over at present; `None` where there is none that could be another one later.
    fn epoch(&self) -> Option<u64> {
        None
    }

    /// Changes each time the connection was made anew: marks that must still live have to be set again then.
    fn epochs(&self) -> watch::Receiver<u64>;

    /// Gives back the memory of what has expired; called every second.
    fn purge(&self) {}

    /// Health, for `/status`.
    fn status(&self) -> CacheStatus;
}
