//! From the start of a process to the first absence that its filter answers.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::goals::{Goal, Goals};
use super::place_self;
use crate::connection::Place;
use crate::contenders::{Contender, Site, Transport, guard_program};
use crate::process::{Placement, Server};

const KEYS: u64 = 10_000_000;
const STARTS: usize = 9;
/// Spinning would take a processor from the measured server.
const PAUSE: Duration = Duration::from_micros(100);
const TOO_LONG: Duration = Duration::from_secs(60);

/// How long one start took.
#[derive(Debug, Clone, Copy)]
struct Start {
    listening: Duration,
    absent: Duration,
}

pub(super) fn run(goals: &mut Goals) -> io::Result<()> {
    place_self(Placement::Sharing)?;
    println!(
        "\nFrom a snapshot of {KEYS} keys to enforcing: ms from the start of the process, of {STARTS} starts; at most \
         50\n"
    );
    println!("| with | listens, best | median | first absence, best | median | slowest |\n|---|---|---|---|---|---|");
    for with_redis in [false, true] {
        let redis = with_redis.then(|| Contender::Redis.start(Placement::Sharing, Transport::Tcp));
        let address =
            redis.as_ref().and_then(|redis| if let Place::Tcp(address) = redis.place { Some(address) } else { None });
        let site = Site::new(Placement::Sharing, KEYS, address);
        let first = site.start();
        site.enforces();
        site.is_saved();
        first.stop();
        let mut starts = Vec::new();
        for _ in 0..STARTS {
            let (start, server) = start(&site)?;
            starts.push(start);
            // As at a replacement: it leaves a snapshot behind.
            site.enforces();
            server.stop();
        }
        let name = if with_redis { "Redis" } else { "no Redis" };
        let median = print(name, &starts);
        goals.reached(
            format!("ms from start to enforcing, {KEYS} keys, with {name}, median"),
            median,
            Goal::AtMost(50.0),
        );
    }
    println!("| (`bloomguard --version`, the same way) | {:.1} | | | | |", milliseconds(bare()?));
    Ok(())
}

fn start(site: &Site) -> io::Result<(Start, Server)> {
    let begin = Instant::now();
    let server = site.start();
    let mut stream = until(begin, || TcpStream::connect(site.data).ok())?;
    let listening = begin.elapsed();
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TOO_LONG))?;
    until(begin, || is_absent(&mut stream, site.data).ok().filter(|absent| *absent))?;
    Ok((Start { listening, absent: begin.elapsed() }, server))
}

fn until<T>(begin: Instant, mut there: impl FnMut() -> Option<T>) -> io::Result<T> {
    loop {
        if let Some(it) = there() {
            return Ok(it);
        }
        if begin.elapsed() > TOO_LONG {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Requests an absent key; returns true if the filter answers.
fn is_absent(stream: &mut TcpStream, host: SocketAddr) -> io::Result<bool> {
    write!(stream, "GET /v1/keys/users/1 HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
    let (mut answer, mut filled) = ([0; 1024], 0);
    while !answer[..filled].ends_with(b"\r\n\r\n") {
        match stream.read(&mut answer[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    let answer = String::from_utf8_lossy(&answer[..filled]).to_lowercase();
    Ok(answer.starts_with("http/1.1 404") && answer.contains("bloomguard-source: filter\r\n"))
}

/// Returns the median of the milliseconds until the first absence.
fn print(with: &str, starts: &[Start]) -> f64 {
    let of = |which: fn(&Start) -> Duration| {
        let mut times: Vec<f64> = starts.iter().map(|start| milliseconds(which(start))).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (listening, absent) = (of(|start| start.listening), of(|start| start.absent));
    let (middle, last) = (STARTS / 2, STARTS - 1);
    println!(
        "| {with} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
        listening[0], listening[middle], absent[0], absent[middle], absent[last]
    );
    absent[middle]
}

/// The time to start a process that does nothing: `setpriv`, `taskset`, the linker.
fn bare() -> io::Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..STARTS {
        let begin = Instant::now();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "--cpu-list", "0-1"]).arg(guard_program()).arg("--version");
        command.stdout(Stdio::null()).status()?;
        best = best.min(begin.elapsed());
    }
    Ok(best)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
