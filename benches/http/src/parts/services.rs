//! The mix of a service that also writes: announces, reads and absent keys at a fixed rate, in front of a database.

use std::io;

use super::database::create_users;
use super::{CONNECTIONS, lasts, place_self};
use crate::connection::Wire;
use crate::contenders::start_guard_before;
use crate::load::{Target, at_rates};
use crate::process::Placement;
use crate::requests::Requests;
use crate::support::postgres::Postgres;

const PACE: f64 = 12_000.0;
const ROWS: u64 = 10_000;

pub(super) fn run() -> io::Result<()> {
    place_self(Placement::Sharing)?;
    let postgres = Postgres::start();
    let database = postgres.create_database();
    create_users(&database, ROWS);
    let guard = start_guard_before(&database.url(), ROWS);
    let kinds = [
        ("announces", 35, Requests::announces(ROWS)),
        ("reads", 40, Requests::rows(ROWS)),
        ("absent", 25, Requests::beyond(ROWS, false)),
    ];
    let lanes = kinds.each_ref().map(|(_, _, requests)| Target {
        place: guard.running.place.clone(),
        wire: Wire::Http,
        requests,
        // An announce waits for the disk: with few connections they would wait for each other.
        connections: CONNECTIONS * 2,
    });
    let targets: Vec<_> = lanes.iter().zip(&kinds).map(|(lane, (_, share, _))| (lane, *share)).collect();
    // Afterwards the rows that were read are in the hot tier.
    at_rates(&targets, PACE, lasts() * 2)?;
    let before = guard.backend_calls();
    let outcomes = at_rates(&targets, PACE, lasts() * 5)?;
    println!(
        "\nA mix at {PACE} requests a second in front of PostgreSQL with {ROWS} rows, both cores shared by all; ms \
         from when a request was due\n"
    );
    println!("| kind | requests | not as they should be | P50 | P95 | P99 |\n|---|---|---|---|---|---|");
    for ((name, share, _), outcome) in kinds.iter().zip(&outcomes) {
        let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|percent| outcome.percentile(percent) / 1e3);
        println!(
            "| {name} ({share} %) | {} | {} | {p50:.2} | {p95:.2} | {p99:.2} |",
            outcome.latencies.len(),
            outcome.wrong
        );
    }
    println!("\nBackend calls meanwhile: {:.0}", guard.backend_calls() - before);
    Ok(())
}
