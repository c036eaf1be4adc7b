//! The product's `keyspace/write/recent.rs`, how the keyspace uses it together with a [`Pair`] of filters, and the
//! properties that must hold.

#[allow(dead_code, reason = "expiry and polls are not part of these scenarios")]
#[path = "../../../src/keyspace/write/recent.rs"]
mod recent;

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use self::recent::{MemoryLimits, Recent};
use crate::clock::Moment;
use crate::filter::{Candidate, Pair};
use crate::key::{KeyHash, key};

/// The order of the steps: as built, or broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    AsBuilt,
    ReplayBeforeBegin,
    NoReplay,
    InsertBeforeRemember,
}

type Scenario = fn(Order);

pub fn scenarios<P: Pair>() -> [(&'static str, Scenario); 4] {
    [
        ("an announce, a build, a lookup", announce_build_lookup::<P>),
        ("two announces and a build", two_announces_build::<P>),
        ("an announce, an abandoned build and a finished one", announce_abandoned_build::<P>),
        ("a lookup during two builds", lookup_during_builds::<P>),
    ]
}

struct Keyspace<P> {
    active: Arc<P>,
    recent: Recent,
    order: Order,
}

impl<P: Pair> Keyspace<P> {
    /// With an empty active filter.
    fn new(order: Order) -> Arc<Self> {
        let limits = MemoryLimits { count: 16, bytes: 1024, cost: 40, keeps_keys: true };
        let recent = Recent::new(Duration::from_secs(30), limits);
        let keyspace = Self { active: Arc::default(), recent, order };
        let _ = keyspace.active.begin().swap();
        Arc::new(keyspace)
    }

    /// `Writer::announce_in_order` up to `apply_announce`.
    fn announce(&self, number: u8) {
        let (hash, key) = key(number);
        if self.order == Order::InsertBeforeRemember {
            self.active.insert(hash.get());
        }
        self.recent.remember_all(&[hash], &[key], Moment::now()).unwrap();
        if self.order != Order::InsertBeforeRemember {
            self.active.insert(hash.get());
        }
    }

    /// `Keyspace::begin`, a scan that finds `scanned`, and `Build::swap`.
    fn build(&self, scanned: &[u8]) {
        let early = self.recent.hashes(Moment::now());
        let candidate = self.active.begin();
        match self.order {
            Order::NoReplay => {}
            Order::ReplayBeforeBegin => candidate.fill(&hashes(&early)),
            // `Build::replay_recent`. The one at the scan's end is left out: a scan may last longer than announces are
            // remembered.
            Order::AsBuilt | Order::InsertBeforeRemember => candidate.fill(&hashes(&self.recent.hashes(Moment::now()))),
        }
        candidate.fill(&scanned.iter().map(|number| key(*number).0.get()).collect::<Vec<_>>());
        let _ = candidate.swap();
    }

    fn is_maybe(&self, number: u8) -> bool {
        let (hash, _): (KeyHash, _) = key(number);
        self.active.probe(hash.get()).is_some_and(|(maybe, _)| maybe)
    }
}

fn hashes(announced: &[KeyHash]) -> Vec<u128> {
    announced.iter().map(|hash| hash.get()).collect()
}

/// A lookup after the acknowledged announce finds the key during any build, and after the swap.
///
/// Invariant: announced-survives-interleavings
fn announce_build_lookup<P: Pair>(order: Order) {
    let keyspace = Keyspace::<P>::new(order);
    let acknowledged = Arc::new(AtomicBool::new(false));
    let announcer = {
        let (keyspace, acknowledged) = (Arc::clone(&keyspace), Arc::clone(&acknowledged));
        thread::spawn(move || {
            keyspace.announce(1);
            // The 204, after which another client may ask.
            acknowledged.store(true, Ordering::Release);
        })
    };
    let builder = {
        let keyspace = Arc::clone(&keyspace);
        thread::spawn(move || keyspace.build(&[2]))
    };
    if acknowledged.load(Ordering::Acquire) {
        assert!(keyspace.is_maybe(1), "404 for a row that was announced");
    }
    announcer.join().unwrap();
    assert!(keyspace.is_maybe(1), "404 for a row that was announced");
    builder.join().unwrap();
    assert!(keyspace.is_maybe(1), "the swap has lost an announce");
}

/// Invariant: announced-survives-interleavings
fn two_announces_build<P: Pair>(order: Order) {
    let keyspace = Keyspace::<P>::new(order);
    let announcers = [1, 2].map(|number| {
        let keyspace = Arc::clone(&keyspace);
        thread::spawn(move || keyspace.announce(number))
    });
    keyspace.build(&[3]);
    announcers.into_iter().for_each(|announcer| announcer.join().unwrap());
    assert!([1, 2, 3].into_iter().all(|number| keyspace.is_maybe(number)));
}

/// Invariant: announced-survives-interleavings
fn announce_abandoned_build<P: Pair>(order: Order) {
    let keyspace = Keyspace::<P>::new(order);
    let announcer = {
        let keyspace = Arc::clone(&keyspace);
        thread::spawn(move || keyspace.announce(1))
    };
    drop(keyspace.active.begin());
    keyspace.build(&[]);
    announcer.join().unwrap();
    assert!(keyspace.is_maybe(1));
}

/// A key of every scan is always found, and generations never decrease.
fn lookup_during_builds<P: Pair>(order: Order) {
    let keyspace = Keyspace::<P>::new(order);
    keyspace.build(&[1]);
    let reader = {
        let keyspace = Arc::clone(&keyspace);
        thread::spawn(move || {
            let mut last = 0;
            for _ in 0..3 {
                let (maybe, generation) = keyspace.active.probe(1).unwrap();
                assert!(maybe && generation >= last);
                last = generation;
            }
        })
    };
    (0..2).for_each(|_| keyspace.build(&[1]));
    reader.join().unwrap();
    assert_eq!(keyspace.active.probe(1), Some((true, 4)));
}
