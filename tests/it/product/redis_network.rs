//! A network to Redis that hangs, is slow and lossy, or resets connections: answers come from the database meanwhile,
//! and Redis is used again by itself.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::users::{USERS, absent, config, site};
use crate::support::app::{Http, TestApp};
use crate::support::assert_eventually;
use crate::support::chaos_proxy::{ChaosProxy, Weather};
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::redis::RedisServer;

const CLOSED: &str = "bloomguard_breaker_state{dependency=\"redis\",state=\"closed\"}";
const HITS: &str = "bloomguard_cache_requests_total{keyspace=\"users\",tier=\"redis\",result=\"hit\"}";
const BLACK_HOLE: Weather = Weather { round_trip: Duration::ZERO, loss: 0.0, unanswered: 0.0, black_hole: true };
/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// An instance, and the network between it and its Redis, which counts the commands that name a key of ours.
struct Behind {
    app: TestApp,
    network: ChaosProxy,
    _redis: RedisServer,
    _site: Site,
}

/// A configuration with Redis behind this network. Hot entries expire at once.
fn behind(network: &ChaosProxy, site: &Site) -> Config {
    config(&site.url())
        .redis_at(&format!("redis://127.0.0.1:{}", network.port()))
        .set("redis.max_lag", "10m")
        .users(|k| k.set("cache.hot_ttl", "1ms"))
}

impl Behind {
    async fn with(redis_timeout: &str, deadline: &str) -> Self {
        let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
        let is_ours = |command: &[&[u8]]| command.iter().any(|word| word.starts_with(b"bloomguard:"));
        let network = ChaosProxy::start(redis.port(), 1, is_ours).await;
        let config = behind(&network, &site)
            .set("redis.timeout", redis_timeout)
            .users(|k| k.set("deadline", deadline).set("backend.timeout", "1m"));
        Self { app: TestApp::enforcing(&config).await, network, _redis: redis, _site: site }
    }

    async fn told(&self, id: u32) -> String {
        self.app.get(&format!("/v1/keys/users/{id}")).await.told()
    }

    /// Asks for users, one after another, until the breaker is open.
    async fn until_given_up(&self) {
        let start = Instant::now();
        for id in (1..=USERS).cycle() {
            let told = self.told(id).await;
            assert!(["200 backend", "200 redis"].contains(&told.as_str()), "{told}");
            if self.app.metric(CLOSED).await == 0.0 {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "it is still waited for");
        }
    }

    /// Asks until Redis answers, and then takes announces again.
    async fn until_used_again(&self) {
        let (start, before) = (Instant::now(), self.app.metric(HITS).await);
        while self.app.metric(HITS).await <= before {
            let told = self.told(1).await;
            assert!(["200 backend", "200 redis"].contains(&told.as_str()), "{told}");
            assert!(start.elapsed() < PATIENCE, "Redis is not used again");
        }
        let announce = async || self.app.send("PUT", "/v1/keys/users/5000000", &[]).await.status;
        assert_eventually!(within PATIENCE => announce().await == 204, "no announce is taken again");
    }
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Nothing but the lookup's own deadline ends the waiting here.
///
/// Invariant: redis-outage-costs-no-answer
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_hangs_costs_at_most_the_deadline_and_leaks_no_task() {
    let behind = Behind::with("10m", "2s").await;
    let (app, before) = (&behind.app, tasks());
    behind.network.set(BLACK_HOLE);
    // Each may come too late on a busy machine, and all of them may not.
    for attempt in 1.. {
        let start = Instant::now();
        // Connections of its own: their tasks end with it.
        let http = Http::default();
        let urls: Vec<String> = (1..=32).map(|id| app.url(&format!("/v1/keys/users/{id}"))).collect();
        let answers = join_all(urls.iter().map(|url| http.get(url))).await;
        assert!(answers.iter().all(|answer| ["200 backend", "503 "].contains(&answer.told().as_str())), "{answers:?}");
        assert!(start.elapsed() < Duration::from_secs(2) + PATIENCE, "they waited for {:?}", start.elapsed());
        if answers.iter().any(|answer| answer.status == 200) {
            break;
        }
        assert!(attempt < 30, "Redis leaves the database no time");
    }
    let announced = Instant::now();
    let told =
        tokio::join!(app.send("PUT", "/v1/keys/users/5000000", &[]), app.send("DELETE", "/v1/keys/users/1", &[]));
    assert_eq!((told.0.status, told.1.status), (503, 503));
    assert!(announced.elapsed() < Duration::from_secs(2) + PATIENCE, "they waited for {:?}", announced.elapsed());
    crate::support::eventually("every load and every connection has ended", || tasks() <= before + 4).await;
    behind.network.heal();
    behind.until_used_again().await;
}

/// Invariant: redis-outage-costs-no-answer
#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_sends_no_command_and_makes_no_lookup_wait() {
    let behind = Behind::with("200ms", "2m").await;
    let stranger = absent(&behind.app);
    behind.network.set(BLACK_HOLE);
    behind.until_given_up().await;
    let sent = behind.network.known().0;
    for id in 1..=200 {
        assert_eq!(behind.told(id).await, "200 backend");
    }
    assert_eq!(behind.told(stranger).await, "404 filter", "max_lag is 10 minutes");
    assert_eq!(behind.app.send("PUT", "/v1/keys/users/5000000", &[]).await.status, 503);
    assert_eq!(behind.network.known().0, sent, "commands were sent to a Redis that is given up");
    assert_eq!(behind.app.metric(CLOSED).await, 0.0);
    behind.network.heal();
    behind.until_used_again().await;
    assert!(behind.network.known().0 > sent);
}

/// Invariant: redis-outage-costs-no-answer
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_lossy_network_to_redis_sends_lookups_to_the_database() {
    let behind = Behind::with("100ms", "2m").await;
    let stranger = absent(&behind.app);
    behind.network.set(Weather { round_trip: Duration::from_millis(800), loss: 0.12, ..Weather::default() });
    behind.until_given_up().await;
    for id in 1..=100 {
        assert_eq!(behind.told(id).await, "200 backend");
        assert_eq!(behind.told(stranger).await, "404 filter");
    }
    assert_eq!(behind.app.metric(CLOSED).await, 0.0, "no trial is answered in time");
    behind.network.heal();
    behind.until_used_again().await;
}

/// Invariant: redis-outage-costs-no-answer
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_reset_again_and_again_cost_no_answer() {
    let behind = Behind::with("5s", "2m").await;
    let stranger = absent(&behind.app);
    for id in (1..=USERS).take(50) {
        behind.network.cut();
        for _ in 0..4 {
            let told = behind.told(id).await;
            assert!(["200 backend", "200 redis", "200 hot"].contains(&told.as_str()), "{told}");
            assert_eq!(behind.told(stranger).await, "404 filter");
        }
    }
    behind.until_used_again().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hit_in_redis_is_one_command_and_all_of_them_share_one_connection() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    // Entries end with their key; its lease would be named too.
    let network =
        ChaosProxy::start(redis.port(), 1, |command| command.iter().any(|word| word.ends_with(b":users:777"))).await;
    let app = TestApp::enforcing(&behind(&network, &site).set("redis.timeout", "10s")).await;
    let told = || async { app.get("/v1/keys/users/777").await.told() };
    assert_eventually!(within PATIENCE => told().await == "200 redis", "Redis never has the row");
    let hits = || app.metric(HITS);
    let (sent, before) = (network.known().0, hits().await);
    for _ in 0..20 {
        join_all((0..8).map(|_| told())).await;
    }
    let (sent, hit) = (network.known().0 - sent, hits().await - before);
    assert!(hit > 0.0, "all were answered by the process itself");
    assert_eq!(sent as f64, hit, "commands and hits");
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut redis.connection()).unwrap();
    assert_eq!(clients.lines().count(), 2, "one of them asks for this list: {clients}");
}
