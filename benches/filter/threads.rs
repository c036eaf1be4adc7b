//! Inserts and lookups by many threads, hashing included: our filter beside locks and actors.

use std::collections::HashMap;
use std::hint::black_box;

use bloomguard::filter::SplitBlock;
use parking_lot::RwLock;

use crate::keys::{Keys, hash};
use crate::race::{Outcome, race};
use crate::shared::{Actors, Client, Locked, Ours, Shards, Shared};

const THREADS: [usize; 5] = [1, 2, 8, 16, 32];
const RATE: f64 = 0.01;
/// Lookups by the Zipf distribution.
const DRAWS: usize = 2_000_000;
/// Header of a table of results.
const HEAD: &str = "| structure | threads | M ops/s | P50 | P90 | P99 | P99.9 |\n|---|---|---|---|---|---|---|";

pub(crate) fn run(keys: &Keys) {
    let zipf = keys.zipf(DRAWS);
    println!(
        "\nThreads at one filter for {} keys, hashing included; percentiles in µs, of which the clock takes:\n",
        keys.len()
    );
    println!("{HEAD}");
    row("the clock", 1, &race(1, &zipf, true, || (), |(), key| _ = black_box(key)));
    table("Inserts, each key once", |threads, at| at.insert(threads, keys, keys, false));
    table("Inserts, Zipf", |threads, at| at.insert(threads, keys, &zipf, true));
    table("Lookups of present keys, Zipf", |threads, at| at.lookup(threads, keys, &zipf));
}

/// Ratios first, because absolute figures depend on the machine.
fn table(title: &str, run: impl Fn(usize, &dyn Contender) -> Outcome) {
    let contenders: [&dyn Contender; 4] =
        [&Kind::<Ours>::NEW, &Kind::<Locked>::NEW, &Kind::<Shards>::NEW, &Kind::<Actors>::NEW];
    let outcomes: Vec<Vec<Outcome>> =
        contenders.iter().map(|one| THREADS.iter().map(|threads| run(*threads, *one)).collect()).collect();
    println!(
        "\n{title}: operations a second, ours = 1\n\n| threads | {} |",
        THREADS.map(|threads| threads.to_string()).join(" | ")
    );
    println!("|---|{}", "---|".repeat(THREADS.len()));
    for (contender, its) in contenders.iter().zip(&outcomes) {
        let ratios: Vec<_> = its
            .iter()
            .zip(&outcomes[0])
            .map(|(its, ours)| format!("{:.2}", its.per_second / ours.per_second))
            .collect();
        println!("| {} | {} |", contender.name(), ratios.join(" | "));
    }
    println!("\n{HEAD}");
    for (contender, its) in contenders.iter().zip(&outcomes) {
        for (threads, outcome) in THREADS.iter().zip(its).filter(|(threads, _)| [1, 8, 32].contains(*threads)) {
            row(contender.name(), *threads, outcome);
        }
    }
}

fn row(name: &str, threads: usize, outcome: &Outcome) {
    println!("| {name} | {threads} | {:.2} | {} |", outcome.per_second / 1e6, outcome.percentiles());
}

/// A way to share a filter, created anew for each race.
trait Contender {
    fn name(&self) -> &'static str;
    fn insert(&self, threads: usize, members: &Keys, keys: &Keys, again: bool) -> Outcome;
    fn lookup(&self, threads: usize, members: &Keys, keys: &Keys) -> Outcome;
}

struct Kind<S>(std::marker::PhantomData<S>);

impl<S> Kind<S> {
    const NEW: Self = Self(std::marker::PhantomData);
}

impl<S: Shared> Contender for Kind<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn insert(&self, threads: usize, members: &Keys, keys: &Keys, again: bool) -> Outcome {
        let shared = S::new(members.len() as u64, RATE);
        race(threads, keys, again, || shared.client(), |client, key| client.insert(hash(key)))
    }

    fn lookup(&self, threads: usize, members: &Keys, keys: &Keys) -> Outcome {
        let shared = S::new(members.len() as u64, RATE);
        let mut client = shared.client();
        members.iter().for_each(|key| client.insert(hash(key)));
        drop(client);
        race(
            threads,
            keys,
            true,
            || shared.client(),
            |client, key| assert!(client.contains(hash(key)), "a key is missed"),
        )
    }
}

/// What a filter saves the map behind it: nine of ten lookups are for absent keys.
pub(crate) fn before_a_map(keys: &Keys) {
    let filter = SplitBlock::new(keys.len() as u64, RATE).unwrap();
    let mut map = HashMap::<Box<[u8]>, bool>::new();
    for key in keys.iter() {
        filter.insert(hash(key));
        map.insert(key.into(), true);
    }
    let map = RwLock::new(map);
    let number = |draw: u64| {
        // Not periodic: one operation in 16 is timed, and those must be representative.
        let random = xxhash_rust::xxh3::xxh3_64(&draw.to_be_bytes());
        if random.is_multiple_of(10) { (random >> 8) % keys.len() as u64 } else { 10 * keys.len() as u64 + draw }
    };
    let asked = Keys::of((0..DRAWS as u64).map(number));
    println!("\nLookups in a `RwLock<HashMap>` of {} keys, nine in ten absent; percentiles in µs\n", keys.len());
    println!("{HEAD}");
    for threads in [1, 8, 32] {
        row(
            "the map",
            threads,
            &race(threads, &asked, true, || (), |(), key| _ = black_box(map.read().contains_key(key))),
        );
        let both = |key: &[u8]| filter.contains(hash(key)) && map.read().contains_key(key);
        row("a filter before it", threads, &race(threads, &asked, true, || (), |(), key| _ = black_box(both(key))));
    }
}
