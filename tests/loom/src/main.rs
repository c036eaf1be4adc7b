//! Runs the product's own `filter/active.rs`, `filter/filling.rs` and `keyspace/write/recent.rs` through every
//! interleaving of an announce, a build and a lookup that the memory model allows: `make loom`.
//!
//! They are compiled unchanged except for two bounds, with loom's mutex in place of `parking_lot` and a pointer of
//! loom's atomics in place of `arc_swap`. The few lines of the keyspace that use them are repeated here, each beside
//! the name of its counterpart in `keyspace/`. Rules broken on purpose must be found, else the scenarios prove nothing.

// Under these names the two files import the stand-ins of `primitives`.
extern crate self as arc_swap;
extern crate self as parking_lot;

mod clock;
mod filter;
mod keyspace;
mod key;
mod primitives;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use primitives::{ArcSwap, Mutex, MutexGuard};

use filter::{Pair, as_built, drain_forgotten, full_list_drops, list_left_open, swap_before_drain};
use keyspace::{Order, scenarios};

/// Preemptions per run: more have never found a fault that fewer had not.
const PREEMPTIONS: usize = 3;

fn explore(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(PREEMPTIONS));
    builder.check(scenario);
}

/// Returns true if one of the scenarios fails.
fn is_found_out<P: Pair>(fault: &str, order: Order) -> bool {
    let finds = |scenario: fn(Order)| catch_unwind(AssertUnwindSafe(|| explore(move || scenario(order)))).is_err();
    let found = scenarios::<P>().into_iter().find(|(_, scenario)| finds(*scenario));
    println!("{fault}: {}", found.map_or("NOT found out".into(), |(name, _)| format!("found out by {name}")));
    found.is_some()
}

fn main() -> ExitCode {
    for (name, scenario) in scenarios::<as_built::Active>() {
        let (began, runs) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&runs);
        explore(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            scenario(Order::AsBuilt);
        });
        println!("{name}: holds in {} interleavings ({:.1?})", runs.load(Ordering::Relaxed), began.elapsed());
    }
    // Failures are expected here: no panic messages.
    std::panic::set_hook(Box::new(|_| {}));
    let orders = [Order::ReplayBeforeBegin, Order::InsertBeforeRemember, Order::NoReplay];
    let is_found = |order: &Order| is_found_out::<as_built::Active>(&format!("{order:?}"), *order);
    let mut found: Vec<bool> = orders.iter().map(is_found).collect();
    found.extend([
        is_found_out::<drain_forgotten::Active>("a list that is not put in", Order::AsBuilt),
        is_found_out::<list_left_open::Active>("a list that stays open", Order::AsBuilt),
        is_found_out::<full_list_drops::Active>("a full list that drops keys", Order::AsBuilt),
        is_found_out::<swap_before_drain::Active>("a swap before the list is put in", Order::AsBuilt),
    ]);
    if found.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
