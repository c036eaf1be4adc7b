//! bloomguard over HTTP beside other servers, each in turn: `make bench-http`; and whether it is still as fast beside
//! them: `make bench-check`.
//!
//! `BLOOMGUARD_BENCH_PARTS` chooses parts, `BLOOMGUARD_BENCH_SECONDS` says how long each run lasts,
//! `BLOOMGUARD_BENCH_KEYS` how many keys are read and held at the most. Ratios within one run are what counts.

#![allow(clippy::print_stdout, clippy::print_stderr)] // Tables are what this program is for.

mod burn;
mod connection;
mod contenders;
mod load;
mod parts;
mod process;
mod requests;
mod support;

use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve-raw", listen] => contenders::serve_raw(listen),
        ["serve-rows", listen] => contenders::serve_rows(listen),
        ["serve-axum", address, threads] => contenders::serve_axum(address.parse().map_err(io::Error::other)?, threads),
        ["burn", share] => burn::burn(share.parse().map_err(io::Error::other)?),
        ["check"] => parts::check(),
        [] => parts::run(),
        other => Err(io::Error::other(format!("{other:?} is no command"))),
    }
}
