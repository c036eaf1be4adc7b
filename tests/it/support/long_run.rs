//! Long runs: tests that are short by default and take hours if they are asked to. Here alone tests read the
//! environment.
//!
//! `make long` starts them all, with the sizes in the column `long`. One alone, of any size:
//! `BLOOMGUARD_KILLS=200 cargo test --locked --test it product::kills -- --nocapture`.
//! Tests that are too slow without optimisation even if they are small are ignored with the reason [`IGNORED`]; `make
//! long` runs them too.

use std::fmt::Debug;
use std::str::FromStr;

/// Makes every run long.
const LONG: &str = "BLOOMGUARD_LONG";

/// The reason of each `#[ignore]`.
pub const IGNORED: &str = "a long run: make long";

/// What sets the size of a test.
pub struct LongRun {
    variable: &'static str,
    short: &'static str,
    long: &'static str,
}

const fn run(variable: &'static str, short: &'static str, long: &'static str) -> LongRun {
    LongRun { variable, short, long }
}

/// Scripts of the simulation.
pub const SIMULATIONS: LongRun = run("BLOOMGUARD_SIMULATIONS", "100", "5000");
/// Rounds of each fuzz target, each with other mutations.
pub const FUZZ_ROUNDS: LongRun = run("BLOOMGUARD_FUZZ_ROUNDS", "1", "50");
/// Rows that are committed while faults walk through the fleet.
pub const CHAOS_ROWS: LongRun = run("BLOOMGUARD_CHAOS_ROWS", "500", "100000");
/// Rows that are written at a time.
pub const CHAOS_WRITERS: LongRun = run("BLOOMGUARD_CHAOS_WRITERS", "96", "96");
/// Processes that are killed.
pub const KILLS: LongRun = run("BLOOMGUARD_KILLS", "12", "201");
/// Kills of Redis while three instances announce.
pub const REDIS_KILLS: LongRun = run("BLOOMGUARD_REDIS_KILLS", "3", "50");
/// Rows that are committed between the first of these kills and the last.
pub const REDIS_KILL_ROWS: LongRun = run("BLOOMGUARD_REDIS_KILL_ROWS", "300", "20000");
/// Seconds of one load under rebuilds, whose memory is drawn as a curve; 0 makes sixteen rebuilds as fast as they go.
pub const SOAK_SECONDS: LongRun = run("BLOOMGUARD_SOAK_SECONDS", "0", "600");
/// Seconds of each measured load; 0 takes a short one at a low rate.
pub const LOAD_SECONDS: LongRun = run("BLOOMGUARD_LOAD", "0", "10");
/// Seconds without Redis.
pub const OUTAGE_SECONDS: LongRun = run("BLOOMGUARD_OUTAGE_SECONDS", "8", "20");
/// Seconds of each attack.
pub const ATTACK_SECONDS: LongRun = run("BLOOMGUARD_ATTACK_SECONDS", "0.3", "3");
/// Keys of the snapshot whose reading is measured.
pub const SNAPSHOT_KEYS: LongRun = run("BLOOMGUARD_SNAPSHOT_KEYS", "100000", "10000000");

impl LongRun {
    pub fn size<T: FromStr<Err: Debug>>(&self) -> T {
        let default = if std::env::var_os(LONG).is_some() { self.long } else { self.short };
        given(self.variable).unwrap_or_else(|| default.parse().unwrap())
    }

    pub fn is_long(&self) -> bool {
        self.size::<f64>() > self.short.parse().unwrap()
    }
}

/// A seed to repeat, and the like.
pub fn given<T: FromStr<Err: Debug>>(variable: &str) -> Option<T> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{variable}: {e:?}")))
}
