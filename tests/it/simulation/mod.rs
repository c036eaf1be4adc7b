//! A deterministic simulation: three real guards with their real runners over a simulated Redis and a simulated
//! database, on one clock that jumps from event to event.
//!
//! ```text
//!   Script (proptest) ── operations, one after another ──► World ──► answers ──► Promises: is any of them wrong?
//!                                                            │
//!            ┌───────────────────────┬───────────────────────┤
//!        Instance 0              Instance 1              Instance 2          Keyspace, Runner: the real ones
//!     journal │ edges         journal │ edges         journal │ edges        edges: SharedCache, DeltaLog
//!             Link                    Link                    Link           connection: epochs, timeouts, order
//!               └──────── Network: delays, lost answers, partitions ┐
//!                              Server ──► replica                   Database: Backend, KeySource
//! ```
//!
//! Everything is drawn from a script's seed, but for what the product itself leaves to chance and no promise may hang
//! on: salts, and the spread of pauses, which the edges round.
//!
//! A long run, see [`SIMULATIONS`].

mod database;
mod edges;
mod instance;
mod network;
mod operation;
mod promise;
mod server;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bloomguard::clock::VirtualTime;
use parking_lot::Mutex;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::operation::{Operation, Script, scripts};
use self::world::{Counts, World};
use crate::support::long_run::SIMULATIONS;

/// A command to Redis that is under way for longer is lost.
const LATEST: Duration = Duration::from_millis(250);

fn simulate(script: &Script, total: &Mutex<Counts>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let _time = VirtualTime::begin();
        let world = World::new(script);
        let replication = tokio::spawn(Arc::clone(&world).replicate(script.replication));
        let mut under_way = JoinSet::new();
        world.recover().await;
        for (pause, operation) in &script.operations {
            sleep(*pause).await;
            let performed = Arc::clone(&world).perform(operation.clone());
            match operation {
                Operation::Recover => performed.await,
                _ => drop(under_way.spawn(performed)),
            }
        }
        while let Some(ended) = under_way.join_next().await {
            ended.unwrap();
        }
        Arc::clone(&world).end().await;
        replication.abort();
        for (what, count) in &*world.counts.lock() {
            *total.lock().entry(what.clone()).or_default() += count;
        }
        world.verdict()
    })
}

/// Invariant: promises-hold-in-any-order
#[test]
#[allow(clippy::print_stdout, reason = "how many runs there were, and of what, is the result where many are asked for")]
fn no_promise_is_broken_in_any_order_of_events() {
    // Always the same few, so that a failure is the fault of a change; others each time in a long run.
    let rng_seed = if SIMULATIONS.is_long() { RngSeed::Random } else { RngSeed::Fixed(1) };
    let config = Config { cases: SIMULATIONS.size(), rng_seed, failure_persistence: None, ..Config::default() };
    let (total, runs) = (Mutex::default(), AtomicU32::new(0));
    let ran = TestRunner::new(config).run(&scripts(50), |script| {
        let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
        simulate(&script, &total).map_err(|why| {
            println!("run {run} broke a promise");
            TestCaseError::fail(why)
        })
    });
    println!("{runs:?} runs: {:?}", total.lock());
    if let Err(error) = ran {
        panic!("{error}");
    }
}
