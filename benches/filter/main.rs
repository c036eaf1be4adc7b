//! The filter beside others of its kind, and beside what no filter can beat: one random cache line a lookup. `cargo
//! bench --bench filter`
//!
//! Figures drift with the machine and with what else runs on it; the ratios are what counts, and they too want several
//! runs. `BLOOMGUARD_BENCH_KEYS` sets the number of keys (10,000,000 if it is not set), `BLOOMGUARD_BENCH_PARTS` which
//! parts run: `filters,maps,threads,before,hashes`.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)] // A table is what this program is for.

// What the tests count by.
#[path = "../../tests/it/support/allocations.rs"]
#[allow(dead_code, unreachable_pub)]
mod allocations;
mod builds;
mod floor;
mod hashes;
mod keys;
mod lookups;
mod maps;
mod peers;
mod race;
mod shared;
mod table;
mod threads;

use keys::Keys;
use table::Table;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let count = std::env::var("BLOOMGUARD_BENCH_KEYS").map_or(10_000_000, |count| count.parse().unwrap());
    let (present, absent) = (Keys::numbered(0..count), Keys::numbered(10 * count..10 * count + lookups::QUERIES));
    let parts = std::env::var("BLOOMGUARD_BENCH_PARTS").unwrap_or("filters,maps,threads,before,hashes".to_owned());
    for part in parts.split(',') {
        match part {
            "filters" => filters(&present, &absent),
            "maps" => maps::run(&present, &absent),
            "threads" => threads::run(&present),
            "before" => threads::before_a_map(&present),
            "hashes" => hashes::run(),
            other => panic!("{other} is no part"),
        }
    }
}

fn filters(present: &Keys, absent: &Keys) {
    let table = Table::default();
    let structures = builds::run(present, &table);
    lookups::run(&structures, present, absent, &table);
    table.print(present.len() as u64);
}
