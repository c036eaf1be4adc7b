//! The filter beside others of its kind, and beside what no filter can beat: one random cache line a lookup. `cargo bench --bench filter`
//!
//! Figures drift with the machine and with what else runs on it; the ratios at the end are what counts, and they too want several runs.
//! `BLOOMGUARD_BENCH_KEYS` sets the number of keys (10,000,000 if it is not set).

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)] // A table is what this program is for.

mod builds;
mod floor;
mod keys;
mod lookups;
mod peers;
mod table;

use keys::Keys;
use table::Table;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let count = std::env::var("BLOOMGUARD_BENCH_KEYS").map_or(10_000_000, |count| count.parse().unwrap());
    let (present, absent) = (Keys::numbered(0..count), Keys::numbered(10 * count..10 * count + lookups::QUERIES));
    let table = Table::default();
    let structures = builds::run(&present, &table);
    lookups::run(&structures, &present, &absent, &table);
    table.print(count);
}
