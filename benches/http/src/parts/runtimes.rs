//! One runtime of several threads compared with one per core, where clients and other work share the cores.

use std::io;

use super::paced::{PACE, Paced, paced};
use super::rounds::{PACED_ROUNDS, Rounds, median};
use super::{WARM_UP, is_right, lasts, place_self, target};
use crate::contenders::{Contender, Running, Transport};
use crate::load::{Target, full_speed};
use crate::process::{Placement, burner, folder};
use crate::requests::{Mix, Requests};

const CONTENDERS: [Contender; 4] =
    [Contender::Guard, Contender::GuardByOne, Contender::BareAxum, Contender::AxumByCores];
/// About the share of a core that consecutive rebuilds use.
const SHARE: f64 = 0.6;

/// The results of one of them, round by round.
struct Row {
    per_second: Vec<f64>,
    fast: Rounds,
    paced: Rounds,
    waited: Vec<f64>,
}

pub(super) fn run() -> io::Result<()> {
    place_self(Placement::Sharing)?;
    let running: Vec<Running> = CONTENDERS.iter().map(|one| one.start(Placement::Sharing, Transport::Tcp)).collect();
    let requests = Requests::new(Mix::Absent, Contender::Guard.wire());
    let mut rows: Vec<Row> = Vec::new();
    rows.resize_with(CONTENDERS.len(), || Row {
        per_second: Vec::new(),
        fast: Rounds::new(),
        paced: Rounds::new(),
        waited: Vec::new(),
    });
    for _ in 0..PACED_ROUNDS {
        for (row, running) in rows.iter_mut().zip(&running) {
            row.measure(running, &target(running, Contender::Guard.wire(), &requests))?;
        }
    }
    let looping = SHARE * 100.0;
    println!(
        "\nAbsent keys, both cores shared: as fast as answers come, and {PACE} a second beside a loop that takes \
         {looping:.0} % of a core\n"
    );
    println!(
        "| server | requests/s | P99, µs | {PACE} a second: P50 | P99 | waited for a processor, ms/s \
         |\n|---|---|---|---|---|---|"
    );
    for (contender, Row { per_second, fast, paced, waited }) in CONTENDERS.iter().zip(rows) {
        let ([fast_p99], [p50, p99]) = (fast.medians([99.0]), paced.medians([50.0, 99.0]));
        let (per_second, waited) = (median(per_second), median(waited) * 1e3);
        println!("| {} | {per_second:.0} | {fast_p99:.0} | {p50:.0} | {p99:.0} | {waited:.0} |", contender.name());
    }
    Ok(())
}

impl Row {
    fn measure(&mut self, running: &Running, target: &Target<'_>) -> io::Result<()> {
        let fast = full_speed(target, 1, WARM_UP, lasts())?;
        is_right(&fast)?;
        self.per_second.push(fast.per_second);
        self.fast.push(fast);
        let logs = folder();
        let _burner = burner(Placement::Sharing, SHARE, logs.path())?;
        let Paced { outcome, waited, .. } = paced(target, &running.server)?;
        self.paced.push(outcome);
        self.waited.push(waited);
        Ok(())
    }
}
