//! One load a key, however many ask at once.
//!
//! The load runs in a task of its own, so an asker that hangs up stops nobody; once all have, it is given up. An *absence* is shared only with those who joined before the
//! round's read began: a row may have been committed, and its commit acknowledged, between that read and a later asker's request. Later ones
//! are served by the next round, together. A value or a failure is shared with all.
//!
//! A flight that is detached (its key was announced or dropped) goes on for those who wait for it, but nobody joins it any more and it stores
//! nothing in the hot tier: [`Flight::settle`] does check and store as one step under the entry's lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::LookupError;
use super::outcome::Answer;
use crate::key::{Key, KeyHash};

/// What a load ends with.
pub(crate) type Loaded = Result<Answer, LookupError>;

/// What those who wait are told: what came of the load, or that they must look again.
type LoadOutcome = Option<Loaded>;

type Round = Arc<watch::Sender<Option<LoadOutcome>>>;

const SHARDS: usize = 16;

/// What a load may do; loads of different kinds are not shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Anything.
    Plain,
    /// It skips the caches.
    Bypass,
    /// It uses no cached absence, and nothing that was read before its askers came.
    Fresh,
    /// It loads a value again ahead of its expiry; nobody waits for it.
    Refresh,
}

/// What tells loads apart. The key is part of it: two that share a hash are still two.
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

/// Loads under way.
#[derive(Debug)]
pub(crate) struct Flights {
    shards: [Mutex<HashMap<Id, State>>; SHARDS],
}

/// The joinable flight of a key.
#[derive(Debug)]
struct State {
    number: u64,
    /// Who joined before the read of this round began.
    round: Round,
    read_began: bool,
    /// It goes on although nobody waits for it.
    kept: bool,
    /// Who joined after it, once there is one.
    next: Option<Round>,
}

/// How an asker takes part in a load.
#[derive(Debug)]
pub(crate) enum Role {
    /// Nobody loads the key: the asker starts the load.
    Leader(Flight, Waiter),
    /// The load is under way.
    Follower(Waiter),
}

/// A place among those who wait for a load.
#[derive(Debug)]
pub(crate) struct Waiter(watch::Receiver<Option<LoadOutcome>>);

impl Waiter {
    /// Waits for the load's end; `None`: it was detached or died before it served this place, look again. Once all who wait have dropped
    /// theirs, the load is given up.
    pub(crate) async fn result(mut self) -> Option<Loaded> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|told| told.clone().flatten())
    }
}

/// The leader's end of one round. Dropped unsettled, as by a panic, everyone who waits is told to look again.
#[derive(Debug)]
pub(crate) struct Flight {
    flights: Arc<Flights>,
    id: Id,
    number: u64,
    round: Round,
    settled: bool,
}

/// What becomes of a load that those who had joined first do not wait for.
enum Leaving {
    Done,
    /// It is to go on all the same.
    Kept,
    /// Others do.
    WaitedFor(Round),
}

impl Flights {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { shards: std::array::from_fn(|_| Mutex::default()) })
    }

    fn shard(&self, hash: KeyHash) -> &Mutex<HashMap<Id, State>> {
        // The remainder fits whatever the width.
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
                entry.insert(State { number, round: Arc::clone(&round), read_began: false, kept: false, next: None });
                Role::Leader(Flight { flights: Arc::clone(self), id, number, round, settled: false }, waiter)
            }
        }
    }

    /// The load of `key` goes on to its end, whoever leaves.
    pub(crate) fn keep(&self, hash: KeyHash, key: &Key, kind: Kind) {
        let id = Id { hash, key: key.clone(), kind };
        if let Some(state) = self.shard(hash).lock().get_mut(&id) {
            state.kept = true;
        }
    }

    /// Nobody joins a load of a key with this hash any more, and those under way store nothing hot. Who had joined after a read began is told to
    /// look again.
    pub(crate) fn detach(&self, hash: KeyHash) {
        let mut shard = self.shard(hash).lock();
        // What another instance tells of has a hash and no key. A shard holds the few loads that are under way.
        if !shard.is_empty() {
            shard.retain(|id, state| {
                let stays = id.hash != hash;
                // LoadOutcome, for the load may hold the other end until it ends.
                if !stays && let Some(next) = state.next.take() {
                    next.send_replace(Some(None));
                }
                stays
            });
        }
    }
}

impl Flight {
    /// From now on the round reads: who joins later waits for the next one.
    pub(crate) fn begin_read(&self) {
        let mut shard = self.flights.shard(self.id.hash).lock();
        if let Some(state) = shard.get_mut(&self.id).filter(|s| s.number == self.number) {
            state.read_began = true;
        }
    }

    /// Returns once nobody waits for the load, and nobody can join it any more: whoever asked has hung up.
    pub(crate) async fn abandoned(&self) {
        let mut round = Arc::clone(&self.round);
        loop {
            round.closed().await;
            match self.leave() {
                Leaving::Done => return,
                Leaving::Kept => std::future::pending::<()>().await,
                Leaving::WaitedFor(next) => round = next,
            }
        }
    }

    /// Whether nobody waits for the load; then nobody can join it any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.round.receiver_count() == 0 && matches!(self.leave(), Leaving::Done)
    }

    /// Places are taken under the shard's lock, so none is taken between the look and the removal.
    fn leave(&self) -> Leaving {
        let mut shard = self.flights.shard(self.id.hash).lock();
        match shard.get(&self.id).filter(|state| state.number == self.number) {
            Some(State { kept: true, .. }) => Leaving::Kept,
            Some(State { next: Some(next), .. }) if next.receiver_count() > 0 => Leaving::WaitedFor(Arc::clone(next)),
            // Who waits for a detached flight had joined before.
            _ if self.round.receiver_count() > 0 => Leaving::WaitedFor(Arc::clone(&self.round)),
            Some(_) => {
                shard.remove(&self.id);
                Leaving::Done
            }
            None => Leaving::Done,
        }
    }

    /// Ends the round: runs `store_hot` if the flight is still attached, then tells everyone who may know.
    /// Returns the next round, where somebody joined too late to be told: of an absence, or of anything where they want what is fresh.
    pub(crate) fn settle(mut self, loaded: &Loaded, store_hot: impl FnOnce()) -> Option<Self> {
        self.settled = true;
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
                        State { number, round: Arc::clone(&next), read_began: false, kept: false, next: None };
                    following = Some(Self {
                        flights: Arc::clone(&self.flights),
                        id: self.id.clone(),
                        number,
                        round: next,
                        settled: false,
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
        if !self.settled {
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
mod tests {
    use super::*;
    use crate::key::KeyForm;
    use crate::labels::Source;

    const HASH: KeyHash = KeyHash::from_bits(7);

    fn key() -> Key {
        KeyForm::Text.canonical(b"k").unwrap()
    }

    fn absent() -> Loaded {
        Ok(Answer::fresh(None, Source::Backend))
    }

    fn found() -> Loaded {
        let value = crate::backend::Value {
            body: bytes::Bytes::from_static(b"{}"),
            content_type: crate::backend::ContentType::Json,
        };
        Ok(Answer::fresh(Some(value), Source::Backend))
    }

    fn lead(flights: &Arc<Flights>) -> (Flight, Waiter) {
        match flights.join(HASH, &key(), Kind::Plain) {
            Role::Leader(flight, waiter) => (flight, waiter),
            Role::Follower(_) => panic!("somebody leads already"),
        }
    }

    fn join(flights: &Arc<Flights>) -> Waiter {
        match flights.join(HASH, &key(), Kind::Plain) {
            Role::Follower(waiter) => waiter,
            Role::Leader(..) => panic!("nobody leads"),
        }
    }

    #[tokio::test]
    async fn an_absence_is_shared_only_with_those_who_joined_before_the_read() {
        let flights = Flights::new();
        let (flight, leader) = lead(&flights);
        let early = join(&flights);
        flight.begin_read();
        let (late, later) = (join(&flights), join(&flights));
        let second = flight.settle(&absent(), || ()).expect("the late ones want a round of their own");
        assert!(matches!(leader.result().await, Some(Ok(Answer { value: None, .. }))));
        assert!(matches!(early.result().await, Some(Ok(Answer { value: None, .. }))));
        second.begin_read();
        assert!(second.settle(&found(), || ()).is_none());
        for waiter in [late, later] {
            assert!(matches!(waiter.result().await, Some(Ok(Answer { value: Some(_), .. }))));
        }
    }

    #[tokio::test]
    async fn a_value_is_shared_with_everyone() {
        let flights = Flights::new();
        let (flight, _leader) = lead(&flights);
        flight.begin_read();
        let late = join(&flights);
        assert!(flight.settle(&found(), || ()).is_none());
        assert!(matches!(late.result().await, Some(Ok(Answer { value: Some(_), .. }))));
    }

    #[tokio::test]
    async fn a_detached_flight_is_not_joined_and_stores_nothing_hot() {
        let flights = Flights::new();
        let (flight, leader) = lead(&flights);
        flight.begin_read();
        let late = join(&flights);
        flights.detach(HASH);
        assert!(late.result().await.is_none(), "who joined too late looks again");
        let (second, _) = lead(&flights);
        let mut stored = false;
        assert!(flight.settle(&found(), || stored = true).is_none());
        assert!(!stored);
        assert!(leader.result().await.is_some());
        second.settle(&found(), || stored = true);
        assert!(stored, "settling the detached one left the second in place");
    }

    #[tokio::test(start_paused = true)]
    async fn who_joined_a_detached_flight_late_looks_again_though_its_load_goes_on_for_nobody_else() {
        let flights = Flights::new();
        let (flight, leader) = lead(&flights);
        flight.begin_read();
        let late = join(&flights);
        drop(leader);
        let loading = async {
            // Never ends: somebody waits for the next round.
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), flight.abandoned()).await;
        };
        let looking = async {
            tokio::task::yield_now().await;
            flights.detach(HASH);
            late.result().await
        };
        let ((), looked) =
            tokio::join!(biased; loading, tokio::time::timeout(std::time::Duration::from_millis(500), looking));
        assert!(matches!(looked, Ok(None)), "it is told at once");
    }

    #[tokio::test]
    async fn a_dead_leader_frees_the_key() {
        let flights = Flights::new();
        let (flight, leader) = lead(&flights);
        drop(flight);
        assert!(leader.result().await.is_none());
        let _ = lead(&flights);
    }

    #[tokio::test]
    async fn who_asks_afresh_is_told_nothing_that_was_read_before() {
        let flights = Flights::new();
        let (plain, _ticket) = lead(&flights);
        let join = || flights.join(HASH, &key(), Kind::Fresh);
        let Role::Leader(flight, first) = join() else { panic!("a load that may use a cached absence was joined") };
        flight.begin_read();
        let Role::Follower(late) = join() else { panic!("a second load beside the first") };
        let second = flight.settle(&found(), || ()).expect("a value of the older read is not for the late one");
        assert!(first.result().await.is_some());
        second.begin_read();
        assert!(second.settle(&found(), || ()).is_none());
        assert!(late.result().await.is_some());
        assert!(
            matches!(flights.join(HASH, &key(), Kind::Bypass), Role::Leader(..)),
            "a bypass shares no load that may read a cache"
        );
        drop(plain);
    }

    #[test]
    fn keys_of_one_hash_are_loaded_each_for_itself() {
        let flights = Flights::new();
        let (_flight, _ticket) = lead(&flights);
        let other = KeyForm::Text.canonical(b"other").unwrap();
        assert!(matches!(flights.join(HASH, &other, Kind::Plain), Role::Leader(..)));
    }
}
