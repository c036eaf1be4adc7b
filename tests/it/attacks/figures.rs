//! What each attack costs the process, and a well-behaved client beside it: the figures of docs/security.md.
//!
//! `make attacks` runs each for three seconds against the release binary and prints the table; without its variables a
//! moment each, here.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::product::process::enforces;
use crate::product::users::{USERS, config, site};
use crate::support::app::Http;
use crate::support::bystander::Bystander;
use crate::support::database::Site;
use crate::support::long_run::ATTACK_SECONDS;
use crate::support::process::Process;

/// Clients that attack at once.
const ATTACKERS: u64 = 4;
const MIB: u64 = 1 << 20;
/// The buffers' budget, the announces' budget, what the kernel has handed over and the process has not read, and
/// caches.
const MOST_GROWTH: u64 = (64 + 32 + 64) * MIB;
const BEFORE: &str = "nothing";

/// What one client does until it is told to stop; it may be refused or cut at any moment. The number tells the clients
/// apart.
type Attack = fn(&Target, u64, &AtomicBool);

const ATTACKS: &[(&str, Attack)] = &[
    (BEFORE, |_, _, _| {}),
    ("random absent keys, pipelined by 16", random_keys),
    ("batch lookups of 10,000 present keys", |target, n, stop| batches(target, n, stop, "lookup", 1)),
    ("batch lookups of 10,000 absent keys", |target, n, stop| batches(target, n, stop, "lookup", 10_000_000)),
    ("announces by 10,000, without rows", |target, n, stop| batches(target, n, stop, "keys", 100_000_000)),
    ("16 MiB bodies that stop half-way, 16 each", half_bodies),
    ("connections opened and dropped with half a head", half_heads),
    ("200 idle connections each, of two kinds", idle),
    ("HTTP/2 PINGs without end, on new connections", pings),
    ("malformed heads", malformed),
];

struct Target {
    data: String,
}

impl Target {
    fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(&self.data).ok()?;
        let patience = Some(Duration::from_millis(500));
        stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience)).ok()?;
        Some(stream)
    }

    /// Sends this over a new connection, and reads what comes.
    fn say(&self, bytes: &[u8]) {
        let Some(mut stream) = self.connect() else { return };
        let _ = stream.write_all(bytes);
        while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
    }
}

fn random_keys(target: &Target, n: u64, stop: &AtomicBool) {
    let mut key = 1_000_000_000 * (n + 1);
    while !stop.load(Relaxed) {
        let Some(mut stream) = target.connect() else { continue };
        while !stop.load(Relaxed) {
            key += 16;
            let one = |n| format!("GET /v1/keys/users/{n} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let requests: String = (key..key + 16).map(one).collect();
            if stream.write_all(requests.as_bytes()).is_err() || !matches!(stream.read(&mut [0; 65536]), Ok(1..)) {
                break;
            }
        }
    }
}

fn batches(target: &Target, n: u64, stop: &AtomicBool, route: &str, first: u64) {
    let mut from = first + 1_000_000 * n * u64::from(first > 1);
    while !stop.load(Relaxed) {
        let keys: String = (0..10_000).map(|key| format!("{}\n", from + key % u64::from(USERS))).collect();
        from += u64::from(first > 1) * 10_000;
        let (head, length) = ("host: localhost\r\ncontent-type: text/plain\r\nconnection: close", keys.len());
        target.say(
            format!("POST /v1/{route}/users HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{keys}").as_bytes(),
        );
    }
}

fn half_bodies(target: &Target, _: u64, stop: &AtomicBool) {
    let head = "POST /v1/lookup/users HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: \
        16777216\r\n\r\n";
    let open = || {
        let mut stream = target.connect()?;
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b'\n'; 8 << 20])).ok().map(|()| stream)
    };
    let _held: Vec<_> = (0..16).map(|_| open()).collect();
    wait(stop);
}

fn half_heads(target: &Target, _: u64, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let Some(mut stream) = target.connect() else { continue };
        let _ = stream.write_all(b"GET /v1/keys/users/1 HTTP/1.1\r\nHo");
    }
}

fn idle(target: &Target, _: u64, stop: &AtomicBool) {
    let open = |n: u64| {
        let mut stream = target.connect()?;
        let said: &[u8] =
            if n.is_multiple_of(2) { b"GET /" } else { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" };
        stream.write_all(said).ok().map(|()| stream)
    };
    let _held: Vec<_> = (0..200).map(open).collect();
    wait(stop);
}

fn pings(target: &Target, _: u64, stop: &AtomicBool) {
    let ping = b"\0\0\x08\x06\0\0\0\0\0pingping".repeat(1000);
    while !stop.load(Relaxed) {
        let Some(mut stream) = target.connect() else { continue };
        let mut sent = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        while sent.is_ok() && !stop.load(Relaxed) {
            sent = stream.write_all(&ping);
        }
    }
}

fn malformed(target: &Target, _: u64, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        target.say(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03 no TLS here");
    }
}

/// An attacker that only holds what it has.
fn wait(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn processor_seconds(process: &Process) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    let ticks: Vec<f64> =
        stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2).map(|n| n.parse().unwrap()).collect();
    ticks.iter().sum::<f64>() / 100.0
}

fn start(dir: &Path, site: &Site) -> Process {
    let config = config(&site.url())
        .server("max_connections", 200)
        .server("max_buffered_bytes", "64MiB")
        .users(|k| k.set("cache.hot_capacity", "4MiB"));
    Process::start(dir, &["serve", "--config", &config.write(dir)])
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout)]
async fn no_attack_costs_a_well_behaved_client_an_answer() {
    let length = ATTACK_SECONDS.size();
    println!(
        "| attack by {ATTACKERS} clients | memory before → peak | CPU of the process | other client's P50 · P99 | its \
            answers |"
    );
    println!("|---|---:|---:|---:|---:|");
    for (name, attack) in ATTACKS {
        let (dir, site, http) = (TempDir::new().unwrap(), site(Site::sqlite()).await, Http::default());
        let mut process = start(dir.path(), &site);
        let (data, telemetry) = process.addresses();
        enforces(&http, &telemetry).await;
        let (before, burned) = (process.resident_bytes(), processor_seconds(&process));
        process.forget_peak();
        let questions = vec![("/v1/check/users/7".to_owned(), 204), ("/v1/keys/users/7".to_owned(), 200)];
        let (bystander, stop, target) =
            (Bystander::start(&data, questions), Arc::new(AtomicBool::new(false)), Arc::new(Target { data }));
        let began = Instant::now();
        let attackers: Vec<_> = (0..ATTACKERS)
            .map(|n| {
                let (target, stop) = (Arc::clone(&target), Arc::clone(&stop));
                std::thread::spawn(move || attack(&target, n, &stop))
            })
            .collect();
        // The time itself: how long the attack is measured.
        tokio::time::sleep(Duration::from_secs_f64(length)).await;
        let lasted = began.elapsed().as_secs_f64();
        let burned = (processor_seconds(&process) - burned) / lasted * 100.0;
        let seen = tokio::task::spawn_blocking(|| bystander.stop()).await.unwrap();
        stop.store(true, Relaxed);
        attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
        let (peak, answered) = (process.peak_bytes(), seen.answered());
        let [p50, p99] = [0.5, 0.99].map(|share| seen.percentile(share).as_secs_f64() * 1000.0);
        let [before, peak] = [before, peak].map(|bytes| bytes / MIB);
        println!("| {name} | {before} → {peak} MiB | {burned:.0} % | {p50:.2} · {p99:.2} ms | {answered} |");
        assert!(seen.wrong.is_empty() && answered > 0, "{name}: {:?}", seen.wrong);
        assert!(peak.saturating_sub(before) < MOST_GROWTH / MIB, "{name}: from {before} MiB to {peak} MiB");
    }
}
