//! Other requests of services, beside absent keys.

use std::io;

use super::goals::{Goal, Goals};
use super::rounds::{SPEED_ROUNDS, Speeds};
use super::{measure, place_self};
use crate::contenders::{Contender, Transport};
use crate::process::Placement;
use crate::requests::{Mix, Requests};

/// Keys, and the number of pending requests per connection.
const MIXES: [(&str, Mix, usize); 7] = [
    ("all absent", Mix::Absent, 1),
    ("99 % absent", Mix::MostlyAbsent, 1),
    ("present, Zipf", Mix::ZipfPresent, 1),
    ("one hot key", Mix::OneHotKey, 1),
    ("all absent, pipelined by 16", Mix::Absent, 16),
    ("99 % absent, pipelined by 16", Mix::MostlyAbsent, 16),
    ("present, Zipf, pipelined by 16", Mix::ZipfPresent, 16),
];

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    place_self(Placement::Pinned)?;
    let (guard, wire) = (Contender::Guard.start(Placement::Pinned, Transport::Tcp), Contender::Guard.wire());
    let requests = MIXES.map(|(_, mix, _)| Requests::new(mix, wire));
    let mut speeds = MIXES.map(|_| Speeds::new());
    for _ in 0..SPEED_ROUNDS {
        for (number, (_, _, depth)) in MIXES.iter().enumerate() {
            speeds[number].push(measure(&guard, wire, &requests[number], *depth)?);
        }
    }
    println!(
        "\nbloomguard, one core\n\n| keys | requests/s | / absent alike | processor µs a request |\n|---|---|---|---|"
    );
    let mut absent = &speeds[0];
    for ((name, mix, _), speed) in MIXES.iter().zip(&speeds) {
        if matches!(mix, Mix::Absent) {
            absent = speed;
        }
        let ratio = speed.beside(absent);
        println!("| {name} | {:.0} | {ratio:.2} | {:.2} |", speed.per_second(), speed.processor_us());
        if matches!(mix, Mix::OneHotKey) {
            goals.reached("one hot key / absent keys", ratio, Goal::AtLeast(0.9));
        }
    }
    println!("\nResident after that: {:.1} MiB", guard.server.resident_bytes() as f64 / f64::from(1 << 20));
    Ok(())
}
