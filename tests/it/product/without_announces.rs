//! A keyspace without announces and Redis: whatever happens to Redis, the filter goes on answering.
#![allow(clippy::print_stdout, reason = "the figures that were measured")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

use super::polls::{polled, site};
use crate::support::app::{Answer, Http};
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::long_run::OUTAGE_SECONDS;
use crate::support::process::Process;
use crate::support::redis::RedisServer;
use crate::support::{assert_eventually, metric};

/// The right to answer 404 would lapse in this time if it depended on Redis in any way.
const STALENESS: Duration = Duration::from_secs(6);
const CLIENTS: usize = 4;

/// Polled and without announces, which is the default then. Few false positives, so that they do not hide anything.
fn configuration(site: &Site, redis: &RedisServer, max_lag: &str) -> Config {
    polled(&site.url(), "updated_at").redis(redis).set("redis.max_lag", max_lag).set("redis.timeout", "200ms").users(
        |k| {
            k.set("key", "integer")
                .set("max_staleness", format!("{}s", STALENESS.as_secs()))
                .set("commit_window", "1s")
                .set("cache.hot_ttl", "500ms")
                .set("filter.false_positive_rate", 0.000_001)
                .set("filter.expected_keys", 20_000)
                .set("rebuild.min_keys_ratio", 0)
                .set("canary.sample_rate", 0)
        },
    )
}

/// A real process.
struct Instance {
    process: Process,
    data: String,
    telemetry: String,
    http: Http,
    dir: Arc<TempDir>,
}

impl Instance {
    async fn enforcing(config: &Config, dir: Arc<TempDir>) -> Self {
        let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
        let (data, telemetry) = process.addresses();
        let instance = Self { process, data, telemetry, http: Http::default(), dir };
        assert_eventually!(
            instance.status().await["state"] == "enforcing",
            "it does not enforce: {}\n{}",
            instance.status().await["reason"],
            instance.process.log()
        );
        instance
    }

    async fn stop(mut self) -> Arc<TempDir> {
        self.process.signal("TERM");
        assert!(self.process.ended().success(), "{}", self.process.log());
        Arc::clone(&self.dir)
    }

    async fn status(&self) -> serde_json::Value {
        self.http.get(&format!("http://{}/status", self.telemetry)).await.json()["keyspaces"]["users"].clone()
    }

    async fn metric(&self, line: &str) -> f64 {
        metric(self.http.get(&format!("http://{}/metrics", self.telemetry)).await.text(), line)
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.http
            .send(method, &format!("http://{}{path}", self.data), &[("content-type", "application/json")], body)
            .await
    }

    async fn get(&self, id: u32) -> Answer {
        self.http.get(&format!("http://{}/v1/keys/users/{id}", self.data)).await
    }

    /// Calls of the backend that were made for lookups.
    async fn backend_calls(&self) -> f64 {
        let mut calls = 0.0;
        for outcome in ["found", "absent"] {
            calls += self
                .metric(&format!("bloomguard_backend_requests_total{{keyspace=\"users\",outcome=\"{outcome}\"}}"))
                .await;
        }
        calls
    }
}

/// What clients were answered.
#[derive(Default)]
struct Counts {
    absent: AtomicU64,
    absent_not_by_filter: AtomicU64,
    present: AtomicU64,
    present_by_backend: AtomicU64,
    failed: AtomicU64,
    rows: Mutex<Vec<u32>>,
    slowest_row: Mutex<Duration>,
}

impl Counts {
    fn share(&self) -> f64 {
        let (all, others) = (self.absent.load(Relaxed) as f64, self.absent_not_by_filter.load(Relaxed) as f64);
        (all - others) / all
    }

    /// Absent and present keys in turn, and now and then a row that was inserted behind the guard's back.
    async fn ask(&self, instance: &Instance) {
        let answer = instance.get(rand::random_range(10_000_000..2_000_000_000)).await;
        self.absent.fetch_add(1, Relaxed);
        self.absent_not_by_filter.fetch_add(u64::from(answer.told() != "404 filter"), Relaxed);
        assert!(answer.status == 404 || answer.status == 503, "a stranger: {}", answer.told());
        let known = {
            let rows = self.rows.lock();
            let row = rand::random_range(0..(rows.len() + 20).max(1));
            rows.get(row).copied().unwrap_or_else(|| rand::random_range(1..=1000))
        };
        let answer = instance.get(known).await;
        self.present.fetch_add(1, Relaxed);
        assert_ne!(answer.status, 404, "row {known} is {}", answer.told());
        self.failed.fetch_add(u64::from(answer.status == 503), Relaxed);
        self.present_by_backend.fetch_add(u64::from(answer.told() == "200 backend"), Relaxed);
    }

    /// Inserts a row and waits until the instances find it, as the next poll promises.
    async fn insert(&self, site: &Site, instances: &[&Instance]) {
        let id = rand::random_range(2_000_000_000..2_100_000_000);
        site.run(&format!("INSERT INTO users (id, name) VALUES ({id}, 'new') ON CONFLICT DO NOTHING")).await;
        let committed = Instant::now();
        for instance in instances {
            while instance.get(id).await.status != 200 {
                assert!(committed.elapsed() < STALENESS, "row {id} is not found: {}", instance.status().await);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let mut slowest = self.slowest_row.lock();
        *slowest = (*slowest).max(committed.elapsed());
        drop(slowest);
        self.rows.lock().push(id);
    }
}

/// Asks all instances and inserts rows while `event` lasts. Returns what was answered.
async fn under_traffic(name: &str, site: &Site, instances: &[&Instance], event: impl Future<Output = ()>) {
    let (counts, stop) = (Counts::default(), AtomicBool::new(false));
    let (mut calls, began) = (0.0, Instant::now());
    for instance in instances {
        calls -= instance.backend_calls().await;
    }
    let clients = futures_util::future::join_all((0..CLIENTS).map(|client| {
        let (counts, stop) = (&counts, &stop);
        async move {
            while !stop.load(Relaxed) {
                counts.ask(instances[client % instances.len()]).await;
            }
        }
    }));
    let inserts = async {
        while !stop.load(Relaxed) {
            counts.insert(site, instances).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::join!(clients, inserts, async {
        event.await;
        stop.store(true, Relaxed);
    });
    for instance in instances {
        calls += instance.backend_calls().await;
    }
    let took = began.elapsed().as_secs_f64();
    let (absent, present) = (counts.absent.load(Relaxed), counts.present.load(Relaxed));
    let (others, failed) = (counts.absent_not_by_filter.load(Relaxed), counts.failed.load(Relaxed));
    println!(
        "{name}: {took:.1} s, absent {absent}, of these not by the filter {others} ({:.3} % by it); present {present}, by \
         the backend {}, failed {failed}; backend calls {calls} ({:.1}/s); {} new rows, found after {:?} at most",
        counts.share() * 100.0,
        counts.present_by_backend.load(Relaxed),
        calls / took,
        counts.rows.lock().len(),
        counts.slowest_row.lock(),
    );
    assert!(counts.share() >= 0.999, "{name}: {others} of {absent} absent keys were not answered by the filter");
    assert_eq!(failed, 0, "{name}");
    // Only what the shared cache would have answered: every call belongs to a present key, or to one of the few above.
    let rows = counts.rows.lock().len() as u64 * instances.len() as u64;
    assert!(calls <= (counts.present_by_backend.load(Relaxed) + others + rows + CLIENTS as u64) as f64, "{name}");
}

/// Invariant: redis-is-not-the-promise
#[tokio::test(flavor = "multi_thread")]
async fn without_announces_no_event_of_redis_keeps_the_filter_from_answering() {
    let mut redis = RedisServer::start_with(&["--appendonly", "yes"]);
    let site = site(Site::postgres()).await;
    let config = configuration(&site, &redis, "500ms");
    let brief = || tokio::time::sleep(Duration::from_secs(2));
    let one = Instance::enforcing(&config, Arc::new(TempDir::new().unwrap())).await;
    // In Redis: how much the backend gets when it is lost shows what it was good for.
    for id in 1..=1000 {
        assert_eq!(one.get(id).await.status, 200);
    }
    under_traffic("Redis is well", &site, &[&one], brief()).await;
    under_traffic("killed and back with its data", &site, &[&one], async {
        redis.kill();
        redis.restart();
        brief().await;
    })
    .await;
    under_traffic("outage", &site, &[&one], async {
        redis.kill();
        // Longer than `max_lag`, the commit window and `max_staleness`.
        tokio::time::sleep(Duration::from_secs(OUTAGE_SECONDS.size())).await;
        redis.restart();
        brief().await;
    })
    .await;
    under_traffic("hung", &site, &[&one], async {
        redis.pause();
        brief().await;
        redis.resume();
        brief().await;
    })
    .await;
    let flush = || drop(redis::cmd("FLUSHALL").query::<()>(&mut redis.connection()));
    under_traffic("FLUSHALL", &site, &[&one], async {
        flush();
        brief().await;
    })
    .await;
    flush();
    redis.kill();
    let dir = one.stop().await;
    let restarted = Instance::enforcing(&config, dir).await;
    assert!(restarted.process.log().contains("restored filter from snapshot"), "{}", restarted.process.log());
    let fresh = Instance::enforcing(&config, Arc::new(TempDir::new().unwrap())).await;
    let both = [&restarted, &fresh];
    under_traffic("started without Redis", &site, &both, brief()).await;
    under_traffic("Redis comes, without data", &site, &both, async {
        redis.restart();
        assert_eventually!(
            both.iter().any(|instance| instance.process.log().contains("adopted the fleet's secret")),
            "they do not agree on a secret"
        );
        brief().await;
    })
    .await;
    for instance in both {
        let wrong = instance.metric("bloomguard_filter_false_negatives_total{keyspace=\"users\"}").await;
        assert_eq!(wrong, 0.0, "{}", instance.status().await);
    }
}

/// Invariant: redis-is-not-the-promise
#[tokio::test(flavor = "multi_thread")]
async fn two_secrets_become_one_while_both_filters_go_on_answering() {
    let mut redis = RedisServer::start();
    redis.kill();
    let site = site(Site::postgres()).await;
    // Values stay hot until they are dropped, and the secrets differ for a while.
    let config = configuration(&site, &redis, "4s").users(|k| k.set("cache.hot_ttl", "10m"));
    let start = || Instance::enforcing(&config, Arc::new(TempDir::new().unwrap()));
    let (one, other) = (start().await, start().await);
    let adopted = || {
        let of = |instance: &Instance| instance.process.log().matches("adopted the fleet's secret").count();
        of(&one) + of(&other)
    };
    let renamed = async |id: u32, name: &str| {
        assert_eq!(one.get(id).await.status, 200);
        site.run(&format!("UPDATE users SET name = '{name}' WHERE id = {id}")).await;
        let answer = other.send("POST", "/v1/invalidate/users", &format!("[\"{id}\"]")).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
        assert_eventually!(one.get(id).await.text().contains(name), "the old row of {id} stays hot");
    };
    under_traffic("two secrets", &site, &[&one, &other], async {
        redis.restart();
        assert_eventually!(other.status().await["cache"]["reachable"] == true, "no connection");
        assert_eventually!(one.status().await["cache"]["reachable"] == true, "no connection");
        renamed(1, "before").await;
        assert_eq!(adopted(), 0, "the secrets were to differ for longer");
        assert_eventually!(adopted() == 1, "one of the two adopts the other's secret");
        renamed(2, "after").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    })
    .await;
    // Whoever knows the fleet's secret proposes it at once after a wipe, and nobody builds.
    under_traffic("FLUSHALL afterwards", &site, &[&one, &other], async {
        let _: () = redis::cmd("FLUSHALL").query(&mut redis.connection()).unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    })
    .await;
    assert_eq!(adopted(), 1);
}
