//! Checks that bloomguard is as fast as before relative to other servers: ratios within one run, against floors that
//! are kept here.

use std::io;
use std::time::Duration;

use super::floors::{FLOORS, Floor, Question, Side};
use super::rounds::median;
use super::{place_self, target};
use crate::connection::Wire;
use crate::contenders::{Contender, Running, Transport};
use crate::load::full_speed;
use crate::process::Placement;
use crate::requests::{BatchForm, Mix, Requests};

/// One run in five is off by a fifth: this many runs give a reliable median.
const ROUNDS: usize = 5;
const WARM_UP: Duration = Duration::from_millis(200);
const LASTS: Duration = Duration::from_millis(600);
/// Keys per batch request.
const BATCH: usize = 1_000;

/// A measured ratio.
#[derive(Debug)]
struct Ratio {
    floor: &'static Floor,
    median: f64,
    /// Requests or keys a second of either side, in the median.
    speeds: [f64; 2],
}

impl Ratio {
    /// The median ratio of the rounds, whose runs were side by side.
    fn of(floor: &'static Floor, ours: &[f64], theirs: &[f64]) -> Self {
        let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        Self { floor, median: median(ratios), speeds: [ours, theirs].map(|speeds| median(speeds.to_vec())) }
    }
}

pub(crate) fn run() -> io::Result<()> {
    place_self(Placement::Pinned)?;
    let sides = FLOORS.iter().flat_map(|floor| [floor.ours, floor.theirs]).fold(Vec::new(), |mut sides, side| {
        if !sides.contains(&side) {
            sides.push(side);
        }
        sides
    });
    let mut servers: Vec<((Contender, Transport), Running)> = Vec::new();
    for Side { contender, transport, .. } in &sides {
        if servers.iter().all(|(started, _)| *started != (*contender, *transport)) {
            servers.push(((*contender, *transport), contender.start(Placement::Pinned, *transport)));
        }
    }
    let requests: Vec<Requests> = sides.iter().map(requests).collect();
    let mut speeds = vec![Vec::new(); sides.len()];
    for _ in 0..ROUNDS {
        for (number, side) in sides.iter().enumerate() {
            let Some((_, server)) = servers.iter().find(|(started, _)| *started == (side.contender, side.transport))
            else {
                continue;
            };
            speeds[number].push(measure(side, server, &requests[number])?);
        }
    }
    let of = |side: &Side| sides.iter().position(|other| other == side).map_or(&[][..], |number| &speeds[number]);
    let ratios: Vec<Ratio> = FLOORS.iter().map(|floor| Ratio::of(floor, of(&floor.ours), of(&floor.theirs))).collect();
    judge(&ratios)
}

fn requests(side: &Side) -> Requests {
    match side.question {
        Question::Absent | Question::Pipelined => Requests::new(Mix::Absent, side.contender.wire()),
        Question::Hot => Requests::new(Mix::OneHotKey, side.contender.wire()),
        Question::Text => Requests::checks(BatchForm::Text, BATCH),
        Question::Json => Requests::checks(BatchForm::Json, BATCH),
    }
}

/// Keys a second.
fn measure(side: &Side, server: &Running, requests: &Requests) -> io::Result<f64> {
    let wire: Wire = side.contender.wire();
    let depth = if side.question == Question::Pipelined { 16 } else { 1 };
    let outcome = full_speed(&target(server, wire, requests), depth, WARM_UP, LASTS)?;
    if outcome.wrong as f64 > 0.01 * outcome.per_second * LASTS.as_secs_f64() {
        return Err(io::Error::other(format!("{side:?}: {} answers were not what was asked for", outcome.wrong)));
    }
    let keys = if matches!(side.question, Question::Text | Question::Json) { BATCH } else { 1 };
    Ok(outcome.per_second * keys as f64)
}

/// Prints them all, and names those below their floor.
fn judge(ratios: &[Ratio]) -> io::Result<()> {
    println!("\n| ratio | median of {ROUNDS} | floor | keys/s | of the other |\n|---|---|---|---|---|");
    for Ratio { floor, median, speeds: [ours, theirs] } in ratios {
        println!("| {} | {median:.2} | {:.2} | {ours:.0} | {theirs:.0} |", floor.name, floor.least);
    }
    let low = below(ratios);
    if low.is_empty() {
        return Ok(());
    }
    Err(io::Error::other(format!("below their floor: {}", low.join("; "))))
}

/// A ratio that could not be measured is below any floor.
fn below(ratios: &[Ratio]) -> Vec<String> {
    let is_low = |ratio: &&Ratio| ratio.median.is_nan() || ratio.median < ratio.floor.least;
    ratios
        .iter()
        .filter(is_low)
        .map(|Ratio { floor, median, .. }| format!("{}: {median:.2}, not {:.2}", floor.name, floor.least))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(number: usize, of_floor: f64) -> Ratio {
        Ratio::of(&FLOORS[number], &[FLOORS[number].least * of_floor], &[1.0])
    }

    #[test]
    fn each_ratio_below_its_floor_is_named_and_no_other() {
        assert_eq!(below(&[ratio(0, 1.0), ratio(1, 1.01)]), [""; 0]);
        let low = below(&[ratio(0, 0.99), ratio(1, 1.0), ratio(2, f64::NAN)]);
        assert_eq!(low.len(), 2, "{low:?}");
        assert!(low[0].starts_with(FLOORS[0].name) && low[1].starts_with(FLOORS[2].name), "{low:?}");
        assert!(judge(&[ratio(0, 0.5)]).is_err_and(|error| error.to_string().contains(FLOORS[0].name)));
    }

    #[test]
    fn one_odd_round_moves_no_median() {
        assert_eq!(Ratio::of(&FLOORS[0], &[2.0, 4.0, 0.1, 2.0, 9.0], &[1.0, 2.0, 1.0, 1.0, 1.0]).median, 2.0);
        assert!(Ratio::of(&FLOORS[0], &[], &[]).median.is_nan());
    }

    #[test]
    fn floors_have_names_of_their_own() {
        for (number, floor) in FLOORS.iter().enumerate() {
            assert!(floor.least > 0.0 && FLOORS[..number].iter().all(|other| other.name != floor.name), "{floor:?}");
        }
    }
}
