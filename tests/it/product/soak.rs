//! Filters that are rebuilt again and again under load leave no memory behind.
//!
//! A long run, see [`SOAK_SECONDS`]: it rebuilds 1,000,000 keys every 10 s and prints the curve. By default a few
//! rebuilds, one after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::process::enforces;
use crate::support::app::Http;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::long_run::SOAK_SECONDS;
use crate::support::metric;
use crate::support::process::Process;

const MIB: u64 = 1 << 20;
/// A filter for a million keys, with its headroom, is 2.4 MiB: seven of them that are left behind are noticed.
const GROWTH: u64 = 16 * MIB;
/// Announces a second of each client: as many as a window holds are remembered, and that is no growth.
const ANNOUNCES: u64 = 50;

fn configuration(url: &str, keys: u64, schedule: &str) -> Config {
    let row = "SELECT id, 'name' AS name FROM (SELECT $1::bigint AS id) AS asked";
    Config::new().users(|k| {
        k.set("key", "integer")
            .set("freshness", "announced")
            .set("filter.expected_keys", 1_000_000)
            .set("cache.hot_capacity", "4MiB")
            .backend(url, &format!("{row} WHERE id <= {keys}"))
            .times("10s", "5s", "5s")
            .source_sql(&format!("SELECT i FROM generate_series(1, {keys}) AS i"))
            .set("rebuild.schedule", schedule)
            .set("rebuild.jitter", "0s")
            .set("rebuild.min_keys_ratio", 0)
            .set("canary.sample_rate", 0)
    })
}

struct Load {
    http: Http,
    base: String,
    keys: u64,
    over: AtomicBool,
    asked: AtomicU64,
}

impl Load {
    /// Present keys, strangers, and every now and then an announce.
    async fn run(self: Arc<Self>, client: u64) {
        let start = Instant::now();
        let mut announced = 0;
        while !self.over.load(Ordering::Relaxed) {
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            let present = number.wrapping_mul(7919) % self.keys + 1;
            for id in [present, 1_000_000_000 + number] {
                self.http.try_send("GET", &format!("{}/{id}", self.base), &[], "").await;
            }
            if announced < ANNOUNCES * start.elapsed().as_secs() {
                announced += 1;
                self.http
                    .try_send("PUT", &format!("{}/{}", self.base, (client + 2) * 1_000_000_000 + announced), &[], "")
                    .await;
            }
            // The pace of the load.
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    }
}

/// A process under load.
struct World {
    process: Process,
    telemetry: String,
    load: Arc<Load>,
    clients: Vec<tokio::task::JoinHandle<()>>,
    _dir: TempDir,
    _site: Site,
}

impl World {
    async fn start(keys: u64, schedule: &str) -> Self {
        let (dir, site) = (TempDir::new().unwrap(), Site::postgres());
        let file = configuration(&site.url(), keys, schedule).write(dir.path());
        let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
        let (data, telemetry) = process.addresses();
        let http = Http::default();
        enforces(&http, &telemetry).await;
        let base = format!("http://{data}/v1/keys/users");
        let load = Arc::new(Load { http, base, keys, over: AtomicBool::new(false), asked: AtomicU64::new(0) });
        let clients = (0..4).map(|client| tokio::spawn(Arc::clone(&load).run(client))).collect();
        Self { process, telemetry, load, clients, _dir: dir, _site: site }
    }

    async fn rebuilds(&self) -> u64 {
        let scrape = self.load.http.get(&format!("http://{}/metrics", self.telemetry)).await;
        metric(scrape.text(), "bloomguard_rebuilds_total{keyspace=\"users\",outcome=\"swapped\"}") as u64
    }

    async fn stop(self) -> u64 {
        self.load.over.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap();
        }
        self.load.asked.load(Ordering::Relaxed) * 2
    }
}

fn does_not_grow(before: u64, after: u64) {
    assert!(after < before + GROWTH, "{} MiB have become {} MiB", before / MIB, after / MIB);
}

/// Rebuilds as fast as they go.
async fn one_after_another() {
    let world = World::start(30_000, "0 0 1 1 *").await;
    let rebuild = format!("http://{}/admin/keyspaces/users/rebuild", world.process.admin());
    let mut peaks = Vec::new();
    // The first filter was built at the start.
    for built in 1..=16 {
        let (start, mut peak) = (Instant::now(), 0);
        assert_eventually!(
            world.load.http.send("POST", &rebuild, &[("content-type", "application/json")], "").await.status != 409,
            "the running build does not end"
        );
        while world.rebuilds().await == built {
            assert!(start.elapsed() < Duration::from_secs(120), "no rebuild");
            peak = peak.max(world.process.resident_bytes());
        }
        peaks.push(peak);
    }
    let most = |peaks: &[u64]| *peaks.iter().max().unwrap();
    tell(&format!("peaks in KiB: {:?}", peaks.iter().map(|peak| peak / 1024).collect::<Vec<_>>()));
    // The first ones fill pools and caches.
    does_not_grow(most(&peaks[3..6]), most(&peaks[13..]));
    world.stop().await;
}

/// One rebuild in ten seconds, and a line a minute.
async fn curve(seconds: u64) {
    let world = World::start(1_000_000, "*/10 * * * * *").await;
    let (start, mut rows) = (Instant::now(), Vec::new());
    while start.elapsed().as_secs() < seconds {
        let (minute, mut seen) = (Instant::now(), Vec::new());
        while minute.elapsed() < Duration::from_secs(60) {
            seen.push(world.process.resident_bytes());
            // How finely the curve is measured.
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        let (least, most) = (seen.iter().min().unwrap() / 1024, seen.iter().max().unwrap() / 1024);
        let mean = seen.iter().sum::<u64>() / seen.len() as u64 / 1024;
        tell(&format!("| {} | {} | {least} | {mean} | {most} |", rows.len() + 1, world.rebuilds().await));
        rows.push(*seen.iter().max().unwrap());
    }
    let third = rows.len().div_ceil(3);
    does_not_grow(*rows[..third].iter().max().unwrap(), *rows[rows.len() - third..].iter().max().unwrap());
    tell(&format!("{} lookups", world.stop().await));
}

/// Prints the figures.
#[allow(clippy::print_stdout)]
fn tell(text: &str) {
    println!("{text}");
}

/// Invariant: bounded-memory
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_flat_however_often_filters_are_rebuilt() {
    match SOAK_SECONDS.size() {
        0 => one_after_another().await,
        seconds => curve(seconds).await,
    }
}
