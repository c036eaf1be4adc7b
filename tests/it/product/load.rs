//! Traffic at a given rate: one keyspace flooded beside another, and a mix of announces, reads and absent keys.
//!
//! A long run, see [`LOAD_SECONDS`]: then the runs are measured and printed. By default they are short, and tests judge
//! only what holds on any machine.

#![allow(clippy::print_stdout, reason = "what was measured")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::users::{USERS, config, site, table};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::config::{Config, Edit, Keyspace};
use crate::support::database::Site;
use crate::support::long_run::LOAD_SECONDS;
use crate::support::redis::RedisServer;

/// How long a run is and how many requests a second it sends: as many as `measured` in a long run, else `brief`.
fn run(brief: (Duration, u32), measured: u32) -> (Duration, u32) {
    match LOAD_SECONDS.size() {
        0 => brief,
        seconds => (Duration::from_secs(seconds), measured),
    }
}

/// What became of the requests of one kind: how many had which status, and how long each took, counted from when it was
/// due.
#[derive(Default)]
pub(super) struct Run {
    pub(super) statuses: BTreeMap<u16, u64>,
    pub(super) took: Vec<Duration>,
}

impl Run {
    pub(super) fn quantile(&mut self, share: f64) -> Duration {
        self.took.sort_unstable();
        self.took[((self.took.len() as f64 * share) as usize).min(self.took.len() - 1)]
    }

    pub(super) fn of(&self, statuses: &[u16]) -> u64 {
        statuses.iter().filter_map(|status| self.statuses.get(status)).sum()
    }

    pub(super) fn report(&mut self, kind: &str) {
        if !self.took.is_empty() {
            let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| self.quantile(share));
            println!(
                "{kind:>24}: {} requests {:?}, p50 {p50:.1?} p95 {p95:.1?} p99 {p99:.1?}",
                self.took.len(),
                self.statuses
            );
        }
    }
}

/// One connection that is kept, and little else: the generator must not be what is measured.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: vec![0; 16 << 10] }
    }

    async fn status_of(&mut self, method: &str, path: &str) -> u16 {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut have = 0;
        loop {
            let more = self.stream.read(&mut self.buffer[have..]).await.unwrap();
            assert!(more > 0, "the connection ended in {method} {path}");
            have += more;
            let text = String::from_utf8_lossy(&self.buffer[..have]);
            let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            if have >= head.len() + 4 + length {
                return head[9..12].parse().unwrap();
            }
        }
    }
}

/// Sends at this rate over this number of connections, each request of the kind that `draw` names; returns runs by
/// kind.
pub(super) async fn at_rate(
    address: SocketAddr,
    (rate, connections): (u32, u32),
    lasting: Duration,
    draw: impl Fn() -> (&'static str, &'static str, String) + Clone + Send + 'static,
) -> BTreeMap<&'static str, Run> {
    let pause = Duration::from_secs(1) * connections / rate;
    let begin = tokio::time::Instant::now() + Duration::from_millis(100);
    let clients: Vec<_> = (0..connections)
        .map(|number| {
            let draw = draw.clone();
            tokio::spawn(async move {
                let (mut connection, mut runs) = (Connection::to(address).await, BTreeMap::<_, Run>::new());
                let mut due = begin + pause * number / connections;
                while due < begin + lasting {
                    tokio::time::sleep_until(due).await;
                    let (kind, method, path) = draw();
                    let status = connection.status_of(method, &path).await;
                    let run = runs.entry(kind).or_default();
                    *run.statuses.entry(status).or_default() += 1;
                    // Not from when it was sent: a request that waits for the answer before it waits because of the
                    // server.
                    run.took.push(due.elapsed());
                    due += pause;
                }
                runs
            })
        })
        .collect();
    let mut all = BTreeMap::<_, Run>::new();
    for client in clients {
        for (kind, run) in client.await.unwrap() {
            let sum = all.entry(kind).or_default();
            run.statuses.iter().for_each(|(status, count)| *sum.statuses.entry(*status).or_default() += count);
            sum.took.extend(run.took);
        }
    }
    all
}

/// Every read goes to the database.
pub(super) fn uncached(keyspace: Keyspace) -> Keyspace {
    keyspace.set("cache.ttl", "1ms").set("cache.hot_ttl", "1ms").set("cache.hot_capacity", 0)
}

/// A query that takes as long as [`pace`] says for this keyspace.
fn slowed(keyspace: Keyspace, name: &str) -> Keyspace {
    let slow = format!("pg_sleep((SELECT seconds FROM pace WHERE keyspace = '{name}'))::text");
    keyspace.set("backend.query", format!("SELECT id, name, {slow} FROM users WHERE id = $1"))
}

/// How long each call of these keyspaces takes from now on; builds ask too, so not before they are done.
pub(super) async fn pace(site: &Site, keyspaces: &[(&str, f64)]) {
    site.run("CREATE TABLE IF NOT EXISTS pace (keyspace TEXT PRIMARY KEY, seconds DOUBLE PRECISION NOT NULL)").await;
    for (keyspace, seconds) in keyspaces {
        site.run(&format!(
            "DELETE FROM pace WHERE keyspace = '{keyspace}'; INSERT INTO pace VALUES ('{keyspace}', {seconds})"
        ))
        .await;
    }
}

/// Keyspaces `users` and `flooded` on one database; nothing is cached.
fn two_keyspaces(url: &str) -> Config {
    ["users", "flooded"].iter().fold(Config::new(), |config, name| {
        config.keyspace(name, |k| {
            slowed(uncached(table(k, url)), name)
                .times("60s", "5s", "60s")
                .set("backend.min_connections", 4)
                .set("backend.max_concurrency", 16)
                .set("backend.max_queue", 16)
        })
    })
}

fn read_of(keyspace: &'static str) -> impl Fn() -> (&'static str, &'static str, String) + Clone {
    move || (keyspace, "GET", format!("/v1/keys/{keyspace}/{}", rand::random_range(1..=USERS)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flooded_keyspace_takes_no_call_and_no_place_of_another() {
    let site = site(Site::postgres()).await;
    pace(&site, &[("users", 0.0), ("flooded", 0.0)]).await;
    let app = TestApp::enforcing(&two_keyspaces(&site.url())).await;
    // No call of the flooded one ends while the other is read.
    pace(&site, &[("flooded", 20.0)]).await;
    let flood: Vec<_> = (0..100u32)
        .map(|client| {
            let data = app.data;
            tokio::spawn(async move {
                Connection::to(data).await.status_of("GET", &format!("/v1/keys/flooded/{}", client + 1)).await
            })
        })
        .collect();
    assert_eventually!(
        app.metric("bloomguard_shed_total{keyspace=\"flooded\",reason=\"queue_full\"}").await != 0.0,
        "nothing is shed"
    );
    for id in 1..=100 {
        assert_eq!(app.get(&format!("/v1/keys/users/{id}")).await.status, 200);
    }
    for reason in ["queue_full", "queue_timeout", "breaker_open"] {
        assert_eq!(app.metric(&format!("bloomguard_shed_total{{keyspace=\"users\",reason=\"{reason}\"}}")).await, 0.0);
    }
    flood.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_beside_a_flooded_one_answers_every_read() {
    let (lasting, flood_rate) = run((Duration::from_millis(300), 400), 2000);
    let pairs = if LOAD_SECONDS.is_long() { 5 } else { 1 };
    let site = site(Site::postgres()).await;
    pace(&site, &[("users", 0.0), ("flooded", 0.0)]).await;
    let app = TestApp::enforcing(&two_keyspaces(&site.url())).await;
    pace(&site, &[("users", 0.02), ("flooded", 0.02)]).await;
    at_rate(app.data, (200, 20), lasting.min(Duration::from_secs(2)), read_of("users")).await;
    let mut ratios = Vec::new();
    for pair in 1..=pairs {
        let mut alone = at_rate(app.data, (200, 20), lasting, read_of("users")).await.remove("users").unwrap();
        let flood = at_rate(app.data, (flood_rate, flood_rate / 10), lasting, read_of("flooded"));
        let (mut beside, mut flood) = tokio::join!(at_rate(app.data, (200, 20), lasting, read_of("users")), flood);
        let mut beside = beside.remove("users").unwrap();
        alone.report(&format!("alone {pair}"));
        beside.report(&format!("beside a flood {pair}"));
        flood.get_mut("flooded").unwrap().report("the flood");
        assert_eq!(
            (alone.of(&[200]), beside.of(&[200])),
            (alone.took.len() as u64, beside.took.len() as u64),
            "{:?}",
            beside.statuses
        );
        ratios.push(beside.quantile(0.95).as_secs_f64() / alone.quantile(0.95).as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    println!("p95 beside the flood over p95 alone, median: {:.3} ({ratios:.3?})", ratios[pairs / 2]);
}

/// 35 % announces of new keys, 40 % reads of rows, 25 % reads of absent keys.
fn mix() -> impl Fn() -> (&'static str, &'static str, String) + Clone {
    let next = Arc::new(AtomicU64::new(10_000_000_000));
    move || match rand::random_range(0..100) {
        0..35 => ("announces", "PUT", format!("/v1/keys/users/{}", next.fetch_add(1, Ordering::Relaxed))),
        35..75 => ("reads", "GET", format!("/v1/keys/users/{}", rand::random_range(1..=USERS))),
        _ => ("absent", "GET", format!("/v1/keys/users/{}", rand::random_range(1_000_000..1_000_000_000u64))),
    }
}

/// The mix at this rate; each call of the database takes so many seconds. Times are such that only the cap sheds,
/// however slow the machine is.
async fn mixed(
    lasting: Duration,
    rate: u32,
    (small, call): (Edit, f64),
) -> (TestApp, BTreeMap<&'static str, Run>, RedisServer) {
    let (site, redis) = (site(Site::postgres()).await, RedisServer::start());
    pace(&site, &[("users", 0.0)]).await;
    let config = config(&site.url()).redis(&redis).set("redis.timeout", "60s").users(|k| {
        let k = k.times("60s", "5s", "60s").set("filter.headroom", 1000.0);
        if call > 0.0 { slowed(small(k), "users") } else { k }
    });
    let app = TestApp::enforcing(&config).await;
    pace(&site, &[("users", call)]).await;
    let runs = at_rate(app.data, (rate, 64), lasting, mix()).await;
    (app, runs, redis)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mix_of_announces_reads_and_absent_keys_is_answered_without_rejects() {
    let (lasting, rate) = run((Duration::from_secs(1), 200), 12_000);
    let (app, mut runs, _redis) = mixed(lasting, rate, (|k| k, 0.0)).await;
    for (kind, run) in &mut runs {
        run.report(kind);
        let right = match *kind {
            "announces" => 204,
            "reads" => 200,
            _ => 404,
        };
        assert_eq!(run.of(&[right]), run.took.len() as u64, "{kind}: {:?}", run.statuses);
    }
    let answered: usize = runs.values().map(|run| run.took.len()).sum();
    println!("{:.0} requests a second for {lasting:?}", answered as f64 / lasting.as_secs_f64());
    for reason in ["queue_full", "queue_timeout", "breaker_open"] {
        assert_eq!(app.metric(&format!("bloomguard_shed_total{{keyspace=\"users\",reason=\"{reason}\"}}")).await, 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_too_small_for_the_mix_sheds_and_says_why() {
    let (lasting, rate) = run((Duration::from_secs(2), 400), 12_000);
    let small = |k| uncached(k).set("backend.max_concurrency", 1).set("backend.max_queue", 2);
    let (app, mut runs, _redis) = mixed(lasting, rate, (small, 0.02)).await;
    for (kind, run) in &mut runs {
        run.report(kind);
        let wrong = if *kind == "reads" { [204, 404] } else { [200, 503] };
        // The filter answers what is absent, and announces need no database.
        assert!(*kind == "absent" || run.of(&wrong) == 0, "{kind}: {:?}", run.statuses);
    }
    let reads = &runs["reads"];
    let shed = app.metric("bloomguard_shed_total{keyspace=\"users\",reason=\"queue_full\"}").await;
    println!("shed, queue_full: {shed}; answered {:?}", reads.statuses);
    assert!(shed > 0.0 && reads.of(&[503]) > 0, "{:?}", reads.statuses);
    assert!(reads.of(&[200]) > 0, "calls within the cap are answered: {:?}", reads.statuses);
}
