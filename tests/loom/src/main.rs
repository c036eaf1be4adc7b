//! Runs the product's own `filter/active.rs` and `guard/recent.rs` through every interleaving of an announce, a build and a lookup that the memory
//! model allows: `make loom`.
//!
//! Both files are compiled here unchanged, with loom's mutex and a pointer made of loom's atomic in the places of `parking_lot` and `arc_swap`. What the
//! guard does with them is a few lines that stand here again, each beside the name of its counterpart in `guard/`. Rules that are broken on purpose
//! must be found out, else the scenarios show nothing.

// Under these names the two files import the stand-ins of `primitives`.
extern crate self as arc_swap;
extern crate self as parking_lot;

mod clock;
mod filter;
mod guard;
mod key;
mod primitives;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use primitives::{ArcSwap, Mutex, MutexGuard};

use guard::{Order, scenarios};

/// Switches from a thread that could go on: more of them than that have never shown a fault that fewer had not.
const PREEMPTIONS: usize = 3;

fn explore(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(PREEMPTIONS));
    builder.check(scenario);
}

fn main() -> ExitCode {
    let mut failed = false;
    for (name, scenario) in scenarios() {
        let (began, runs) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&runs);
        explore(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            scenario(Order::AsBuilt);
        });
        println!("{name}: holds in {} interleavings ({:.1?})", runs.load(Ordering::Relaxed), began.elapsed());
    }
    // What loom says of a failure is expected here.
    std::panic::set_hook(Box::new(|_| {}));
    for order in [Order::ReplayBeforeBegin, Order::InsertBeforeRemember, Order::NoReplay] {
        let (_, scenario) = scenarios()[0];
        let found = catch_unwind(AssertUnwindSafe(|| explore(move || scenario(order)))).is_err();
        println!("{order:?}: {}", if found { "found out" } else { "NOT found out" });
        failed |= !found;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
