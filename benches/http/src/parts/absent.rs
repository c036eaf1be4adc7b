//! Absent keys: the product's main case, compared with servers that do less.

use std::io;

use super::goals::{Goal, Goals};
use super::rounds::{SPEED_ROUNDS, Speeds};
use super::{measure, place_self};
use crate::contenders::{Contender, Running, Transport};
use crate::process::Placement;
use crate::requests::{Mix, Requests};

/// One kind of request.
struct Way {
    title: &'static str,
    placement: Placement,
    transport: Transport,
    depth: usize,
    /// The minimum ratio to other servers.
    goals: &'static [(Contender, f64)],
}

use Contender::{BareAxum, Nginx, Raw};

const WAYS: [Way; 4] = [
    Way {
        title: "one core",
        placement: Placement::Pinned,
        transport: Transport::Tcp,
        depth: 1,
        goals: &[(BareAxum, 1.05), (Nginx, 1.05), (Raw, 0.75)],
    },
    Way {
        title: "one core, pipelined by 16",
        placement: Placement::Pinned,
        transport: Transport::Tcp,
        depth: 16,
        goals: &[(BareAxum, 3.0)],
    },
    Way {
        title: "one core, Unix socket",
        placement: Placement::Pinned,
        transport: Transport::Unix,
        depth: 1,
        goals: &[(Raw, 0.7)],
    },
    Way { title: "both cores shared", placement: Placement::Sharing, transport: Transport::Tcp, depth: 1, goals: &[] },
];

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    for way in &WAYS {
        // axum::serve supports Unix sockets only with another feature.
        let takes_part = |one: &Contender| way.transport == Transport::Tcp || *one != Contender::BareAxum;
        let contenders: Vec<Contender> = Contender::ALL.into_iter().filter(takes_part).collect();
        let speeds = compare(way, &contenders)?;
        print(way.title, &contenders, &speeds);
        for (peer, least) in way.goals {
            let Some(theirs) = contenders.iter().position(|one| one == peer) else { continue };
            goals.reached(
                format!("absent keys, {}, / {}", way.title, peer.name()),
                speeds[0].beside(&speeds[theirs]),
                Goal::AtLeast(*least),
            );
        }
    }
    Ok(())
}

/// Requests absent keys from each of them, in turn, so that other load of the machine affects all of them.
fn compare(way: &Way, contenders: &[Contender]) -> io::Result<Vec<Speeds>> {
    place_self(way.placement)?;
    let running: Vec<Running> = contenders.iter().map(|one| one.start(way.placement, way.transport)).collect();
    let requests: Vec<Requests> = contenders.iter().map(|one| Requests::new(Mix::Absent, one.wire())).collect();
    let mut speeds: Vec<Speeds> = contenders.iter().map(|_| Speeds::new()).collect();
    for _ in 0..SPEED_ROUNDS {
        for (number, contender) in contenders.iter().enumerate() {
            speeds[number].push(measure(&running[number], contender.wire(), &requests[number], way.depth)?);
        }
    }
    Ok(speeds)
}

fn print(title: &str, contenders: &[Contender], speeds: &[Speeds]) {
    println!(
        "\nAbsent keys, {title}\n\n| server | requests/s | bloomguard / it | processor µs a request \
         |\n|---|---|---|---|"
    );
    for (contender, theirs) in contenders.iter().zip(speeds) {
        println!(
            "| {} | {:.0} | {:.2} | {:.2} |",
            contender.name(),
            theirs.per_second(),
            speeds[0].beside(theirs),
            theirs.processor_us()
        );
    }
}
