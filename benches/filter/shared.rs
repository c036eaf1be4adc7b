//! Ways to share one filter between threads. The filter is the same in all of them; if only one thread uses it at a
//! time, it is filled by plain stores.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use bloomguard::filter::SplitBlock;
use parking_lot::RwLock;

/// Hashes queued for an actor.
const MAILBOX: usize = 1_024;

/// A filter that threads share.
pub(crate) trait Shared: Sync {
    const NAME: &'static str;
    fn new(capacity: u64, rate: f64) -> Self;
    /// One thread's handle; its inserts are done once it is dropped.
    fn client(&self) -> impl Client + '_;
}

pub(crate) trait Client {
    fn insert(&mut self, hash: u128);
    fn contains(&mut self, hash: u128) -> bool;
}

pub(crate) struct Ours(SplitBlock);

impl Shared for Ours {
    const NAME: &'static str = "ours";

    fn new(capacity: u64, rate: f64) -> Self {
        Self(SplitBlock::new(capacity, rate).unwrap())
    }

    fn client(&self) -> impl Client + '_ {
        self
    }
}

impl Client for &Ours {
    fn insert(&mut self, hash: u128) {
        self.0.insert(hash);
    }

    fn contains(&mut self, hash: u128) -> bool {
        self.0.contains(hash)
    }
}

/// A cache line of its own, with the one that is prefetched with it.
#[repr(align(128))]
pub(crate) struct Locked(RwLock<SplitBlock>);

impl Shared for Locked {
    const NAME: &'static str = "one `RwLock`";

    fn new(capacity: u64, rate: f64) -> Self {
        Self(RwLock::new(SplitBlock::new(capacity, rate).unwrap()))
    }

    fn client(&self) -> impl Client + '_ {
        self
    }
}

impl Client for &Locked {
    fn insert(&mut self, hash: u128) {
        self.0.write().fill(&[hash]);
    }

    fn contains(&mut self, hash: u128) -> bool {
        self.0.read().contains(hash)
    }
}

/// From bits of the hash that choose neither a block nor bits in it.
fn shard(hash: u128, shards: usize) -> usize {
    ((hash >> 112) as usize * shards) >> 16
}

pub(crate) struct Shards(Vec<Locked>);

impl Shared for Shards {
    const NAME: &'static str = "64 `RwLock`s";

    fn new(capacity: u64, rate: f64) -> Self {
        Self((0..64).map(|_| Locked::new(capacity / 64, rate)).collect())
    }

    fn client(&self) -> impl Client + '_ {
        self
    }
}

impl Client for &Shards {
    fn insert(&mut self, hash: u128) {
        (&self.0[shard(hash, self.0.len())]).insert(hash);
    }

    fn contains(&mut self, hash: u128) -> bool {
        (&self.0[shard(hash, self.0.len())]).contains(hash)
    }
}

enum Message {
    Insert(u128),
    Contains(u128, SyncSender<bool>),
}

/// One thread per processor, which alone uses its share of the filter.
pub(crate) struct Actors(Vec<SyncSender<Message>>);

impl Shared for Actors {
    const NAME: &'static str = "an actor per shard";

    fn new(capacity: u64, rate: f64) -> Self {
        let count = std::thread::available_parallelism().unwrap().get();
        let actor = |_| {
            let (sender, mailbox) = sync_channel(MAILBOX);
            let filter = SplitBlock::new(capacity / count as u64, rate).unwrap();
            std::thread::spawn(move || act(filter, &mailbox));
            sender
        };
        Self((0..count).map(actor).collect())
    }

    fn client(&self) -> impl Client + '_ {
        ActorClient { actors: &self.0, answers: sync_channel(1) }
    }
}

/// Until all senders are dropped.
fn act(mut filter: SplitBlock, mailbox: &Receiver<Message>) {
    for message in mailbox {
        match message {
            Message::Insert(hash) => filter.fill(&[hash]),
            Message::Contains(hash, answer) => answer.send(filter.contains(hash)).unwrap(),
        }
    }
}

struct ActorClient<'a> {
    actors: &'a [SyncSender<Message>],
    answers: (SyncSender<bool>, Receiver<bool>),
}

impl ActorClient<'_> {
    fn ask(&self, actor: usize, hash: u128) -> bool {
        self.actors[actor].send(Message::Contains(hash, self.answers.0.clone())).unwrap();
        self.answers.1.recv().unwrap()
    }
}

impl Client for ActorClient<'_> {
    fn insert(&mut self, hash: u128) {
        self.actors[shard(hash, self.actors.len())].send(Message::Insert(hash)).unwrap();
    }

    fn contains(&mut self, hash: u128) -> bool {
        self.ask(shard(hash, self.actors.len()), hash)
    }
}

impl Drop for ActorClient<'_> {
    /// Waits for an answer of each actor: what was sent before is done.
    fn drop(&mut self) {
        (0..self.actors.len()).for_each(|actor| _ = self.ask(actor, 0));
    }
}
