//! What is measured, and the tables that come of it.

use std::io;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::contenders::{Contender, Running, Transport};
use crate::load::{Target, at_rate, full_speed};
use crate::process::Placement;
use crate::requests::{Mix, Requests};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 3;
const WARM_UP: Duration = Duration::from_millis(500);
const PACE: f64 = 20_000.0;

pub(crate) fn run() -> io::Result<()> {
    let parts = std::env::var("BLOOMGUARD_BENCH_PARTS").unwrap_or("absent,paced,mixes".to_owned());
    for part in parts.split(',') {
        match part {
            "absent" => absent()?,
            "paced" => paced()?,
            "mixes" => mixes()?,
            other => return Err(io::Error::other(format!("{other} is no part"))),
        }
    }
    Ok(())
}

fn lasts() -> Duration {
    let seconds = std::env::var("BLOOMGUARD_BENCH_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.5))
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

/// One way of asking all contenders.
struct Way {
    title: &'static str,
    placement: Placement,
    transport: Transport,
    depth: usize,
}

const WAYS: [Way; 4] = [
    Way { title: "one core", placement: Placement::Pinned, transport: Transport::Tcp, depth: 1 },
    Way { title: "one core, pipelined by 16", placement: Placement::Pinned, transport: Transport::Tcp, depth: 16 },
    Way { title: "one core, Unix socket", placement: Placement::Pinned, transport: Transport::Unix, depth: 1 },
    Way { title: "both cores shared", placement: Placement::Sharing, transport: Transport::Tcp, depth: 1 },
];

/// Requests a second, and microseconds of the server's processor time each.
#[derive(Clone, Copy, Default)]
struct Speed {
    per_second: f64,
    processor_us: f64,
}

fn absent() -> io::Result<()> {
    for way in &WAYS {
        place_self(way.placement)?;
        let contenders: Vec<Contender> =
            Contender::ALL.into_iter().filter(|one| way.transport == Transport::Tcp || *one != Contender::BareAxum).collect();
        let running: Vec<Running> = contenders.iter().map(|one| one.start(way.placement, way.transport)).collect();
        let requests: Vec<Requests> = contenders.iter().map(|one| Requests::new(Mix::Absent, one.wire())).collect();
        let mut best = vec![Speed::default(); contenders.len()];
        for _ in 0..ROUNDS {
            for (number, running) in running.iter().enumerate() {
                let speed = measure(contenders[number], running, &requests[number], way.depth)?;
                if speed.per_second > best[number].per_second {
                    best[number] = speed;
                }
            }
        }
        print(way.title, &contenders, &best);
    }
    Ok(())
}

fn measure(contender: Contender, running: &Running, requests: &Requests, depth: usize) -> io::Result<Speed> {
    let target = Target { place: running.place.clone(), wire: contender.wire(), requests, connections: CONNECTIONS };
    let before = running.server.processor_seconds();
    let outcome = full_speed(&target, depth, WARM_UP, lasts())?;
    let took = running.server.processor_seconds() - before;
    // Nearly all answers: one absent key in a thousand is a false positive.
    let answered = outcome.per_second * lasts().as_secs_f64();
    assert!((outcome.wrong as f64) < 0.01 * answered, "{}: {} of {answered} answers are wrong", contender.name(), outcome.wrong);
    let processor_us = took * 1e6 / (outcome.per_second * (lasts() + WARM_UP).as_secs_f64());
    Ok(Speed { per_second: outcome.per_second, processor_us })
}

fn print(title: &str, contenders: &[Contender], speeds: &[Speed]) {
    println!("\nAbsent keys, {title}\n\n| server | requests/s | bloomguard / it | processor µs a request |\n|---|---|---|---|");
    let ours = speeds[0].per_second;
    for (contender, speed) in contenders.iter().zip(speeds) {
        println!("| {} | {:.0} | {:.2} | {:.2} |", contender.name(), speed.per_second, ours / speed.per_second, speed.processor_us);
    }
}

fn paced() -> io::Result<()> {
    place_self(Placement::Pinned)?;
    println!(
        "\nAbsent keys at {PACE} a second, one core; µs from when a request was due\n\n| server | P50 | P99 | P99.9 |\n|---|---|---|---|"
    );
    for contender in Contender::ALL {
        let running = contender.start(Placement::Pinned, Transport::Tcp);
        let requests = Requests::new(Mix::Absent, contender.wire());
        let target = Target { place: running.place.clone(), wire: contender.wire(), requests: &requests, connections: CONNECTIONS };
        let mut outcomes = Vec::new();
        for _ in 0..ROUNDS {
            outcomes.push(at_rate(&target, PACE, lasts() * 2)?);
        }
        // The calmest round: what disturbs a machine only ever adds.
        outcomes.sort_by(|a, b| a.percentile(99.0).total_cmp(&b.percentile(99.0)));
        let calmest = &outcomes[0];
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| calmest.percentile(percent));
        println!("| {} | {p50:.0} | {p99:.0} | {p999:.0} |", contender.name());
    }
    Ok(())
}

fn mixes() -> io::Result<()> {
    place_self(Placement::Pinned)?;
    let running = Contender::Guard.start(Placement::Pinned, Transport::Tcp);
    println!("\nbloomguard, one core\n\n| keys | requests/s | / absent | processor µs a request |\n|---|---|---|---|");
    let mut absent = 0.0;
    let named = [
        ("all absent", Mix::Absent),
        ("99 % absent", Mix::MostlyAbsent),
        ("present, Zipf", Mix::ZipfPresent),
        ("one hot key", Mix::OneHotKey),
    ];
    for (name, mix) in named {
        let requests = Requests::new(mix, Contender::Guard.wire());
        let mut best = Speed::default();
        for _ in 0..ROUNDS {
            let speed = measure(Contender::Guard, &running, &requests, 1)?;
            if speed.per_second > best.per_second {
                best = speed;
            }
        }
        if mix == Mix::Absent {
            absent = best.per_second;
        }
        println!("| {name} | {:.0} | {:.2} | {:.2} |", best.per_second, best.per_second / absent, best.processor_us);
    }
    println!("\nResident after that: {:.1} MiB", running.server.resident_bytes() as f64 / f64::from(1 << 20));
    Ok(())
}
