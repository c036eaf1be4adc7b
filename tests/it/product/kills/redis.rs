//! SIGKILL at Redis, under instances that announce: what they announce again is as good as a scan.

use std::collections::BTreeMap;

use super::*;

/// How often an instance is asked whether it rejects.
const LOOK: Duration = Duration::from_millis(10);
/// Beside those of the rows that are committed.
const ANNOUNCES_PER_SECOND: u32 = 200;

/// The times in which instances answered an absent key from elsewhere than the filter.
#[derive(Default)]
struct Gaps {
    /// Of each instance: since when it does not reject.
    since: Mutex<BTreeMap<usize, Instant>>,
    longest: Mutex<Duration>,
}

impl Gaps {
    fn saw(&self, instance: usize, rejects: bool) {
        let mut since = self.since.lock();
        if !rejects {
            since.entry(instance).or_insert_with(Instant::now);
        } else if let Some(began) = since.remove(&instance) {
            let mut longest = self.longest.lock();
            *longest = longest.max(began.elapsed());
        }
    }

    fn all_reject(&self) -> bool {
        self.since.lock().is_empty()
    }

    /// The longest since the last call.
    fn take_longest(&self) -> Duration {
        std::mem::take(&mut self.longest.lock())
    }
}

async fn watch(world: Arc<World>, gaps: Arc<Gaps>, instance: usize) {
    for id in 5_000_000_000.. {
        if world.is_over() {
            return;
        }
        if let Some(answer) = world.ask("GET", instance, id + instance as u64 * 1_000_000, &[]).await {
            gaps.saw(instance, answer.told() == "404 filter");
        }
        // The time itself is measured.
        tokio::time::sleep(LOOK).await;
    }
}

/// Announces rows that never come, so many a second.
async fn announce(world: Arc<World>, acknowledged: Arc<AtomicU64>) {
    let mut every = tokio::time::interval(Duration::from_secs(1) / ANNOUNCES_PER_SECOND);
    for id in 7_000_000_000.. {
        if world.is_over() {
            return;
        }
        every.tick().await;
        let (world, acknowledged) = (Arc::clone(&world), Arc::clone(&acknowledged));
        tokio::spawn(async move {
            let answer = world.ask("PUT", id as usize % world.addresses.len(), id, &[]).await;
            if answer.is_some_and(|answer| answer.status == 204) {
                count(&acknowledged);
            }
        });
    }
}

/// Scans that each instance has made.
async fn scans(world: &World) -> Vec<serde_json::Value> {
    let mut jobs = vec![];
    for address in &world.addresses {
        let (_, telemetry) = address.read().clone().unwrap();
        let status = world.http.try_send("GET", &format!("http://{telemetry}/status"), &[], "").await.unwrap();
        jobs.push(status.json()["keyspaces"]["users"]["last_rebuild"]["job"].clone());
    }
    jobs
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_redis_under_announces_cost_no_scan_and_no_wrong_answer() {
    let kills = REDIS_KILLS.size::<usize>();
    let (mut redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    redis.stay_young();
    let config = config(&site.url()).redis(&redis).set("redis.timeout", "1s").set("redis.max_lag", "2s").users(|k| {
        k.set("key", "integer")
            .times("2s", "30s", "1s")
            .set("filter.expected_keys", 1_000_000)
            .set("rebuild.min_keys_ratio", 0.0)
    });
    let mut seats: Vec<Seat> = (0..3).map(|_| Seat::new(&config)).collect();
    let world = Arc::new(World::new(&site, seats.len()).await);
    for (instance, seat) in seats.iter_mut().enumerate() {
        tokio::task::block_in_place(|| seat.serve(&world, instance));
        world.enforces(instance).await;
    }
    let (next, announced) = (Arc::new(AtomicU64::new(10_000_000)), Arc::new(AtomicU64::new(0)));
    let gaps = Arc::new(Gaps::default());
    let mut tasks: Vec<_> =
        (0..24).map(|_| tokio::spawn(rows::write_rows(Arc::clone(&world), Arc::clone(&next)))).collect();
    tasks.extend((0..3).map(|instance| tokio::spawn(watch(Arc::clone(&world), Arc::clone(&gaps), instance))));
    tasks.push(tokio::spawn(announce(Arc::clone(&world), Arc::clone(&announced))));
    let (start, before, mut longest) = (Instant::now(), scans(&world).await, vec![]);
    let rows = REDIS_KILL_ROWS.size::<usize>();
    for kill in 1..=kills {
        assert_eventually!(
            within PATIENCE => world.committed.lock().len() >= rows * kill / kills || !world.wrong.lock().is_empty(),
            "too few rows to prove anything: {:?}", world.counts
        );
        assert_eventually!(within PATIENCE => gaps.all_reject(), "an instance does not reject");
        gaps.take_longest();
        tokio::task::block_in_place(|| {
            redis.kill();
            redis.restart();
        });
        // The time itself is measured: until then each has seen the new log.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eventually!(within PATIENCE => gaps.all_reject(), "an instance does not reject again");
        longest.push(gaps.take_longest());
    }
    let announced_per_second = announced.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    world.over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    longest.sort_unstable();
    let (median, worst) = (longest[longest.len() / 2], longest[longest.len() - 1]);
    let rows = world.committed.lock().len();
    tell(&format!(
        "{kills} kills of Redis, {announced_per_second:.0} announces/s, {rows} rows: not rejecting for {median:?} at the \
         median, {worst:?} at the worst; {:?}",
        world.counts
    ));
    assert_eq!(*world.wrong.lock(), [""; 0]);
    let logs: Vec<String> = seats.iter().map(|seat| seat.process.as_ref().unwrap().log()).collect();
    assert_eq!(scans(&world).await, before, "a scan: {}", logs.join("\n\n"));
}
