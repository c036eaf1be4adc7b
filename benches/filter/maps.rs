//! Exact sets instead of a filter: their memory, and the cost of a lookup on one thread.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::sync::Mutex;
use std::time::Instant;

use bloomguard::filter::SplitBlock;
use dashmap::DashMap;

use crate::allocations::live_bytes;
use crate::keys::{Keys, hash};

/// Passes over the absent and the present keys; the fastest counts.
const PASSES: usize = 3;

pub(crate) fn run(keys: &Keys, absent: &Keys) {
    println!(
        "\nSets of {} keys, one thread; nanoseconds and bytes a key, without what the allocator itself needs\n",
        keys.len()
    );
    println!("| set | bytes/key | absent | present | insert |");
    println!("|---|---|---|---|---|");
    let filter = |rate| SplitBlock::new(keys.len() as u64, rate).unwrap();
    for (name, rate) in [("ours 1 %", 0.01), ("ours 0.1 %", 0.001)] {
        let bytes = |filter: &SplitBlock| filter.bits() as f64 / 8.0;
        measure(
            name,
            keys,
            absent,
            || filter(rate),
            |f, key| f.insert(hash(key)),
            |f, key| f.contains(hash(key)),
            Some(&bytes),
        );
    }
    measure(
        "`HashSet`",
        keys,
        absent,
        HashSet::<Box<[u8]>>::new,
        |set, key| _ = set.insert(key.into()),
        HashSet::contains,
        None,
    );
    measure(
        "`Mutex<HashMap>`",
        keys,
        absent,
        Mutex::<HashMap<Box<[u8]>, bool>>::default,
        |map, key| {
            let shared = &*map;
            shared.lock().unwrap().insert(key.into(), true);
        },
        |map, key| map.lock().unwrap().contains_key(key),
        None,
    );
    measure(
        "`DashMap`",
        keys,
        absent,
        DashMap::<Box<[u8]>, bool>::new,
        |map, key| _ = map.insert(key.into(), true),
        |map, key| map.contains_key(key),
        None,
    );
}

/// Structures that don't use the allocator report their memory.
type Bytes<'a, S> = Option<&'a dyn Fn(&S) -> f64>;

fn measure<S>(
    name: &str,
    keys: &Keys,
    absent: &Keys,
    new: impl FnOnce() -> S,
    insert: impl Fn(&mut S, &[u8]),
    contains: impl Fn(&S, &[u8]) -> bool,
    bytes: Bytes<'_, S>,
) {
    let (before, begin) = (live_bytes(), Instant::now());
    let mut set = new();
    keys.iter().for_each(|key| insert(&mut set, key));
    let inserted = begin.elapsed().as_nanos() as f64 / keys.len() as f64;
    let bytes = bytes.map_or((live_bytes() - before) as f64, |bytes| bytes(&set)) / keys.len() as f64;
    let asked = |keys: &Keys| {
        let pass = || {
            let begin = Instant::now();
            black_box(keys.iter().take(absent.len()).filter(|key| contains(&set, key)).count());
            begin.elapsed().as_nanos() as f64 / keys.len().min(absent.len()) as f64
        };
        (0..PASSES).map(|_| pass()).fold(f64::MAX, f64::min)
    };
    println!("| {name} | {bytes:.2} | {:.1} | {:.1} | {inserted:.1} |", asked(absent), asked(keys));
}
