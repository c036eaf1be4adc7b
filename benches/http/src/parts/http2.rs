//! HTTP/2 without TLS, requested by `oha`, because our own load generator does not support it: `make bench-tools`
//! installs it.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use super::{ROUNDS, lasts, place_self};
use crate::connection::Place;
use crate::contenders::{Contender, Running, Transport};
use crate::process::Placement;

/// Connections, and requests at once on each that allows several.
const SHAPES: [(&str, &[&str]); 3] = [
    ("HTTP/1.1, 64 connections", &["-c", "64"]),
    ("h2c, 64 connections", &["-c", "64", "--http2"]),
    ("h2c, 4 connections, 16 streams each", &["-c", "4", "-p", "16", "--http2"]),
];

pub(super) fn run() -> io::Result<()> {
    let Some(oha) = oha() else {
        println!("\nHTTP/2 was not measured: there is no oha, which `make bench-tools` installs.");
        return Ok(());
    };
    place_self(Placement::Sharing)?;
    println!(
        "\nAbsent keys over HTTP/2 without TLS, one core, asked by oha on the other, which is slower than our own \
         load generator\n"
    );
    println!("| how | bloomguard, requests/s | bare axum, 404 | bloomguard / it |\n|---|---|---|---|");
    let [ours, theirs] =
        [Contender::Guard, Contender::BareAxum].map(|one| one.start(Placement::Pinned, Transport::Tcp));
    for (name, arguments) in SHAPES {
        let (mut our_best, mut their_best) = (0.0_f64, 0.0_f64);
        for _ in 0..ROUNDS {
            our_best = our_best.max(ask(&oha, &ours, arguments)?);
            their_best = their_best.max(ask(&oha, &theirs, arguments)?);
        }
        println!("| {name} | {our_best:.0} | {their_best:.0} | {:.2} |", our_best / their_best);
    }
    Ok(())
}

/// From the make target's folder, else from the path.
fn oha() -> Option<PathBuf> {
    let candidates = [PathBuf::from("target/tools/bin/oha"), PathBuf::from("oha")];
    candidates
        .into_iter()
        .find(|oha| Command::new(oha).arg("--version").output().is_ok_and(|output| output.status.success()))
}

/// Answers a second, all of them 404.
fn ask(oha: &PathBuf, server: &Running, arguments: &[&str]) -> io::Result<f64> {
    let Place::Tcp(address) = server.place else { return Err(io::Error::other("asked for TCP")) };
    let seconds = format!("{:.1}s", lasts().as_secs_f64());
    let output = Command::new("taskset")
        .args(["--cpu-list", "1"])
        .arg(oha)
        .args(["--no-tui", "--output-format", "json", "-z", &seconds])
        .args(arguments)
        .arg(format!("http://{address}/v1/keys/users/1"))
        .output()?;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let codes: Vec<&String> =
        told["statusCodeDistribution"].as_object().into_iter().flat_map(|codes| codes.keys()).collect();
    match told["summary"]["requestsPerSec"].as_f64() {
        Some(per_second) if codes == ["404"] => Ok(per_second),
        _ => Err(io::Error::other(format!(
            "oha was not answered 404: {told} {}",
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}
