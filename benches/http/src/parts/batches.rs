//! Many keys in one request: keys a second.

use std::io;

use super::goals::{Goal, Goals};
use super::rounds::{SPEED_ROUNDS, Speeds};
use super::{measure, place_self};
use crate::connection::Wire;
use crate::contenders::{Contender, Transport};
use crate::process::Placement;
use crate::requests::{BatchForm, Mix, Requests};

/// Millions of keys a second of bloomd's `multi` and of RedisBloom's `BF.MEXISTS`, and thousands of `GET`s a second of
/// redis-server, all on that machine: servers that can't be built here are scaled by the one that can.
const PUBLISHED: [(&str, f64); 2] = [("bloomd", 5.3), ("BF.MEXISTS", 1.5)];
const PUBLISHED_GETS: f64 = 203_000.0;
/// Keys of a batch: within one read of a socket, and far beyond.
const SIZES: [usize; 2] = [1_000, 100_000];

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    place_self(Placement::Pinned)?;
    let [redis, guard] = [Contender::Redis, Contender::Guard].map(|one| one.start(Placement::Pinned, Transport::Tcp));
    let shapes: Vec<(usize, BatchForm)> =
        SIZES.into_iter().flat_map(|size| BatchForm::ALL.map(|form| (size, form))).collect();
    let requests: Vec<Requests> = shapes.iter().map(|(size, form)| Requests::checks(*form, *size)).collect();
    let get = Requests::new(Mix::Absent, Wire::Resp);
    let (mut gets, mut speeds) = (Speeds::new(), Vec::new());
    speeds.resize_with(shapes.len(), Speeds::new);
    for _ in 0..SPEED_ROUNDS {
        gets.push(measure(&redis, Wire::Resp, &get, 1)?);
        for (speeds, requests) in speeds.iter_mut().zip(&requests) {
            speeds.push(measure(&guard, Wire::Http, requests, 1)?);
        }
    }
    println!(
        "\nChecks of many absent keys, one core; redis-server GET in the same run: {:.0} a second\n",
        gets.per_second()
    );
    println!(
        "| keys | body | answer | M keys/s | / bloomd, scaled | / BF.MEXISTS, scaled |\n|---|---|---|---|---|---|"
    );
    let [mut text, mut json, mut all] = [f64::INFINITY; 3];
    for ((size, form), speeds) in shapes.into_iter().zip(&speeds) {
        let (keys, beside) = (speeds.per_second() * size as f64 / 1e6, speeds.beside(&gets) * size as f64 / 1e6);
        let [bloomd, mexists] = PUBLISHED.map(|(_, published)| beside / (published / PUBLISHED_GETS));
        println!("| {size} | {} | {} | {keys:.1} | {bloomd:.1} | {mexists:.1} |", form.body(), form.answer());
        let least = if matches!(form, BatchForm::Text | BatchForm::TextBits) { &mut text } else { &mut json };
        (*least, all) = (least.min(bloomd), all.min(mexists));
    }
    goals.reached("checks of many keys, text lines, / bloomd scaled, the least", text, Goal::AtLeast(5.0));
    goals.reached("checks of many keys, NDJSON and JSON, / bloomd scaled, the least", json, Goal::AtLeast(3.0));
    goals.reached("checks of many keys / BF.MEXISTS scaled, the least", all, Goal::AtLeast(15.0));
    Ok(())
}
