//! SIGKILL at random moments, while processes start, serve, build and write, and while rows are announced, committed
//! and read. What is on disk and in Redis must be enough for the next process: no row that was announced and committed
//! in time is ever answered 404.
//!
//! A long run, see [`KILLS`]. `BLOOMGUARD_KILLS_SEED` repeats the moments of a run that has printed it, as far as the
//! machine does.

mod redis;
mod rows;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use parking_lot::{Mutex, RwLock};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlx::postgres::{PgPool, PgPoolOptions};
use tempfile::TempDir;

use super::users::{config, site};
use crate::support::app::{Answer, Http};
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::long_run::{KILLS, REDIS_KILL_ROWS, REDIS_KILLS, given};
use crate::support::process::Process;
use crate::support::redis::RedisServer;

const WINDOW: Duration = Duration::from_secs(10);
const WRITERS: usize = 12;
/// How long something is waited for that takes a moment.
const PATIENCE: Duration = Duration::from_secs(300);

/// What all take part in.
struct World {
    http: Http,
    database: PgPool,
    /// Data and telemetry of each instance; `None` while it is down or starts.
    addresses: Vec<RwLock<Option<(String, String)>>>,
    over: AtomicBool,
    /// Rows, with the version of their announce.
    committed: Mutex<Vec<(u64, String)>>,
    wrong: Mutex<Vec<String>>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    kills: AtomicU64,
    refused_announces: AtomicU64,
    late_commits: AtomicU64,
    rejected_before_commit: AtomicU64,
    found: AtomicU64,
    no_answer: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl World {
    async fn new(site: &Site, instances: usize) -> Self {
        Self {
            http: Http::default(),
            database: PgPoolOptions::new().max_connections(WRITERS as u32).connect(&site.url()).await.unwrap(),
            addresses: (0..instances).map(|_| RwLock::default()).collect(),
            over: AtomicBool::new(false),
            committed: Mutex::default(),
            wrong: Mutex::default(),
            counts: Counts::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// `None`: no answer, as from a process that was killed.
    async fn ask(&self, method: &str, instance: usize, id: u64, headers: &[(&str, &str)]) -> Option<Answer> {
        let (data, _) = self.addresses[instance].read().clone()?;
        self.http.try_send(method, &format!("http://{data}/v1/keys/users/{id}"), headers, "").await
    }

    async fn enforces(&self, instance: usize) {
        let mut status;
        assert_eventually!(
            within PATIENCE => {
                let telemetry = self.addresses[instance].read().clone().map(|(_, telemetry)| telemetry);
                status = match telemetry {
                    Some(address) => self.http.try_send("GET", &format!("http://{address}/status"), &[], "").await,
                    None => None,
                };
                status.as_ref().is_some_and(|status| status.json()["keyspaces"]["users"]["state"] == "enforcing")
            },
            "{instance} never enforces: {status:?}"
        );
    }
}

/// A folder and the processes that take turns in it.
struct Seat {
    dir: TempDir,
    file: String,
    process: Option<Process>,
}

impl Seat {
    fn new(config: &Config) -> Self {
        let dir = TempDir::new().unwrap();
        Self { file: config.write(dir.path()), dir, process: None }
    }

    fn start(&mut self) {
        self.process = Some(Process::start(self.dir.path(), &["serve", "--config", &self.file]));
    }

    fn kill(&mut self, world: &World, instance: usize) {
        let Some(mut process) = self.process.take() else { return };
        process.signal("KILL");
        *world.addresses[instance].write() = None;
        process.ended();
        count(&world.counts.kills);
    }

    /// Waits until it serves.
    fn serve(&mut self, world: &World, instance: usize) {
        self.start();
        let addresses = self.process.as_mut().unwrap().addresses();
        *world.addresses[instance].write() = Some(addresses);
    }
}

/// Kills one and starts another in its place, which sometimes has the same fate before it serves, or soon after.
async fn strike(world: &Arc<World>, seats: &mut [Seat], dice: &mut StdRng) {
    let instance = dice.random_range(0..seats.len());
    let seat = &mut seats[instance];
    seat.kill(world, instance);
    if dice.random_bool(0.3) {
        seat.start();
        // The time itself is drawn: at which moment the process is killed.
        tokio::time::sleep(Duration::from_millis(dice.random_range(0..400))).await;
        seat.kill(world, instance);
    }
    tokio::task::block_in_place(|| seat.serve(world, instance));
    if dice.random_bool(0.7) {
        world.enforces(instance).await;
    }
    // The time itself is drawn: how long it lives.
    tokio::time::sleep(Duration::from_millis(dice.random_range(0..400))).await;
}

/// Prints the figures.
#[allow(clippy::print_stdout)]
fn tell(text: &str) {
    println!("{text}");
}

/// So many instances, which are told by `redis` of each other, are killed so often.
async fn killed(what: &str, instances: usize, redis: Option<&RedisServer>, schedule: &str, kills: u64) {
    let seed = given("BLOOMGUARD_KILLS_SEED").unwrap_or_else(rand::random::<u64>);
    let mut dice = StdRng::seed_from_u64(seed);
    let site = site(Site::postgres()).await;
    let config = config(&site.url()).maybe_redis(redis).users(|k| {
        k.set("key", "integer")
            .set("commit_window", format!("{}s", WINDOW.as_secs()))
            .set("rebuild.schedule", schedule)
            .set("rebuild.jitter", "100ms")
    });
    let mut seats: Vec<Seat> = (0..instances).map(|_| Seat::new(&config)).collect();
    let world = Arc::new(World::new(&site, instances).await);
    for (instance, seat) in seats.iter_mut().enumerate() {
        tokio::task::block_in_place(|| seat.serve(&world, instance));
        world.enforces(instance).await;
    }
    let next = Arc::new(AtomicU64::new(10_000_000));
    let writers: Vec<_> =
        (0..WRITERS).map(|_| tokio::spawn(rows::write_rows(Arc::clone(&world), Arc::clone(&next)))).collect();
    let (start, counts) = (Instant::now(), &world.counts);
    let enough = || {
        world.committed.lock().len() as u64 >= kills * 10
            && counts.rejected_before_commit.load(Ordering::Relaxed) >= kills
    };
    while counts.kills.load(Ordering::Relaxed) < kills && world.wrong.lock().is_empty() {
        strike(&world, &mut seats, &mut dice).await;
    }
    // Too few requests find no mistake.
    assert_eventually!(
        within PATIENCE => enough() || !world.wrong.lock().is_empty(),
        "too few rows to prove anything: {counts:?}"
    );
    world.over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    for instance in 0..instances {
        world.enforces(instance).await;
        let committed = world.committed.lock().clone();
        stream::iter(committed).for_each_concurrent(16, |row| rows::is_found(&world, instance, row)).await;
    }
    let rows = world.committed.lock().len();
    tell(&format!("{what}, BLOOMGUARD_KILLS_SEED={seed}: {rows} rows in {:?}, {counts:?}", start.elapsed()));
    assert_eq!(*world.wrong.lock(), [""; 0], "{what}, BLOOMGUARD_KILLS_SEED={seed}");
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_committed_row_is_absent_whenever_processes_are_killed() {
    let kills = KILLS.size::<u64>().div_ceil(3);
    // Nothing but snapshots and journals brings old rows back.
    killed("one instance, never rebuilt", 1, None, "0 0 1 1 *", kills).await;
    killed("one instance, rebuilt every second", 1, None, "* * * * * *", kills).await;
    let redis = RedisServer::start();
    killed("two instances and Redis, rebuilt every second", 2, Some(&redis), "* * * * * *", kills).await;
}
