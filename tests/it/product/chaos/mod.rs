//! Announces, commits and reads at several processes, while filters are rebuilt all the time, Redis is killed, fails
//! over and loses entries, the network to it is slow, lossy, cut or dead, and processes are killed or stand still. No
//! row that was announced and committed may be answered 404, and no row that was changed and invalidated with its old
//! value.
//!
//! A long run, see [`CHAOS_ROWS`]. `BLOOMGUARD_CHAOS_SEED` repeats the faults of a run that has printed it.

mod faults;
mod outages;
mod rows;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::postgres::PgPoolOptions;

use self::world::{Counts, Instance, PROCESSES, World};
use super::users::{config, site};
use crate::support::app::Http;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::long_run::{CHAOS_ROWS, CHAOS_WRITERS, given};
use crate::support::redis_pair::RedisPair;

/// Rows that are changed all the time, of those that there are from the start.
const CHANGED: u32 = 32;
const FIRST_ID: u64 = 10_000_000;
const MAX_LAG: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_secs(4);
const DEADLINE: Duration = Duration::from_secs(3);
const HOT_TTL: Duration = Duration::from_secs(1);

fn configuration(database: &str, redis_port: u16) -> Config {
    let millis = |time: Duration| format!("{}ms", time.as_millis());
    config(database)
        .redis_at(&format!("redis://127.0.0.1:{redis_port}"))
        .set("redis.timeout", "1500ms")
        .set("redis.max_lag", millis(MAX_LAG))
        .users(|k| {
            k.times(&millis(DEADLINE), &millis(WINDOW), "5s")
                .set("key", "integer")
                .set("cache.hot_ttl", millis(HOT_TTL))
                .set("rebuild.schedule", "*/2 * * * * *")
                .set("rebuild.jitter", "500ms")
        })
}

/// Prints the figures.
#[allow(clippy::print_stdout)]
fn tell(text: &str) {
    println!("{text}");
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_row_that_was_announced_and_committed_is_ever_absent() {
    let rows = CHAOS_ROWS.size();
    let seed = given("BLOOMGUARD_CHAOS_SEED").unwrap_or_else(rand::random::<u64>);
    tell(&format!("BLOOMGUARD_CHAOS_SEED={seed}"));
    let (redis, site) = (RedisPair::start(PROCESSES, seed).await, site(Site::postgres()).await);
    let instances = redis.faces.iter().map(|face| Instance::start(&configuration(&site.url(), face.port()))).collect();
    let world = Arc::new(World {
        http: Http::default(),
        database: PgPoolOptions::new().max_connections(16).connect(&site.url()).await.unwrap(),
        instances,
        stop: AtomicBool::new(false),
        fault: Mutex::new("the start"),
        counts: Counts::default(),
        wrong: Mutex::default(),
    });
    world.wait_until_all_enforce().await;
    let writers = CHAOS_WRITERS.size();
    let (start, next) = (Instant::now(), Arc::new(AtomicU64::new(FIRST_ID)));
    let watch = tokio::spawn(Arc::clone(&world).watch());
    let mut load: Vec<_> =
        (0..writers).map(|_| tokio::spawn(rows::write_rows(Arc::clone(&world), Arc::clone(&next)))).collect();
    load.extend((1..=CHANGED).map(|id| tokio::spawn(rows::change_row(Arc::clone(&world), id))));
    let counts = &world.counts;
    let reached = |counter: &AtomicU64, least: u64| counter.load(Ordering::Relaxed) >= least;
    let enough = || {
        let much = reached(&counts.committed, rows) && reached(&counts.rejected_before_commit, rows / 100);
        much || !world.wrong.lock().is_empty()
    };
    let redis = faults::walk(Arc::clone(&world), redis, seed, enough).await;
    world.stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    let outages = watch.await.unwrap();
    world.wait_until_all_enforce().await;
    let reads: Vec<(u64, u64)> = redis.faces.iter().map(|face| face.known()).collect();
    let missed = futures_util::future::join_all((0..PROCESSES).map(|instance| world.false_negatives(instance))).await;
    tell(&format!(
        "{counts:#?}\nfalse negatives: {missed:?}\nin {:?}; log reads, of them dropped: {reads:?}\n{}",
        start.elapsed(),
        outages::report(&outages)
    ));
    assert_eq!(*world.wrong.lock(), [""; 0], "wrong answers; BLOOMGUARD_CHAOS_SEED={seed}");
    proves_something(counts, rows, &reads);
    // Everything is there in the end, at every instance.
    for answer in world.ask_all("/v1/keys/users/1000", &[]).await {
        assert_eq!(answer.map(|told| told.status), Some(200));
    }
}

/// Too few requests find no mistake.
fn proves_something(counts: &Counts, rows: u64, reads: &[(u64, u64)]) {
    let at_least = |counter: &AtomicU64, least: u64| {
        assert!(counter.load(Ordering::Relaxed) >= least, "too few to prove anything: {counts:#?}")
    };
    at_least(&counts.committed, rows);
    // On a busy machine few of them are answered in time.
    at_least(&counts.rejected_before_commit, rows / 100);
    at_least(&counts.found_by_version, rows);
    at_least(&counts.found_by_time, rows);
    at_least(&counts.new_at_once, 1);
    at_least(&counts.new_everywhere, 1);
    assert!(
        reads.iter().all(|(known, dropped)| known > dropped && *dropped > 0),
        "the log reads are not known any more: {reads:?}"
    );
}
