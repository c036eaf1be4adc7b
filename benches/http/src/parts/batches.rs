//! Many keys in one request: keys a second.

use std::io;

use super::{best, place_self};
use crate::connection::Wire;
use crate::contenders::{Contender, Transport};
use crate::process::Placement;
use crate::requests::{BATCH, BatchForm, Mix, Requests};

/// Millions of keys a second of bloomd's `multi` and of RedisBloom's `BF.MEXISTS`, and thousands of `GET`s a second of redis-server on that machine: what can't be
/// built here is scaled by what can.
const PUBLISHED: [(&str, f64); 2] = [("bloomd", 5.3), ("BF.MEXISTS", 1.5)];
const PUBLISHED_GETS: f64 = 203_000.0;

pub(super) fn run() -> io::Result<()> {
    place_self(Placement::Pinned)?;
    let redis = Contender::Redis.start(Placement::Pinned, Transport::Tcp);
    let gets = best(&redis, Wire::Resp, &Requests::new(Mix::Absent, Wire::Resp), 1)?.per_second;
    drop(redis);
    let guard = Contender::Guard.start(Placement::Pinned, Transport::Tcp);
    println!("\nChecks of {BATCH} absent keys, one core; redis-server GET in the same run: {gets:.0} a second\n");
    println!("| body | answer | M keys/s | / bloomd, scaled | / BF.MEXISTS, scaled |\n|---|---|---|---|---|");
    for form in BatchForm::ALL {
        let speed = best(&guard, Wire::Http, &Requests::checks(form), 1)?;
        let keys = speed.per_second * BATCH as f64 / 1e6;
        let ratios = PUBLISHED.map(|(_, published)| format!("{:.1}", keys / (published * gets / PUBLISHED_GETS)));
        println!("| {} | {} | {keys:.1} | {} |", form.body(), form.answer(), ratios.join(" | "));
    }
    Ok(())
}
