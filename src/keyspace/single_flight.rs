//! One load per key, shared by all lookups that ask for it at the same time.
//!
//! The load runs in its own task, so that a client disconnect does not cancel the load for other waiters. The load is
//! cancelled once all of them have gone. An *absence* is shared only with waiters that joined before the round's read
//! began: a row may have been committed, and its commit acknowledged, between that read and a later request. Later
//! waiters share the next round. A value or a failure is shared with all.
//!
//! A detached flight (its key was announced or dropped) still serves its waiters, but no lookup joins it any more, and
//! it stores nothing in the hot tier: [`Flight::finish`] checks that and stores in one step under the entry's lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::LookupError;
use super::outcome::Answer;
use crate::key::{Key, KeyHash};

/// The result of a load.
pub(crate) type Loaded = Result<Answer, LookupError>;

/// What waiters receive: the result, or `None` to look again.
type LoadOutcome = Option<Loaded>;

type Round = Arc<watch::Sender<Option<LoadOutcome>>>;

const SHARDS: usize = 16;

/// How a load may use the caches; loads of different kinds are not shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// No restriction.
    Plain,
    /// It skips the caches.
    Bypass,
    /// It uses no cached absence, and no read that began before its waiters came.
    Fresh,
    /// It reloads a value before its expiry; no lookup waits for it.
    Refresh,
}

/// Identifies a load. The key is part of it, because two keys may share a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Id {
    hash: KeyHash,
    key: Key,
    kind: Kind,
}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
        self.kind.hash(state);
    }
}

/// Loads in progress.
#[derive(Debug)]
pub(crate) struct Flights {
    shards: [Mutex<HashMap<Id, FlightState>>; SHARDS],
}

/// The joinable flight of a key.
#[derive(Debug)]
struct FlightState {
    number: u64,
    /// Waiters that joined before the read of this round began.
    round: Round,
    read_began: bool,
    /// It continues without waiters.
    kept: bool,
    /// Waiters that joined after it, if any.
    next: Option<Round>,
}

/// How a lookup takes part in a load.
#[derive(Debug)]
pub(crate) enum Role {
    /// The key has no load: the lookup starts one.
    Leader(Flight, Waiter),
    /// The load is in progress.
    Follower(Waiter),
}

/// A lookup's place among the waiters of a load.
#[derive(Debug)]
pub(crate) struct Waiter(watch::Receiver<Option<LoadOutcome>>);

impl Waiter {
    /// Waits for the result. `None`: the load was detached, or died before it served this waiter; look again. Once all
    /// waiters are dropped, the load is cancelled.
    pub(crate) async fn result(mut self) -> Option<Loaded> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone().flatten())
    }
}

/// The leader's end of one round. If it is dropped unfinished, as by a panic, all waiters look again.
#[derive(Debug)]
pub(crate) struct Flight {
    flights: Arc<Flights>,
    id: Id,
    number: u64,
    round: Round,
    finished: bool,
}

/// What happens to a load whose first waiters have gone.
enum Abandonment {
    Done,
    /// It continues without waiters.
    Kept,
    /// It has other waiters.
    WaitedFor(Round),
}

impl Flights {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { shards: std::array::from_fn(|_| Mutex::default()) })
    }

    fn shard(&self, hash: KeyHash) -> &Mutex<HashMap<Id, FlightState>> {
        // The remainder is below `SHARDS`, so the cast is lossless.
        &self.shards[(hash.get() % SHARDS as u128) as usize]
    }

    /// Joins the load of `key` or begins one.
    pub(crate) fn join(self: &Arc<Self>, hash: KeyHash, key: &Key, kind: Kind) -> Role {
        let id = Id { hash, key: key.clone(), kind };
        let mut shard = self.shard(hash).lock();
        match shard.entry(id.clone()) {
            Entry::Occupied(mut entry) => {
                let state = entry.get_mut();
                let round = if state.read_began { state.next.get_or_insert_with(new_round) } else { &state.round };
                Role::Follower(Waiter(round.subscribe()))
            }
            Entry::Vacant(entry) => {
                let round = new_round();
                let waiter = Waiter(round.subscribe());
                let number = rand::random();
                entry.insert(FlightState {
                    number,
                    round: Arc::clone(&round),
                    read_began: false,
                    kept: false,
                    next: None,
                });
                Role::Leader(Flight { flights: Arc::clone(self), id, number, round, finished: false }, waiter)
            }
        }
    }

    /// The load of `key` runs to its end, also without waiters.
    pub(crate) fn keep(&self, hash: KeyHash, key: &Key, kind: Kind) {
        let id = Id { hash, key: key.clone(), kind };
        if let Some(state) = self.shard(hash).lock().get_mut(&id) {
            state.kept = true;
        }
    }

    /// Detaches all loads.
    pub(crate) fn detach_all(&self) {
        for shard in &self.shards {
            // Sent, not dropped: the load may hold the sender until it ends.
            let detached = std::mem::take(&mut *shard.lock());
            for next in detached.into_values().filter_map(|state| state.next) {
                next.send_replace(Some(None));
            }
        }
    }

    /// Detaches the loads of this hash: no lookup joins them any more, and they store nothing hot. Waiters that joined
    /// after a read began look again.
    pub(crate) fn detach(&self, hash: KeyHash) {
        let mut shard = self.shard(hash).lock();
        // Entries of other instances have a hash and no key. A shard holds only the few loads in progress.
        if !shard.is_empty() {
            shard.retain(|id, state| {
                let stays = id.hash != hash;
                // Sent, not dropped: the load may hold the sender until it ends.
                if !stays && let Some(next) = state.next.take() {
                    next.send_replace(Some(None));
                }
                stays
            });
        }
    }
}

impl Flight {
    /// The round begins to read: later waiters join the next one.
    pub(crate) fn begin_read(&self) {
        let mut shard = self.flights.shard(self.id.hash).lock();
        if let Some(state) = shard.get_mut(&self.id).filter(|s| s.number == self.number) {
            state.read_began = true;
        }
    }

    /// Returns once the load has no waiters and can't be joined any more: all clients have disconnected.
    pub(crate) async fn abandoned(&self) {
        let mut round = Arc::clone(&self.round);
        loop {
            round.closed().await;
            match self.abandon() {
                Abandonment::Done => return,
                Abandonment::Kept => std::future::pending::<()>().await,
                Abandonment::WaitedFor(next) => round = next,
            }
        }
    }

    /// Returns true if the load has no waiters; then it can't be joined any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.round.receiver_count() == 0 && matches!(self.abandon(), Abandonment::Done)
    }

    /// Waiters join under the shard's lock, so none joins between the check and the removal.
    fn abandon(&self) -> Abandonment {
        let mut shard = self.flights.shard(self.id.hash).lock();
        match shard.get(&self.id).filter(|state| state.number == self.number) {
            Some(FlightState { kept: true, .. }) => Abandonment::Kept,
            Some(FlightState { next: Some(next), .. }) if next.receiver_count() > 0 => {
                Abandonment::WaitedFor(Arc::clone(next))
            }
            // Waiters of a detached flight had joined before.
            _ if self.round.receiver_count() > 0 => Abandonment::WaitedFor(Arc::clone(&self.round)),
            Some(_) => {
                shard.remove(&self.id);
                Abandonment::Done
            }
            None => Abandonment::Done,
        }
    }

    /// Ends the round: runs `store_hot` if the flight is still attached, then sends the result to all waiters that may
    /// have it. Returns the next round if waiters joined too late for it: too late for an absence, or for any result of
    /// a [`Kind::Fresh`] load.
    pub(crate) fn finish(mut self, loaded: &Loaded, store_hot: impl FnOnce()) -> Option<Self> {
        self.finished = true;
        let early_only = self.id.kind == Kind::Fresh || matches!(loaded, Ok(Answer { value: None, .. }));
        let mut shard = self.flights.shard(self.id.hash).lock();
        let mut following = None;
        if let Entry::Occupied(mut entry) = shard.entry(self.id.clone())
            && entry.get().number == self.number
        {
            store_hot();
            match entry.get_mut().next.take() {
                Some(next) if early_only => {
                    let number = rand::random();
                    *entry.get_mut() =
                        FlightState { number, round: Arc::clone(&next), read_began: false, kept: false, next: None };
                    following = Some(Self {
                        flights: Arc::clone(&self.flights),
                        id: self.id.clone(),
                        number,
                        round: next,
                        finished: false,
                    });
                }
                next => {
                    entry.remove();
                    if let Some(next) = next {
                        next.send_replace(Some(Some(loaded.clone())));
                    }
                }
            }
        }
        drop(shard);
        self.round.send_replace(Some(Some(loaded.clone())));
        following
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.finished {
            let mut shard = self.flights.shard(self.id.hash).lock();
            if shard.get(&self.id).is_some_and(|s| s.number == self.number) {
                shard.remove(&self.id);
            }
        }
    }
}

fn new_round() -> Round {
    Arc::new(watch::channel(None).0)
}

#[cfg(test)]
mod tests;
