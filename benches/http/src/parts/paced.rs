//! At a fixed rate: how long an answer takes where nobody is in a hurry.

use std::io;

use super::goals::{Goal, Goals};
use super::rounds::{HEADS, PACED_ROUNDS, Rounds};
use super::{is_right, lasts, place_self, target};
use crate::contenders::{Contender, Running, Transport};
use crate::load::at_rate;
use crate::process::Placement;
use crate::requests::{Mix, Requests};

const PACE: f64 = 20_000.0;

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
            let outcome = at_rate(&target(&running[number], contender.wire(), &requests[number]), PACE, lasts())?;
            is_right(&outcome)?;
            rounds[number].push(outcome);
        }
    }
    let nginx = contenders.iter().zip(&rounds).find_map(|(contender, rounds)| (*contender == Contender::Nginx).then_some(rounds));
    for (contender, rounds) in contenders.iter().zip(&rounds) {
        let [median, calmest] = nginx.map_or([f64::NAN; 2], |nginx| rounds.beside(nginx));
        println!("| {} | {} | {median:.2} | {calmest:.2} |", contender.name(), rounds.cells());
        if *contender == Contender::Guard {
            goals.reached(format!("P99 at {PACE} a second, one core, / nginx"), median, Goal::AtMost(1.1));
        }
    }
    Ok(())
}
