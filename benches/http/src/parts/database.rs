//! The same lookups with the guard and without it, in front of a real database.

use std::io;

use super::goals::{Goal, Goals};
use super::{CONNECTIONS, WARM_UP, is_right, lasts, place_self};
use crate::connection::Wire;
use crate::contenders::start_guard_before;
use crate::load::{Target, full_speed};
use crate::process::Placement;
use crate::requests::Requests;
use crate::support::postgres::{Database, Postgres};

const ROWS: [u64; 3] = [100_000, 1_000_000, 5_000_000];

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    place_self(Placement::Sharing)?;
    let postgres = Postgres::start();
    println!("\nAbsent keys in front of PostgreSQL, both cores shared by all, {CONNECTIONS} clients; ms\n");
    println!("| rows | guard | requests/s | P50 | P99 | backend calls |\n|---|---|---|---|---|---|");
    let (mut slowest, mut fastest) = (f64::INFINITY, 0.0_f64);
    for rows in ROWS {
        let database = postgres.create_database();
        create_users(&database, rows);
        let guard = start_guard_before(&database.url(), rows);
        for (name, bypass) in [("off", true), ("on", false)] {
            let requests = Requests::beyond(rows, bypass);
            let before = guard.backend_calls();
            let target = Target {
                place: guard.running.place.clone(),
                wire: Wire::Http,
                requests: &requests,
                connections: CONNECTIONS,
            };
            let outcome = full_speed(&target, 1, WARM_UP, lasts() * 2)?;
            is_right(&outcome)?;
            let calls = (guard.backend_calls() - before) / (outcome.per_second * (WARM_UP + lasts() * 2).as_secs_f64());
            let [p50, p99] = [50.0, 99.0].map(|percent| outcome.percentile(percent) / 1e3);
            println!("| {rows} | {name} | {:.0} | {p50:.2} | {p99:.2} | {:.2} % |", outcome.per_second, calls * 100.0);
            if !bypass {
                (slowest, fastest) = (slowest.min(outcome.per_second), fastest.max(outcome.per_second));
            }
        }
    }
    // Independent of the number of rows: the rest is the noise of three short runs.
    goals.reached(
        "with the guard, the slowest of three sizes of a table / the fastest",
        slowest / fastest,
        Goal::AtLeast(0.8),
    );
    Ok(())
}

/// A table of users with the even numbers below twice `rows`.
pub(super) fn create_users(database: &Database<'_>, rows: u64) {
    database.psql(&format!(
        "CREATE TABLE users (id bigint PRIMARY KEY, name text NOT NULL); \
         INSERT INTO users SELECT 2 * i, 'User ' || i FROM generate_series(0, {rows} - 1) AS i; ANALYZE users"
    ));
}
