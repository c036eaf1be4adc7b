//! What else services ask for, beside absent keys.

use std::io;

use super::goals::{Goal, Goals};
use super::{best, place_self};
use crate::contenders::{Contender, Transport};
use crate::process::Placement;
use crate::requests::{Mix, Requests};

const MIXES: [(&str, Mix); 4] =
    [("all absent", Mix::Absent), ("99 % absent", Mix::MostlyAbsent), ("present, Zipf", Mix::ZipfPresent), ("one hot key", Mix::OneHotKey)];

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    place_self(Placement::Pinned)?;
    let (guard, wire) = (Contender::Guard.start(Placement::Pinned, Transport::Tcp), Contender::Guard.wire());
    println!("\nbloomguard, one core\n\n| keys | requests/s | / absent | processor µs a request |\n|---|---|---|---|");
    let mut absent = None;
    for (name, mix) in MIXES {
        let speed = best(&guard, wire, &Requests::new(mix, wire), 1)?;
        let ratio = speed.per_second / *absent.get_or_insert(speed.per_second);
        println!("| {name} | {:.0} | {ratio:.2} | {:.2} |", speed.per_second, speed.processor_us);
        if matches!(mix, Mix::OneHotKey) {
            goals.reached("one hot key / absent keys", ratio, Goal::AtLeast(0.9));
        }
    }
    println!("\nResident after that: {:.1} MiB", guard.server.resident_bytes() as f64 / f64::from(1 << 20));
    Ok(())
}
