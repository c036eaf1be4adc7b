//! Ratios that must not get worse: a short run of what matters most, against floors that were reached before.

use std::io;

use super::absent::{Way, compare};
use crate::contenders::{Contender, Transport};
use crate::process::Placement;

/// bloomguard over a contender, as a share of its requests a second; a fifth below what was measured, for machines have moods.
const FLOORS: [(Way, &[(Contender, f64)]); 3] = [
    (
        Way { title: "one core", placement: Placement::Pinned, transport: Transport::Tcp, depth: 1 },
        &[(Contender::BareAxum, 0.0), (Contender::Nginx, 0.0), (Contender::Raw, 0.0)],
    ),
    (Way { title: "pipelined by 16", placement: Placement::Pinned, transport: Transport::Tcp, depth: 16 }, &[(Contender::BareAxum, 0.0)]),
    (Way { title: "Unix socket", placement: Placement::Pinned, transport: Transport::Unix, depth: 1 }, &[(Contender::Raw, 0.0)]),
];

pub(super) fn run() -> io::Result<()> {
    let mut below = 0;
    for (way, floors) in &FLOORS {
        let contenders: Vec<Contender> = std::iter::once(Contender::Guard).chain(floors.iter().map(|(one, _)| *one)).collect();
        let speeds = compare(way, &contenders)?;
        for ((contender, floor), speed) in floors.iter().zip(&speeds[1..]) {
            let ratio = speeds[0].per_second / speed.per_second;
            let verdict = if ratio >= *floor { "holds" } else { "BELOW" };
            below += usize::from(ratio < *floor);
            println!("{verdict}: {}, bloomguard / {}: {ratio:.2}, at least {floor}", way.title, contender.name());
        }
    }
    if below == 0 { Ok(()) } else { Err(io::Error::other(format!("{below} ratios are below their floors"))) }
}
