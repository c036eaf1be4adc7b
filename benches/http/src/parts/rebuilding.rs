//! At a fixed rate while filters are built, beside nginx next to a process that takes as much processor time.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{CONNECTIONS, ROUNDS, lasts, place_self, target};
use crate::connection::Wire;
use crate::contenders::{Contender, Site, Transport};
use crate::load::{Outcome, Target, at_rate, full_speed};
use crate::process::{Placement, Server, folder};
use crate::requests::{Mix, Requests};

const PACE: f64 = 20_000.0;
const KEYS: u64 = 10_000_000;

pub(super) fn run() -> io::Result<()> {
    for (placement, name) in [(Placement::Pinned, "one core"), (Placement::Sharing, "both cores shared")] {
        place_self(placement)?;
        println!(
            "\nAbsent keys at {PACE} a second, {name}, while {KEYS} keys from a file are built into a filter again and again; µs from when a request was due\n"
        );
        println!("| server | beside it | P50 | P99 | P99.9 | its processor time, of one core |\n|---|---|---|---|---|---|");
        let requests = Requests::new(Mix::Absent, Wire::Http);
        let site = Site::new(placement, KEYS, None);
        let guard = site.start();
        site.enforces();
        let ours = site.target(&requests, CONNECTIONS);
        let alone = calmest(|| paced(&ours, &guard))?;
        let rebuilding = while_rebuilding(&site, || calmest(|| paced(&ours, &guard)))?;
        let idle = site.rebuild();
        let flooded = while_flooded(&ours, || site.rebuild())?;
        drop(guard);
        let nginx = Contender::Nginx.start(placement, Transport::Tcp);
        let theirs = target(&nginx, Wire::Http, &requests);
        let theirs_alone = calmest(|| paced(&theirs, &nginx.server))?;
        let share = rebuilding.share - alone.share;
        let logs = folder();
        let burner = burner(placement, share, logs.path())?;
        let theirs_beside = calmest(|| paced(&theirs, &nginx.server))?;
        drop(burner);
        print("bloomguard", "nothing", &alone);
        print("bloomguard", "rebuilds", &rebuilding);
        print("nginx, `return 404`", "nothing", &theirs_alone);
        print("nginx, `return 404`", &format!("a loop that takes {:.0} %", share * 100.0), &theirs_beside);
        let ratio = rebuilding.outcome.percentile(99.0) / theirs_beside.outcome.percentile(99.0);
        println!("\nP99 during rebuilds / nginx beside that loop: {ratio:.2}, at most 1.2");
        println!("A rebuild took {idle:.2} s with nothing beside it, {flooded:.2} s beside two threads that asked as fast as answers came");
    }
    Ok(())
}

/// One run, and the processor time that the server took, of one core's.
struct Paced {
    outcome: Outcome,
    share: f64,
}

fn paced(target: &Target<'_>, server: &Server) -> io::Result<Paced> {
    let (before, begin) = (server.processor_seconds(), Instant::now());
    let outcome = at_rate(target, PACE, lasts() * 2)?;
    Ok(Paced { outcome, share: (server.processor_seconds() - before) / begin.elapsed().as_secs_f64() })
}

/// Of some rounds: what disturbs a machine only ever adds.
fn calmest(mut round: impl FnMut() -> io::Result<Paced>) -> io::Result<Paced> {
    let mut rounds = (0..ROUNDS).map(|_| round()).collect::<io::Result<Vec<_>>>()?;
    rounds.sort_by(|a, b| a.outcome.percentile(99.0).total_cmp(&b.outcome.percentile(99.0)));
    Ok(rounds.swap_remove(0))
}

/// Tells those beside it that what they were beside is done; also where that panics, for their scope waits for them.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has both processors taken by lookups until `what` is done.
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

fn burner(placement: Placement, share: f64, logs: &Path) -> io::Result<Server> {
    Ok(Server::start(placement, &std::env::current_exe()?, &["burn", &share.to_string()], logs))
}

fn print(server: &str, beside: &str, Paced { outcome, share }: &Paced) {
    let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| outcome.percentile(percent));
    println!("| {server} | {beside} | {p50:.0} | {p99:.0} | {p999:.0} | {:.0} % |", share * 100.0);
}
