//! [`RedisCache`]: entries in Redis, shared by all instances, over the process's one [`RedisLink`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use super::entry::{self, EntryToken};
use super::{
    CacheError, CacheStatus, Claim, Ending, Entry, Expiry, Lease, LeaseState, Mark, Over, Seen, SharedCache, Stamp,
    Stored,
};
use crate::backend::Value;
use crate::clock::Moment;
use crate::key::Key;
use crate::redis::{Call, NamesByKey, RedisLink, Replicas};

/// Keys of one command or pipeline. A larger batch takes several, so that none delays the server or other commands for
/// long.
const KEYS_A_COMMAND: usize = 1000;
/// In place of a lease: the key is free to load. No lease is as short.
const FREE: &[u8] = b"free";
/// The life of marks if none is configured.
const PATIENCE: Duration = Duration::from_secs(10);
/// Keeps `PX` from overflowing Redis' clock.
const LONGEST_MILLIS: u128 = 10 * 365 * 24 * 3600 * 1000;

/// The [`SharedCache`] of one keyspace in Redis.
///
/// `get` is one `GET`, with a `PTTL` if expiries are needed. A put is one script, which Redis runs as one step: if
/// nothing had been read it stores if there is still nothing and it is not too late, otherwise it compares headers and
/// stores. A mark is one `SET`. No entry is ever deleted: a deleted mark would admit an old fill. Leases are keys
/// beside the entries, which only claims read.
#[derive(Debug)]
pub struct RedisCache {
    link: Arc<RedisLink>,
    /// The connection for marks.
    marks: Arc<RedisLink>,
    /// The connection for marks that are not published to other instances.
    replicas: Option<Replicas>,
    entries: NamesByKey,
    leases: NamesByKey,
    fingerprint: u64,
    tells_expiries: bool,
    /// How long after a read that found nothing something may be stored.
    patience: Duration,
    /// How much longer than they may be served values are kept.
    kept_stale: Duration,
    /// Absences of earlier lookups are invalid; nanoseconds of a [`Moment`].
    believed_since: AtomicU64,
}

impl RedisCache {
    /// The cache of `keyspace`. `fingerprint` identifies the backend and query of its values.
    #[must_use]
    pub fn new(link: Arc<RedisLink>, keyspace: &str, fingerprint: u64) -> Self {
        let (entries, leases) = (link.names().entries(keyspace), link.names().leases(keyspace));
        let (marks, kept_stale) = (Arc::clone(&link), Duration::ZERO);
        Self {
            marks,
            link,
            replicas: None,
            entries,
            leases,
            fingerprint,
            tells_expiries: false,
            patience: PATIENCE,
            kept_stale,
            believed_since: AtomicU64::new(0),
        }
    }

    /// Uses a connection of its own for marks, the one that appends to the delta log. `replicas` must have the marks if
    /// no append to the log waits for them.
    #[must_use]
    pub fn marking_over(mut self, link: Arc<RedisLink>, replicas: Option<Replicas>) -> Self {
        (self.marks, self.replicas) = (link, replicas);
        self
    }

    /// Stores nothing where a read found nothing once this much time has passed, at the server, since the read was
    /// sent. A mark set in between must live longer, by as much as the server's clock may change while the connection
    /// lasts.
    #[must_use]
    pub fn storing_within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Whether reads return when values expire, which costs one more command in the same round trip.
    #[must_use]
    pub fn telling_expiries(mut self, tells_expiries: bool) -> Self {
        self.tells_expiries = tells_expiries;
        self
    }

    /// Keeps values for this long after their expiry; see [`Entry::Stale`].
    #[must_use]
    pub fn keeping_stale(mut self, kept_stale: Duration) -> Self {
        self.kept_stale = kept_stale;
        self
    }

    /// `left` is the answer of `PTTL`. It is read beside the entry, so it may belong to a later one: a refresh that
    /// comes too early or too late is harmless.
    fn seen(&self, call: &Call<'_>, sent: u64, found: Option<Vec<u8>>, left: Option<i64>) -> Seen {
        let found = found.map(Bytes::from);
        let head = found.as_ref().map(|bytes| entry::head(bytes).to_vec());
        let stamp = Stamp { epoch: call.epoch(), log: Some(call.server().identity), sent, head };
        let entry = found
            .as_ref()
            .map_or(Entry::Nothing, |bytes| entry::decode(bytes, self.fingerprint, call.server().identity, sent));
        // An entry that is kept for longer contains the time until which it may be served.
        let left = found
            .as_ref()
            .and_then(|bytes| entry::fresh_left(bytes, sent))
            .or(left.and_then(|left| u64::try_from(left).ok()));
        let expiry = match (&entry, &found, left.filter(|_| self.tells_expiries)) {
            (Entry::Value(_), Some(bytes), Some(left)) => {
                Some(Expiry { left: Duration::from_millis(left), cost: entry::cost(bytes) })
            }
            _ => None,
        };
        Seen { entry, stamp, expiry }
    }

    /// Returns true if an absence that begins with these bytes belongs to the present filter.
    fn believes(&self, call: &Call<'_>, head: &[u8]) -> bool {
        let since = self.believed_since.load(Ordering::Acquire);
        since == 0
            || entry::absence_sent(head)
                .is_some_and(|sent| sent >= call.server_millis_at_most(Moment::from_nanos(since)))
    }

    /// Stores if there is still nothing. Returns true if it stored.
    async fn set_if_absent(
        &self,
        call: &Call<'_>,
        name: &[u8],
        bytes: &[u8],
        ttl: Duration,
        seen: &Stamp,
    ) -> Result<bool, CacheError> {
        let latest = seen.sent.saturating_add(millis(self.patience));
        call.set_in_time(name, bytes, millis(ttl), latest).await
    }
}

#[async_trait]
impl SharedCache for RedisCache {
    async fn get(&self, key: &Key) -> Result<Seen, CacheError> {
        let call = self.link.call()?;
        let (name, sent) = (self.entries.of(key), call.server_millis());
        if !self.tells_expiries {
            let found = call.command(redis::cmd("GET").arg(name)).await?;
            return Ok(self.seen(&call, sent, found, None));
        }
        let (found, left) = call.pipeline(redis::pipe().cmd("GET").arg(&name).cmd("PTTL").arg(&name)).await?;
        Ok(self.seen(&call, sent, found, Some(left)))
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Seen>, CacheError> {
        let call = self.link.call()?;
        let mut seen = Vec::with_capacity(keys.len());
        for part in keys.chunks(KEYS_A_COMMAND) {
            let names: Vec<Vec<u8>> = part.iter().map(|key| self.entries.of(key)).collect();
            let mut reads = redis::pipe();
            reads.cmd("MGET").arg(&names);
            for name in names.iter().filter(|_| self.tells_expiries) {
                reads.cmd("PTTL").arg(name);
            }
            let sent = call.server_millis();
            let mut answers = call.pipeline::<Vec<redis::Value>>(&reads).await?.into_iter();
            let found: Vec<Option<Vec<u8>>> =
                answers.next().map(redis::from_redis_value).and_then(Result::ok).unwrap_or_default();
            if found.len() != part.len() {
                return Err(CacheError::Refused("MGET answered for another number of keys".into()));
            }
            for bytes in found {
                let left = answers.next().and_then(|left| redis::from_redis_value(left).ok());
                seen.push(self.seen(&call, sent, bytes, left));
            }
        }
        Ok(seen)
    }

    async fn put_value(
        &self,
        key: &Key,
        value: &Value,
        ttl: Duration,
        cost: Duration,
        seen: &Stamp,
    ) -> Result<Stored, CacheError> {
        let call = self.link.call()?;
        if call.epoch() != seen.epoch {
            return Ok(Stored::No);
        }
        // By the server's clock, which also expires entries.
        let fresh_until = if self.kept_stale.is_zero() { 0 } else { call.server_millis().saturating_add(millis(ttl)) };
        let origin =
            entry::EntryOrigin { fingerprint: self.fingerprint, identity: call.server().identity, cost, fresh_until };
        let (name, bytes, ttl) = (
            self.entries.of(key),
            entry::encode_value(value, EntryToken::random(), &origin),
            ttl.saturating_add(self.kept_stale),
        );
        let stored = match &seen.head {
            None => self.set_if_absent(&call, &name, &bytes, ttl, seen).await?,
            Some(head) => call.compare_and_set(&name, head, entry::HEADER_LEN, &bytes, millis(ttl)).await?,
        };
        Ok(if stored { Stored::Yes } else { Stored::No })
    }

    async fn put_absence(&self, key: &Key, ttl: Duration, seen: &Stamp) -> Result<Stored, CacheError> {
        let call = self.link.call()?;
        if call.epoch() != seen.epoch || !call.server().keeps_marks() {
            return Ok(Stored::No);
        }
        let bytes = entry::encode_absence(EntryToken::random(), self.fingerprint, call.server().identity, seen.sent);
        let name = self.entries.of(key);
        let stored = match &seen.head {
            None => self.set_if_absent(&call, &name, &bytes, ttl, seen).await?,
            // A mark in between has made it another entry, even after that mark has expired.
            Some(head) if entry::absence_sent(head).is_some() && !self.believes(&call, head) => {
                call.compare_and_set(&name, head, entry::HEADER_LEN, &bytes, millis(ttl)).await?
            }
            Some(_) => false,
        };
        Ok(if stored { Stored::Yes } else { Stored::No })
    }

    async fn put_mark(&self, key: &Key, mark: Mark, life: Duration) -> Result<(), CacheError> {
        self.put_marks(std::slice::from_ref(key), mark, life).await
    }

    async fn put_marks(&self, keys: &[Key], mark: Mark, life: Duration) -> Result<(), CacheError> {
        let call = self.marks.call()?;
        for part in keys.chunks(KEYS_A_COMMAND) {
            let mut sets = redis::pipe();
            for key in part {
                let bytes = entry::encode_mark(mark, EntryToken::random());
                sets.cmd("SET").arg(self.entries.of(key)).arg(&bytes).arg("PX").arg(millis(life)).ignore();
            }
            call.pipeline::<()>(&sets).await?;
        }
        match &self.replicas {
            Some(replicas) => Ok(replicas.acknowledge(&call).await?),
            None => Ok(()),
        }
    }

    /// One step each: an absence stored between a read and a mark would stay.
    async fn end_absences(&self, keys: &[Key], over: Over, life: Duration) -> Result<(), CacheError> {
        if keys.is_empty() {
            return Ok(());
        }
        let call = self.marks.call()?;
        let mut set = 0;
        for part in keys.chunks(KEYS_A_COMMAND) {
            let marks = part
                .iter()
                .map(|key| (self.entries.of(key), entry::encode_mark(Mark::Announced, EntryToken::random())));
            set += call.mark_over(marks, over == Over::AllButValues, millis(life)).await?;
        }
        match &self.replicas {
            Some(replicas) if set > 0 => Ok(replicas.acknowledge(&call).await?),
            _ => Ok(()),
        }
    }

    async fn claim(&self, key: &Key, lease: &Lease, life: Duration) -> Result<Claim, CacheError> {
        let call = self.link.call()?;
        let (name, sent) = (self.leases.of(key), call.server_millis());
        let mut commands = redis::pipe();
        commands.cmd("SET").arg(&name).arg(&lease.0).arg("NX").arg("PX").arg(millis(life)).ignore();
        commands.cmd("GET").arg(&name).cmd("GET").arg(self.entries.of(key));
        let (holder, found): (Option<Vec<u8>>, Option<Vec<u8>>) = call.pipeline(&commands).await?;
        let state = match holder.as_deref() {
            Some(holder) if holder == lease.0 => LeaseState::Ours,
            Some(FREE) => LeaseState::Free,
            // Or no load, if a lease ended between the two commands: the next claim gets it.
            _ => LeaseState::Theirs,
        };
        Ok(Claim { state, seen: self.seen(&call, sent, found, None) })
    }

    async fn release(&self, key: &Key, lease: &Lease, ending: Ending, life: Duration) -> Result<(), CacheError> {
        let note = match ending {
            Ending::Stored => &[][..],
            Ending::NotStored => FREE,
        };
        Ok(self.link.call()?.release(&self.leases.of(key), &lease.0, note, millis(life)).await?)
    }

    fn believe_absences_since(&self, since: Moment) {
        // Release: pairs with the acquire in `believes`. A later scan is never replaced by an earlier one.
        self.believed_since.fetch_max(since.as_nanos(), Ordering::Release);
    }

    fn believes_absence(&self, seen: &Stamp) -> bool {
        self.link.call().is_ok_and(|call| seen.head.as_ref().is_some_and(|head| self.believes(&call, head)))
    }

    fn epoch(&self) -> Option<u64> {
        Some(*self.marks.epochs().borrow())
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.marks.epochs()
    }

    fn status(&self) -> CacheStatus {
        match self.link.server() {
            Ok(facts) => CacheStatus { kind: "redis", reachable: true, warning: facts.warning() },
            Err(why) => {
                CacheStatus { kind: "redis", reachable: false, warning: Some(format!("Redis can't be reached: {why}")) }
            }
        }
    }
}

/// `PX` accepts at least 1.
fn millis(ttl: Duration) -> u64 {
    // The clamp makes the cast lossless.
    ttl.as_millis().clamp(1, LONGEST_MILLIS) as u64
}
