//! bloomguard over HTTP beside other servers, each in turn: `make bench-http`.
//!
//! `BLOOMGUARD_BENCH_PARTS` chooses parts (`absent,paced,mixes,batches,database,rebuild`), `BLOOMGUARD_BENCH_SECONDS` how long each run lasts,
//! `BLOOMGUARD_BENCH_KEYS` how many keys a rebuild reads. Ratios within one run are what counts.

#![allow(clippy::print_stdout)] // Tables are what this program is for.

mod connection;
mod contenders;
mod load;
mod parts;
mod process;
mod requests;
mod support;

use std::io;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve-raw", listen] => contenders::serve_raw(listen),
        ["serve-axum", address, threads] => {
            contenders::serve_axum(address.parse().map_err(io::Error::other)?, threads.parse().map_err(io::Error::other)?)
        }
        [] => parts::run(),
        other => Err(io::Error::other(format!("{other:?} is no command"))),
    }
}
