//! [`RedisCache`]: entries in Redis, shared by all instances, over the process's one [`RedisLink`].

mod link;
mod names;
mod session;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

pub use self::link::RedisLink;
use self::names::EntryNames;
use super::entry::{self, Token};
use super::{CacheError, CacheStatus, Mark, Seen, SharedCache, Stamp, Stored};
use crate::backend::Value;
use crate::key::Key;

/// Keys of one command or pipeline: a larger batch takes several, so that none keeps the server, or other commands, waiting for long.
const KEYS_A_COMMAND: usize = 1000;
/// Keeps `PX` from overflowing what Redis can add to its clock.
const LONGEST_MILLIS: u128 = 10 * 365 * 24 * 3600 * 1000;

/// The [`SharedCache`] of one keyspace in Redis.
///
/// `get` is one `GET`; a put is one command that Redis carries out as one step: `SET NX` where nothing had been seen, else a script
/// that compares headers and sets; a mark is one `SET`. There is no `DEL`: a deleted mark would let an old fill in.
#[derive(Debug)]
pub struct RedisCache {
    link: Arc<RedisLink>,
    names: EntryNames,
    fingerprint: u64,
}

impl RedisCache {
    /// The cache of `keyspace`, whose values come from the backend and query that `fingerprint` stands for.
    #[must_use]
    pub fn new(link: Arc<RedisLink>, keyspace: &str, fingerprint: u64) -> Self {
        let names = link.entry_names(keyspace);
        Self { link, names, fingerprint }
    }

    fn seen(&self, call: &link::Call<'_>, found: Option<Vec<u8>>) -> Seen {
        let found = found.map(Bytes::from);
        let stamp = Stamp { epoch: call.epoch(), head: found.as_ref().map(|bytes| entry::head(bytes).to_vec()) };
        let entry = found.map_or(super::Entry::Nothing, |bytes| entry::decode(&bytes, self.fingerprint, call.facts().identity));
        Seen { entry, stamp }
    }
}

#[async_trait]
impl SharedCache for RedisCache {
    async fn get(&self, key: &Key) -> Result<Seen, CacheError> {
        let call = self.link.call()?;
        let found: Option<Vec<u8>> = call.command(redis::cmd("GET").arg(self.names.of(key))).await?;
        Ok(self.seen(&call, found))
    }

    async fn get_many(&self, keys: &[Key]) -> Result<Vec<Seen>, CacheError> {
        let call = self.link.call()?;
        let mut seen = Vec::with_capacity(keys.len());
        for part in keys.chunks(KEYS_A_COMMAND) {
            let mut mget = redis::cmd("MGET");
            part.iter().for_each(|key| {
                mget.arg(self.names.of(key));
            });
            let found: Vec<Option<Vec<u8>>> = call.command(&mget).await?;
            if found.len() != part.len() {
                return Err(CacheError::Refused("MGET answered for another number of keys".into()));
            }
            seen.extend(found.into_iter().map(|bytes| self.seen(&call, bytes)));
        }
        Ok(seen)
    }

    async fn put_value(&self, key: &Key, value: &Value, ttl: Duration, seen: &Stamp) -> Result<Stored, CacheError> {
        let call = self.link.call()?;
        if call.epoch() != seen.epoch {
            return Ok(Stored::No);
        }
        let (name, bytes) = (self.names.of(key), entry::encode_value(value, Token::random(), self.fingerprint));
        let stored = match &seen.head {
            None => set_if_absent(&call, &name, &bytes, ttl).await?,
            Some(head) => call.compare_and_set(&name, head, &bytes, millis(ttl)).await?,
        };
        Ok(if stored { Stored::Yes } else { Stored::No })
    }

    async fn put_absence(&self, key: &Key, ttl: Duration, seen: &Stamp) -> Result<Stored, CacheError> {
        let call = self.link.call()?;
        if call.epoch() != seen.epoch || seen.head.is_some() || !call.facts().keeps_marks() {
            return Ok(Stored::No);
        }
        let bytes = entry::encode_absence(Token::random(), self.fingerprint, call.facts().identity);
        let stored = set_if_absent(&call, &self.names.of(key), &bytes, ttl).await?;
        Ok(if stored { Stored::Yes } else { Stored::No })
    }

    async fn put_mark(&self, key: &Key, mark: Mark, life: Duration) -> Result<(), CacheError> {
        self.put_marks(std::slice::from_ref(key), mark, life).await
    }

    async fn put_marks(&self, keys: &[Key], mark: Mark, life: Duration) -> Result<(), CacheError> {
        let call = self.link.call()?;
        for part in keys.chunks(KEYS_A_COMMAND) {
            let mut sets = redis::pipe();
            for key in part {
                let bytes = entry::encode_mark(mark, Token::random());
                sets.cmd("SET").arg(self.names.of(key)).arg(&bytes).arg("PX").arg(millis(life)).ignore();
            }
            call.pipeline(&sets).await?;
        }
        Ok(())
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.link.epochs()
    }

    fn status(&self) -> CacheStatus {
        match self.link.facts() {
            Ok(facts) => CacheStatus { kind: "redis", reachable: true, warning: facts.warning() },
            Err(why) => CacheStatus { kind: "redis", reachable: false, warning: Some(format!("Redis can't be reached: {why}")) },
        }
    }
}

/// `SET NX`; says whether it took.
async fn set_if_absent(call: &link::Call<'_>, name: &[u8], bytes: &[u8], ttl: Duration) -> Result<bool, CacheError> {
    let mut set = redis::cmd("SET");
    set.arg(name).arg(bytes).arg("NX").arg("PX").arg(millis(ttl));
    let answer: Option<String> = call.command(&set).await?;
    Ok(answer.is_some())
}

/// What `PX` takes: at least 1.
fn millis(ttl: Duration) -> u64 {
    // The clamp makes the cast harmless.
    ttl.as_millis().clamp(1, LONGEST_MILLIS) as u64
}
