//! The transports to one server, each compared with TCP over persistent connections.

use std::io;

use super::{CONNECTIONS, ROUNDS, WARM_UP, is_right, lasts, place_self, target};
use crate::connection::Wire;
use crate::contenders::{Contender, Running, Transport};
use crate::load::{Outcome, full_speed, reconnecting};
use crate::process::Placement;
use crate::requests::{Mix, Requests};

#[derive(Debug, Clone, Copy)]
enum Way {
    Kept,
    /// A connection for each request.
    Closed,
    /// This many requests at once on each connection.
    Pipelined(usize),
    Unix,
}

const WAYS: [(&str, Way); 4] = [
    ("TCP, connections are kept", Way::Kept),
    ("TCP, a connection for each request", Way::Closed),
    ("TCP, pipelined by 16", Way::Pipelined(16)),
    ("Unix socket", Way::Unix),
];

pub(super) fn run() -> io::Result<()> {
    place_self(Placement::Pinned)?;
    let [tcp, unix] =
        [Transport::Tcp, Transport::Unix].map(|transport| Contender::Guard.start(Placement::Pinned, transport));
    let requests = Requests::new(Mix::Absent, Wire::Http);
    let mut best = WAYS.map(|_| Outcome::default());
    for _ in 0..ROUNDS {
        for ((_, way), best) in WAYS.iter().zip(&mut best) {
            let outcome = ask(*way, &tcp, &unix, &requests)?;
            if outcome.per_second > best.per_second {
                *best = outcome;
            }
        }
    }
    println!(
        "\nbloomguard, absent keys, one core, {CONNECTIONS} connections; µs until all requests of a connection are \
         answered\n"
    );
    println!("| way | requests/s | / kept TCP | P50 | P99 |\n|---|---|---|---|---|");
    for ((name, _), outcome) in WAYS.iter().zip(&best) {
        let [p50, p99] = [50.0, 99.0].map(|percent| outcome.percentile(percent));
        println!(
            "| {name} | {:.0} | {:.2} | {p50:.0} | {p99:.0} |",
            outcome.per_second,
            outcome.per_second / best[0].per_second
        );
    }
    Ok(())
}

fn ask(way: Way, tcp: &Running, unix: &Running, requests: &Requests) -> io::Result<Outcome> {
    let running = if matches!(way, Way::Unix) { unix } else { tcp };
    let target = target(running, Wire::Http, requests);
    let outcome = match way {
        Way::Kept | Way::Unix => full_speed(&target, 1, WARM_UP, lasts())?,
        Way::Pipelined(depth) => full_speed(&target, depth, WARM_UP, lasts())?,
        Way::Closed => reconnecting(&target, lasts())?,
    };
    is_right(&outcome)?;
    Ok(outcome)
}
