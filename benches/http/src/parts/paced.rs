//! Latency at a fixed, moderate rate.

use std::io;
use std::time::Instant;

use super::goals::{Goal, Goals};
use super::rounds::{HEADS, PACED_ROUNDS, Rounds};
use super::{is_right, lasts, place_self, target};
use crate::contenders::{Contender, Running, Transport};
use crate::load::{Outcome, Target, at_rate};
use crate::process::{Placement, Server};
use crate::requests::{Mix, Requests};

/// Requests a second.
pub(super) const PACE: f64 = 20_000.0;

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    place_self(Placement::Pinned)?;
    println!("\nAbsent keys at {PACE} a second, one core; µs from when a request was due\n");
    println!("| server | {HEADS} | its P99 / nginx', in the median | calmest |\n|---|---|---|---|---|---|---|");
    let contenders = Contender::ALL;
    let running: Vec<Running> = contenders.iter().map(|one| one.start(Placement::Pinned, Transport::Tcp)).collect();
    let requests: Vec<Requests> = contenders.iter().map(|one| Requests::new(Mix::Absent, one.wire())).collect();
    let mut rounds: Vec<Rounds> = contenders.iter().map(|_| Rounds::new()).collect();
    for _ in 0..PACED_ROUNDS {
        for (number, contender) in contenders.iter().enumerate() {
            let target = target(&running[number], contender.wire(), &requests[number]);
            rounds[number].push(paced(&target, &running[number].server)?.outcome);
        }
    }
    let nginx = contenders
        .iter()
        .zip(&rounds)
        .find_map(|(contender, rounds)| (*contender == Contender::Nginx).then_some(rounds));
    for (contender, rounds) in contenders.iter().zip(&rounds) {
        let [median, calmest] = nginx.map_or([f64::NAN; 2], |nginx| rounds.beside(nginx));
        println!("| {} | {} | {median:.2} | {calmest:.2} |", contender.name(), rounds.cells());
        if *contender == Contender::Guard {
            goals.reached(format!("P99 at {PACE} a second, one core, / nginx"), median, Goal::AtMost(1.1));
        }
    }
    Ok(())
}

/// One run at that rate.
pub(super) struct Paced {
    pub(super) outcome: Outcome,
    /// Processor time of the server, as a share of one core.
    pub(super) share: f64,
    /// How long its answering threads waited for a processor, per second.
    pub(super) waited: f64,
}

/// Sends at [`PACE`]; checks that all answers are the expected ones.
pub(super) fn paced(target: &Target<'_>, server: &Server) -> io::Result<Paced> {
    let (took, waits, begin) = (server.processor_seconds(), server.waits(), Instant::now());
    let outcome = at_rate(target, PACE, lasts())?;
    is_right(&outcome)?;
    let lasted = begin.elapsed().as_secs_f64();
    let [share, waited] =
        [server.processor_seconds() - took, server.waits().seconds_since(&waits)].map(|seconds| seconds / lasted);
    Ok(Paced { outcome, share, waited })
}
