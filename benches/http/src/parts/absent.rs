//! Absent keys: what the product is there for, beside servers that do less.

use std::io;

use super::{ROUNDS, Speed, measure, place_self};
use crate::contenders::{Contender, Running, Transport};
use crate::process::Placement;
use crate::requests::{Mix, Requests};

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

pub(super) fn run() -> io::Result<()> {
    for way in &WAYS {
        place_self(way.placement)?;
        // axum::serve has no Unix socket in our tree of features.
        let takes_part = |one: &Contender| way.transport == Transport::Tcp || *one != Contender::BareAxum;
        let contenders: Vec<Contender> = Contender::ALL.into_iter().filter(takes_part).collect();
        let running: Vec<Running> = contenders.iter().map(|one| one.start(way.placement, way.transport)).collect();
        let requests: Vec<Requests> = contenders.iter().map(|one| Requests::new(Mix::Absent, one.wire())).collect();
        let mut best = vec![Speed::default(); contenders.len()];
        // In turn, so that what the machine does besides meets all of them.
        for _ in 0..ROUNDS {
            for (number, contender) in contenders.iter().enumerate() {
                best[number] = best[number].max(measure(&running[number], contender.wire(), &requests[number], way.depth)?);
            }
        }
        print(way.title, &contenders, &best);
    }
    Ok(())
}

fn print(title: &str, contenders: &[Contender], speeds: &[Speed]) {
    println!("\nAbsent keys, {title}\n\n| server | requests/s | bloomguard / it | processor µs a request |\n|---|---|---|---|");
    let ours = speeds[0].per_second;
    for (contender, speed) in contenders.iter().zip(speeds) {
        println!("| {} | {:.0} | {:.2} | {:.2} |", contender.name(), speed.per_second, ours / speed.per_second, speed.processor_us);
    }
}
