//! Latency at a fixed rate during rebuilds, beside nginx next to a process that uses as much processor time.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::goals::{Goal, Goals};
use super::paced::{PACE, Paced, paced};
use super::rounds::{HEADS, Rounds, median};
use super::{CONNECTIONS, place_self, target};
use crate::connection::Wire;
use crate::contenders::{Contender, Site, Transport};
use crate::load::{Target, full_speed};
use crate::process::{Placement, burner, folder};
use crate::requests::{Mix, Requests};

const KEYS: u64 = 10_000_000;
/// Ratios of single rounds differ by a factor of two and more: this many rounds give a stable median.
const ROUNDS: usize = 21;

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    let beside_a_rebuild =
        format!("Absent keys at {PACE} a second while {KEYS} keys from a file are built into a filter again and again");
    for (placement, name) in [(Placement::Pinned, "one core"), (Placement::Sharing, "both cores shared")] {
        println!("\n{beside_a_rebuild}, {name}; µs from when a request was due\n");
        goals.reached(
            format!("P99 during rebuilds, {name}, / nginx beside as much"),
            compare(placement)?,
            Goal::AtMost(1.2),
        );
    }
    Ok(())
}

/// Returns the P99 during rebuilds relative to nginx next to the loop, in the median.
fn compare(placement: Placement) -> io::Result<f64> {
    place_self(placement)?;
    let (requests, logs) = (Requests::new(Mix::Absent, Wire::Http), folder());
    let site = Site::new(placement, KEYS, None);
    let guard = site.start();
    site.enforces();
    let ours = site.target(&requests, CONNECTIONS);
    let nginx = Contender::Nginx.start(placement, Transport::Tcp);
    let theirs = target(&nginx, Wire::Http, &requests);
    let [mut alone, mut rebuilding, mut theirs_alone, mut theirs_beside] = [const { Row::new() }; 4];
    for _ in 0..ROUNDS {
        let idle = alone.push(paced(&ours, &guard)?);
        let share = rebuilding.push(while_rebuilding(&site, || paced(&ours, &guard))?) - idle;
        theirs_alone.push(paced(&theirs, &nginx.server)?);
        let _burner = burner(placement, share, logs.path())?;
        theirs_beside.push(paced(&theirs, &nginx.server)?);
    }
    let looping = format!("a loop that takes {:.0} %", (rebuilding.share() - alone.share()) * 100.0);
    println!(
        "| server | beside it | {HEADS} | waited for a processor, ms/s | processor time, of one core \
         |\n|---|---|---|---|---|---|---|---|"
    );
    alone.print("bloomguard", "nothing");
    rebuilding.print("bloomguard", "rebuilds");
    theirs_alone.print("nginx, `return 404`", "nothing");
    theirs_beside.print("nginx, `return 404`", &looping);
    let [median, calmest] = rebuilding.rounds.beside(&theirs_beside.rounds);
    println!(
        "\nP99 during rebuilds / nginx beside that loop, at most 1.2: {median:.2} in the median, {calmest:.2} of the \
         calmest rounds"
    );
    let (idle, flooded) = (site.rebuild(), while_flooded(&ours, || site.rebuild())?);
    println!(
        "A rebuild took {idle:.2} s with nothing beside it, {flooded:.2} s beside two threads that asked as fast as \
         answers came"
    );
    Ok(median)
}

/// A row of the table.
struct Row {
    rounds: Rounds,
    shares: Vec<f64>,
    waited: Vec<f64>,
}

impl Row {
    const fn new() -> Self {
        Self { rounds: Rounds::new(), shares: Vec::new(), waited: Vec::new() }
    }

    /// The share of this round.
    fn push(&mut self, Paced { outcome, share, waited }: Paced) -> f64 {
        self.rounds.push(outcome);
        self.shares.push(share);
        self.waited.push(waited);
        share
    }

    fn share(&self) -> f64 {
        median(self.shares.clone())
    }

    fn print(&self, server: &str, beside: &str) {
        let waited = median(self.waited.clone()) * 1e3;
        println!("| {server} | {beside} | {} | {waited:.0} | {:.0} % |", self.rounds.cells(), self.share() * 100.0);
    }
}

/// Signals the concurrent threads that the measured work is done; also on a panic, because their scope waits for them.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Keeps both processors busy with lookups until `what` is done.
fn while_flooded<T>(target: &Target<'_>, what: impl FnOnce() -> T) -> io::Result<T> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = || {
            while !done.load(Ordering::Relaxed) {
                full_speed(target, 1, Duration::ZERO, Duration::from_millis(500))?;
            }
            io::Result::Ok(())
        };
        let floods = [scope.spawn(flood), scope.spawn(flood)];
        let outcome = {
            let _done = Done(&done);
            what()
        };
        for flood in floods {
            flood.join().map_err(|_| io::Error::other("a flood panicked"))??;
        }
        Ok(outcome)
    })
}

/// Builds one filter after another until `what` is done.
fn while_rebuilding<T>(site: &Site, what: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                site.rebuild();
            }
        });
        let _done = Done(&done);
        what()
    })
}
