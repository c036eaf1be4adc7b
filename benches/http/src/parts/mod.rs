//! The measurements, and their tables.

mod absent;
mod batches;
mod check;
mod database;
mod floors;
mod footprint;
mod goals;
mod http2;
mod mixes;
mod paced;
mod rebuild;
mod rebuilding;
mod rounds;
mod runtimes;
mod services;
mod start;
mod transports;

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

pub(crate) use self::check::run as check;
use self::goals::Goals;
use crate::connection::Wire;
use crate::contenders::Running;
use crate::load::{Outcome, Target, full_speed};
use crate::process::Placement;
use crate::requests::Requests;

/// All parts in order; `BLOOMGUARD_BENCH_PARTS` selects others.
const PARTS: &str =
    "absent,paced,mixes,batches,database,rebuild,services,transports,http2,rebuilding,runtimes,footprint,start";
const CONNECTIONS: usize = 64;
const ROUNDS: usize = 3;
const WARM_UP: Duration = Duration::from_millis(500);

pub(crate) fn run() -> io::Result<()> {
    let chosen = std::env::var("BLOOMGUARD_BENCH_PARTS").ok();
    let mut goals = Goals::default();
    for part in chosen.as_deref().unwrap_or(PARTS).split(',') {
        match part {
            "absent" => absent::run(&mut goals)?,
            "paced" => paced::run(&mut goals)?,
            "mixes" => mixes::run(&mut goals)?,
            "batches" => batches::run(&mut goals)?,
            "database" => database::run(&mut goals)?,
            "services" => services::run()?,
            "transports" => transports::run()?,
            "http2" => http2::run()?,
            "rebuilding" => rebuilding::run(&mut goals)?,
            "runtimes" => runtimes::run()?,
            "footprint" => footprint::run(&mut goals)?,
            "start" => start::run(&mut goals)?,
            "rebuild" => rebuild::run(&mut goals)?,
            other => return Err(io::Error::other(format!("{other} is no part"))),
        }
    }
    println!("\nGoals\n\n{}", goals.table());
    let page = Path::new("docs/benchmarks.md");
    let others = ["BLOOMGUARD_BENCH_PARTS", "BLOOMGUARD_BENCH_KEYS", "BLOOMGUARD_BIN"];
    // The page describes complete runs of the program as built.
    if page.is_file() && others.iter().all(|name| std::env::var_os(name).is_none()) {
        goals.write(page, lasts())
    } else {
        Ok(())
    }
}

fn lasts() -> Duration {
    let seconds = std::env::var("BLOOMGUARD_BENCH_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.5))
}

/// The largest key set: `BLOOMGUARD_BENCH_KEYS`, else ten million.
fn most_keys() -> u64 {
    std::env::var("BLOOMGUARD_BENCH_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(10_000_000)
}

/// The load generator leaves the first processor to a pinned server.
fn place_self(placement: Placement) -> io::Result<()> {
    let mut processors = CpuSet::new();
    if placement == Placement::Sharing {
        processors.set(0);
    }
    processors.set(1);
    Ok(sched_setaffinity(None, &processors)?)
}

/// Requests a second, and microseconds of the server's processor time each.
#[derive(Debug, Clone, Copy)]
struct Speed {
    per_second: f64,
    processor_us: f64,
}

fn target<'a>(running: &Running, wire: Wire, requests: &'a Requests) -> Target<'a> {
    Target { place: running.place.clone(), wire, requests, connections: CONNECTIONS }
}

/// One run at full speed; checks that the answers are the expected ones.
fn measure(running: &Running, wire: Wire, requests: &Requests, depth: usize) -> io::Result<Speed> {
    let before = running.server.processor_seconds();
    let outcome = full_speed(&target(running, wire, requests), depth, WARM_UP, lasts())?;
    let took = running.server.processor_seconds() - before;
    is_right(&outcome)?;
    Ok(Speed {
        per_second: outcome.per_second,
        processor_us: took * 1e6 / (outcome.per_second * (lasts() + WARM_UP).as_secs_f64()),
    })
}

/// Nearly all answers: one absent key in a thousand is a false positive.
fn is_right(outcome: &Outcome) -> io::Result<()> {
    let answered = outcome.per_second * lasts().as_secs_f64();
    if (outcome.wrong as f64) < 0.01 * answered {
        return Ok(());
    }
    Err(io::Error::other(format!("{} of {answered:.0} answers were not what was asked for", outcome.wrong)))
}
