//! Cached answers: [`SharedCache`] (Redis, or one in this process) and the in-process hot tier.

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
pub use self::lease::{Claim, Ending, Lease, LeaseState};
pub use self::memory::{MARK_BYTES, MemoryCache};
pub use self::none::NoCache;
pub use self::redis::RedisCache;
pub use self::ttl::jittered;
/// Why a shared cache did not answer: the connection's error. A cache in this process uses only `Refused`.
pub use crate::redis::LinkError as CacheError;

/// What a `get` found under a key, after checking fingerprint and log identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Nothing usable: no entry, one of another query, an absence of another log, or bytes that can't be decoded.
    Nothing,
    /// The value of the key.
    Value(Value),
    /// A value that has expired and is kept for times when the backend does not answer.
    Stale {
        /// The value.
        value: Value,
        /// How long ago it has expired.
        past: Duration,
    },
    /// The backend has no such row.
    Absence,
    /// A mark of an announce or a tombstone of a drop: only the backend knows the answer.
    Mark(Mark),
}

/// A note that outranks anything that a load under way stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The key was announced; its row may become visible at any moment.
    Announced,
    /// The row was changed or removed.
    Dropped,
}

/// What a mark for a found row may overwrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Everything but values; a mark is also set where nothing is.
    AllButValues,
    /// Absences.
    Absences,
}

/// The entry as it was read, which a later put compares with. Only the cache that made it understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the connection that read it. A put over another connection stores nothing.
    pub epoch: u64,
    /// The log at the server that it was read from; `None` without a log.
    pub log: Option<LogIdentity>,
    /// When the read was sent, Unix milliseconds of the cache's clock; 0 if the cache has no clock.
    pub sent: u64,
    /// The first bytes of the entry, which include its token; `None` if there was no entry.
    pub head: Option<Vec<u8>>,
}

impl Stamp {
    /// As a cache in this process saw it.
    #[must_use]
    pub const fn local(head: Option<Vec<u8>>) -> Self {
        Self { epoch: 0, log: None, sent: 0, head }
    }

    /// Returns true if both saw the same entry, or none, over the same connection.
    #[must_use]
    pub fn saw_the_same(&self, other: &Self) -> bool {
        (self.epoch, &self.head) == (other.epoch, &other.head)
    }
}

/// Result of a `get`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The entry, if it is usable.
    pub entry: Entry,
    /// For the put that may follow.
    pub stamp: Stamp,
    /// For a value, if the cache knows it: the basis for a refresh ahead of expiry.
    pub expiry: Option<Expiry>,
}

/// When a value expires, and the cost of loading it again.
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
    /// No: the entry has changed since it was read, or the cache's rules forbid the put. That is no error.
    No,
}

/// Health of a shared cache, for `/status`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CacheStatus {
    /// `redis`, `memory` or `none`.
    pub kind: &'static str,
    /// Whether commands are answered.
    pub reachable: bool,
    /// What an operator should fix, such as an eviction policy that can evict marks.
    pub warning: Option<String>,
}

/// The cache that instances share, as one keyspace sees it.
///
/// Nothing ever deletes an entry: a put compares, a mark overwrites, everything expires.
#[async_trait]
pub trait SharedCache: Send + Sync {
    /// Reads the entry of `key`.
    ///
    /// # Errors
    /// [`CacheError`]: the caller calls the backend and stores nothing here.
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

    /// Stores `value`, which the backend took `cost` to answer with, for `ttl` if the entry is unchanged since `seen`
    /// (compare-and-set).
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

    /// Stores an absence for `ttl` if there is no entry (`SET NX`), or if the entry is still the invalidated absence of
    /// `seen`. Requires the log identity that `seen` was read under.
    ///
    /// # Errors
    /// [`CacheError`].
    async fn put_absence(&self, key: &Key, ttl: Duration, seen: &Stamp) -> Result<Stored, CacheError>;

    /// Overwrites any entry with a mark that lives for `life`.
    ///
    /// # Errors
    /// [`CacheError`]: the mark may or may not be stored.
    async fn put_mark(&self, key: &Key, mark: Mark, life: Duration) -> Result<(), CacheError>;

    /// Overwrites any entries under several keys.
    ///
    /// # Errors
    /// [`CacheError`]: some of the marks may be stored and others not.
    async fn put_marks(&self, keys: &[Key], mark: Mark, life: Duration) -> Result<(), CacheError> {
        for key in keys {
            self.put_mark(key, mark, life).await?;
        }
        Ok(())
    }

    /// Overwrites absences of rows that were found with marks that live for `life`, so that no absence read earlier can
    /// be stored in their place. The default covers absences only: no other process stores anything here, and this one
    /// remembers the keys.
    ///
    /// # Errors
    /// [`CacheError`]: some of the absences may remain.
    async fn end_absences(&self, keys: &[Key], _over: Over, life: Duration) -> Result<(), CacheError> {
        if keys.is_empty() {
            return Ok(());
        }
        let seen = keys.iter().zip(self.get_many(keys).await?);
        let absent: Vec<Key> =
            seen.filter(|(_, seen)| matches!(seen.entry, Entry::Absence)).map(|(key, _)| key.clone()).collect();
        if absent.is_empty() { Ok(()) } else { self.put_marks(&absent, Mark::Announced, life).await }
    }

    /// Asks for the lease to load `key` for the whole fleet, for `life`, and then reads its entry. In this order a
    /// caller that takes over a released lease finds what its holder stored. A repeated claim with the same `lease` is
    /// not queued: the first claim after a lease's end gets the next one. The default has no fleet, and single flight
    /// lets one load a key at a time.
    ///
    /// # Errors
    /// [`CacheError`]: the caller loads without a lease.
    async fn claim(&self, key: &Key, _lease: &Lease, _life: Duration) -> Result<Claim, CacheError> {
        Ok(Claim { state: LeaseState::Ours, seen: self.get(key).await? })
    }

    /// Releases a lease, if it is still held. If nothing was stored under it, leaves a note for `life` that the key is
    /// free to load.
    ///
    /// # Errors
    /// [`CacheError`]: the lease expires.
    async fn release(&self, _key: &Key, _lease: &Lease, _ending: Ending, _life: Duration) -> Result<(), CacheError> {
        Ok(())
    }

    /// Absences whose lookup began before `since` belong to an earlier filter and are invalid: a key that only a scan
    /// has found, such as one from an instance with another key form, has left no mark over them.
    fn believe_absences_since(&self, _since: Moment) {}

    /// Returns true if the absence of `seen` is valid; see [`SharedCache::believe_absences_since`].
    fn believes_absence(&self, _seen: &Stamp) -> bool {
        true
    }

    /// Number of the connection that marks use at present; `None` if it can't change.
    fn epoch(&self) -> Option<u64> {
        None
    }

    /// Changes with each new connection: marks that must still live are then sent again.
    fn epochs(&self) -> watch::Receiver<u64>;

    /// Frees the memory of expired entries. Called every second.
    fn purge(&self) {}

    /// Health, for `/status`.
    fn status(&self) -> CacheStatus;
}
