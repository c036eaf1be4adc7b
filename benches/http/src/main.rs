//! Measures bloomguard over HTTP beside other servers, in turn: `make bench-http`. And checks that the ratios hold:
//! `make bench-check`.
//!
//! `BLOOMGUARD_BENCH_PARTS` selects parts, `BLOOMGUARD_BENCH_SECONDS` sets the length of each run, and
//! `BLOOMGUARD_BENCH_KEYS` the maximum number of keys that are read and held. Only ratios within one run count.

#![allow(clippy::print_stdout, clippy::print_stderr)] // This program prints tables.

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
        other => Err(io::Error::other(format!("unknown command {other:?}"))),
    }
}
