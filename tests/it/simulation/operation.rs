//! What can happen, and the strategy that draws sequences of it.

use std::time::Duration;

use proptest::prelude::*;

pub const INSTANCES: usize = 3;
pub const KEYS: usize = 6;

/// One thing that happens. Each goes on beside those that follow.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Announce, commit so long after the announce was sent (or never), then ask everywhere: with the version, after
    /// `max_lag`, and after the window, or only at some of these moments, for an answer that is right hides what was
    /// cached wrongly before it.
    Insert {
        instance: usize,
        key: usize,
        commit: Option<Duration>,
        asks: [bool; 3],
    },
    /// Change the row, then invalidate.
    Change {
        instance: usize,
        key: usize,
    },
    /// Remove the row, then delete.
    Delete {
        instance: usize,
        key: usize,
    },
    Read {
        instance: usize,
        key: usize,
        bypass: bool,
    },
    /// Ask every instance.
    Look {
        key: usize,
    },
    /// A build that takes so long between scan and swap, or comes to nothing then.
    Build {
        instance: usize,
        takes: Duration,
        fails: bool,
    },
    /// Announces whose transactions are aborted, more than the filter was made for.
    Grow {
        instance: usize,
    },
    Crash {
        instance: usize,
        down: Duration,
    },
    /// Nothing until everybody rejects again.
    Recover,
    Wipe,
    Kill {
        down: Duration,
    },
    FailOver {
        down: Duration,
        skew: Duration,
    },
    Trim {
        keep: usize,
    },
    Partition {
        instance: usize,
        lasts: Duration,
    },
}

/// One run.
#[derive(Debug, Clone)]
pub struct Script {
    /// Decides every delay.
    pub seed: u64,
    /// Of a hundred commands to Redis so many are late and as many are carried out without an answer.
    pub trouble: u32,
    /// Keys that every scan brings, one bit each.
    pub phantoms: u8,
    /// Rows that are there from the beginning, one bit each.
    pub rows: u8,
    /// Between two copies of the primary's data to its replica.
    pub replication: Duration,
    /// What happens, and the pause before it.
    pub operations: Vec<(Duration, Operation)>,
}

fn millis(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn operation() -> impl Strategy<Value = Operation> {
    let instance = || 0..INSTANCES;
    let key = || 0..KEYS;
    let commit = prop_oneof![4 => millis(0..1990).prop_map(Some), 1 => Just(None)];
    prop_oneof![
        10 => (instance(), key(), commit, any::<[bool; 3]>())
            .prop_map(|(instance, key, commit, asks)| Operation::Insert { instance, key, commit, asks }),
        3 => (instance(), key()).prop_map(|(instance, key)| Operation::Change { instance, key }),
        5 => (instance(), key()).prop_map(|(instance, key)| Operation::Delete { instance, key }),
        6 => (instance(), key(), prop::bool::weighted(0.1)).prop_map(|(instance, key, bypass)| Operation::Read { instance, key, bypass }),
        8 => key().prop_map(|key| Operation::Look { key }),
        4 => (instance(), millis(0..2500), prop::bool::weighted(0.2))
            .prop_map(|(instance, takes, fails)| Operation::Build { instance, takes, fails }),
        1 => instance().prop_map(|instance| Operation::Grow { instance }),
        2 => (instance(), millis(0..3000)).prop_map(|(instance, down)| Operation::Crash { instance, down }),
        3 => Just(Operation::Recover),
        1 => Just(Operation::Wipe),
        1 => millis(0..1500).prop_map(|down| Operation::Kill { down }),
        1 => (millis(0..1500), millis(0..3000)).prop_map(|(down, skew)| Operation::FailOver { down, skew }),
        1 => (0usize..4).prop_map(|keep| Operation::Trim { keep }),
        1 => (instance(), millis(50..4000)).prop_map(|(instance, lasts)| Operation::Partition { instance, lasts }),
    ]
}

/// Sequences of up to `longest` operations.
pub fn scripts(longest: usize) -> impl Strategy<Value = Script> {
    let pause = prop_oneof![3 => millis(0..20), 4 => millis(20..400), 2 => millis(400..2500)];
    let operations = prop::collection::vec((pause, operation()), 1..longest);
    let trouble = prop_oneof![2 => Just(0u32), 1 => Just(2), 1 => Just(10)];
    (any::<u64>(), trouble, any::<u8>(), any::<u8>(), millis(20..800), operations).prop_map(
        |(seed, trouble, phantoms, rows, replication, operations)| Script {
            seed,
            trouble,
            phantoms,
            rows,
            replication,
            operations,
        },
    )
}
