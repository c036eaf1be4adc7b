//! At a fixed rate: how long an answer takes where nobody is in a hurry.

use std::io;

use super::{ROUNDS, lasts, place_self, target};
use crate::contenders::{Contender, Transport};
use crate::load::at_rate;
use crate::process::Placement;
use crate::requests::{Mix, Requests};

const PACE: f64 = 20_000.0;

pub(super) fn run() -> io::Result<()> {
    place_self(Placement::Pinned)?;
    println!(
        "\nAbsent keys at {PACE} a second, one core; µs from when a request was due\n\n| server | P50 | P99 | P99.9 |\n|---|---|---|---|"
    );
    for contender in Contender::ALL {
        let running = contender.start(Placement::Pinned, Transport::Tcp);
        let requests = Requests::new(Mix::Absent, contender.wire());
        let mut outcomes = Vec::new();
        for _ in 0..ROUNDS {
            outcomes.push(at_rate(&target(&running, contender.wire(), &requests), PACE, lasts() * 2)?);
        }
        // The calmest round: what disturbs a machine only ever adds.
        outcomes.sort_by(|a, b| a.percentile(99.0).total_cmp(&b.percentile(99.0)));
        let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| outcomes[0].percentile(percent));
        println!("| {} | {p50:.0} | {p99:.0} | {p999:.0} |", contender.name());
    }
    Ok(())
}
