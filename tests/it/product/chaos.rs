//! Announces, commits and reads at three processes, while filters are rebuilt all the time, Redis is killed and comes back empty, and processes
//! are killed and come back. No row that was announced and committed may be answered 404.
//!
//! `BLOOMGUARD_CHAOS_ROWS=100000 cargo test --test it chaos -- --nocapture` takes as many rows as that; without the variable a few.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tempfile::TempDir;

use super::process::write_config;
use super::users::{config, site};
use crate::support::app::Http;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

const PROCESSES: usize = 3;
const WRITERS: u64 = 64;
const FIRST_ID: u64 = 10_000_000;
const MAX_LAG: Duration = Duration::from_millis(800);
const WINDOW: Duration = Duration::from_secs(3);

/// One instance: its folder, its process and where that listens.
struct Instance {
    dir: TempDir,
    toml: String,
    process: Option<Process>,
    data: String,
    telemetry: String,
}

impl Instance {
    fn start(toml: &str) -> Self {
        let (dir, none) = (TempDir::new().unwrap(), String::new);
        let mut instance = Self { toml: write_config(dir.path(), toml), dir, process: None, data: none(), telemetry: none() };
        instance.launch();
        instance
    }

    fn launch(&mut self) {
        // The old one is gone before the new one takes the folder.
        self.process = None;
        let mut process = Process::start(self.dir.path(), &["serve", "--config", &self.toml]);
        (self.data, self.telemetry) = process.addresses();
        self.process = Some(process);
    }
}

/// What all take part in.
struct World {
    http: Http,
    database: PgPool,
    instances: Vec<RwLock<Instance>>,
    stop: AtomicBool,
    next: AtomicU64,
    rows: u64,
    counts: Counts,
    wrong: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    refused: AtomicU64,
    late_commits: AtomicU64,
    found_at_once: AtomicU64,
    found_in_time: AtomicU64,
    rejected: AtomicU64,
    no_answer: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl World {
    fn data(&self, instance: usize) -> String {
        self.instances[instance].read().data.clone()
    }

    /// `None`: no answer, as from a process that was killed.
    async fn ask(&self, method: &str, instance: usize, id: u64, headers: &[(&str, &str)]) -> Option<(u16, String, String)> {
        let url = format!("http://{}/v1/keys/users/{id}", self.data(instance));
        let answer = self.http.try_send(method, &url, headers, "").await?;
        Some((answer.status, answer.header("bloomguard-source").to_owned(), answer.header("bloomguard-version").to_owned()))
    }

    /// Announces until that is acknowledged; returns when the announce was sent, and its version.
    async fn announce(&self, id: u64) -> (Instant, String) {
        let mut writer = (id as usize) % PROCESSES;
        loop {
            let sent = Instant::now();
            if let Some((204, _, version)) = self.ask("PUT", writer, id, &[]).await {
                return (sent, version);
            }
            count(&self.counts.refused);
            writer = (writer + 1) % PROCESSES;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// One row, from its announce to its last reader.
    async fn write_and_read(&self, id: u64) {
        let (sent, version) = self.announce(id).await;
        let acknowledged = Instant::now();
        // Before the commit, 404 is right, and must not be remembered by anybody.
        for instance in 0..PROCESSES {
            if let Some((404, ..)) = self.ask("GET", instance, id, &[]).await {
                count(&self.counts.rejected);
            }
        }
        sqlx::query("INSERT INTO users VALUES ($1, 'new')").bind(id as i64).execute(&self.database).await.unwrap();
        if sent.elapsed() > WINDOW {
            // Outside the commit window nothing is promised.
            return count(&self.counts.late_commits);
        }
        count(&self.counts.committed);
        for instance in 0..PROCESSES {
            let answer = self.ask("GET", instance, id, &[("bloomguard-min-version", &version)]).await;
            self.judge(answer, id, instance, &version, &self.counts.found_at_once);
        }
        tokio::time::sleep((MAX_LAG + Duration::from_millis(50)).saturating_sub(acknowledged.elapsed())).await;
        for instance in 0..PROCESSES {
            let answer = self.ask("GET", instance, id, &[]).await;
            self.judge(answer, id, instance, "no version", &self.counts.found_in_time);
        }
    }

    fn judge(&self, answer: Option<(u16, String, String)>, id: u64, instance: usize, with: &str, found: &AtomicU64) {
        match answer {
            Some((200, ..)) => count(found),
            Some((404, source, _)) => self.wrong.lock().push(format!("{id} at {instance} with {with}: 404 {source}")),
            Some((503, ..)) | None => count(&self.counts.no_answer),
            Some((status, ..)) => self.wrong.lock().push(format!("{id} at {instance} with {with}: {status}")),
        }
    }

    async fn writer(self: Arc<Self>) {
        loop {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            if id >= FIRST_ID + self.rows {
                return;
            }
            self.write_and_read(id).await;
        }
    }

    /// How long each instance did not reject, and why.
    async fn watch(self: Arc<Self>) -> Vec<(usize, String, Duration)> {
        let mut spans: Vec<(usize, String, Duration)> = Vec::new();
        let mut since: Vec<Option<(String, Instant)>> = (0..PROCESSES).map(|_| None).collect();
        while !self.stop.load(Ordering::Relaxed) {
            for (instance, since) in since.iter_mut().enumerate() {
                let url = format!("http://{}/status", self.instances[instance].read().telemetry.clone());
                let Some(status) = self.http.try_send("GET", &url, &[], "").await else { continue };
                let users = &status.json()["keyspaces"]["users"];
                match (users["state"] == "enforcing", since.take()) {
                    (true, Some((why, at))) => spans.push((instance, why, at.elapsed())),
                    (true, None) => {}
                    (false, Some(before)) => *since = Some(before),
                    (false, None) => *since = Some((users["reason"].as_str().unwrap_or_default().to_owned(), Instant::now())),
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        spans
    }

    async fn wait_until_all_enforce(&self) {
        let start = Instant::now();
        for instance in &self.instances {
            loop {
                let url = format!("http://{}/status", instance.read().telemetry.clone());
                if let Some(status) = self.http.try_send("GET", &url, &[], "").await
                    && status.json()["keyspaces"]["users"]["state"] == "enforcing"
                {
                    break;
                }
                assert!(start.elapsed() < Duration::from_secs(120), "an instance never enforces");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// Kills Redis and processes in turn, and brings them back.
async fn break_things(world: Arc<World>, mut redis: RedisServer) -> RedisServer {
    let pause = async |millis: std::ops::Range<u64>| tokio::time::sleep(Duration::from_millis(rand::random_range(millis))).await;
    for round in 0.. {
        pause(2_000..4_000).await;
        if world.stop.load(Ordering::Relaxed) {
            break;
        }
        if round % 3 == 2 {
            // It comes back with what its journal and the log hold.
            let world = Arc::clone(&world);
            tokio::task::spawn_blocking(move || {
                let mut instance = world.instances[rand::random_range(0..PROCESSES)].write();
                instance.launch();
            })
            .await
            .unwrap();
        } else {
            redis.kill();
            pause(50..1_500).await;
            redis.restart();
        }
    }
    redis
}

/// The figures, for whoever runs this by hand.
#[allow(clippy::print_stdout)]
fn tell(counts: &Counts, spans: &[(usize, String, Duration)]) {
    println!("{counts:?}");
    for (instance, why, lasted) in spans {
        println!("instance {instance} did not reject for {lasted:?}: {why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_that_was_announced_and_committed_is_ever_absent() {
    let rows = std::env::var("BLOOMGUARD_CHAOS_ROWS").ok().map_or(1_000, |text| text.parse().unwrap());
    let (redis, site) = (RedisServer::start_young(), site(Site::postgres()).await);
    let section = format!("[redis]\nurl = \"{}\"\ntimeout = \"500ms\"\nmax_lag = \"{}ms\"", redis.url(), MAX_LAG.as_millis());
    let more = "key = \"integer\"\n[keyspaces.users.rebuild]\nschedule = \"*/2 * * * * *\"\njitter = \"500ms\"\n";
    let toml = config(&site.url(), &section, more)
        .replace("commit_window = \"5s\"", &format!("commit_window = \"{}s\"", WINDOW.as_secs()))
        .replace("deadline = \"10s\"", "deadline = \"3s\"");
    let instances = (0..PROCESSES).map(|_| RwLock::new(Instance::start(&toml))).collect();
    let database = PgPoolOptions::new().max_connections(16).connect(&site.url()).await.unwrap();
    let world = Arc::new(World {
        http: Http::default(),
        database,
        instances,
        stop: AtomicBool::new(false),
        next: AtomicU64::new(FIRST_ID),
        rows,
        counts: Counts::default(),
        wrong: Mutex::default(),
    });
    world.wait_until_all_enforce().await;
    let watch = tokio::spawn(Arc::clone(&world).watch());
    let chaos = tokio::spawn(break_things(Arc::clone(&world), redis));
    let writers: Vec<_> = (0..WRITERS).map(|_| tokio::spawn(Arc::clone(&world).writer())).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    world.stop.store(true, Ordering::Relaxed);
    let _redis = chaos.await.unwrap();
    let spans = watch.await.unwrap();
    world.wait_until_all_enforce().await;
    tell(&world.counts, &spans);
    assert_eq!(*world.wrong.lock(), [""; 0], "wrong answers");
    let committed = world.counts.committed.load(Ordering::Relaxed);
    assert!(committed > rows / 10, "too few rows to prove anything: {:?}", world.counts);
    assert!(world.counts.found_at_once.load(Ordering::Relaxed) > committed, "too few answers to prove anything: {:?}", world.counts);
    // Everything is there in the end, at every instance.
    for instance in 0..PROCESSES {
        let answer = world.ask("GET", instance, 1, &[]).await;
        assert_eq!(answer.map(|(status, ..)| status), Some(200));
    }
}
