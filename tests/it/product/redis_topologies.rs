//! Redis that is more than one server, and takes care of itself: Sentinel and Cluster. Two instances, on which no row
//! that was announced and committed is ever absent, with any fate of the primary.

use std::time::{Duration, Instant};

use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::chaos_proxy::Weather;
use crate::support::database::Site;
use crate::support::redis_cluster::RedisCluster;
use crate::support::redis_sentinels::RedisSentinels;

const REPLACED: &str = "bloomguard_delta_resyncs_total{keyspace=\"users\",reason=\"replaced\"}";
/// A failover takes seconds, and on a busy machine more.
const PATIENCE: Duration = Duration::from_secs(300);

/// Instances that announce to each other by a Redis at `url`.
struct Fleet {
    writer: TestApp,
    reader: TestApp,
    site: Site,
}

impl Fleet {
    async fn at(url: &str) -> Self {
        let site = site(Site::postgres()).await;
        let config = config(&site.url())
            .redis_at(url)
            .set("redis.timeout", "500ms")
            .set("redis.max_lag", "1s")
            .users(|k| k.set("cache.hot_ttl", "1ms").set("commit_window", "1s"));
        let (writer, reader) = (TestApp::start(&config).await, TestApp::start(&config).await);
        let fleet = Self { writer, reader, site };
        fleet.until_both_enforce(false).await;
        fleet
    }

    /// `pushed`: by an operator, where a build of its own would come a moment later.
    async fn until_both_enforce(&self, pushed: bool) {
        for app in [&self.writer, &self.reader] {
            let enforces = async || {
                let state = app.status("users").await["state"] == "enforcing";
                if !state && pushed {
                    app.rebuild("users").await;
                }
                state
            };
            assert_eventually!(within PATIENCE => enforces().await, "{}", app.status("users").await);
        }
    }

    async fn losses(&self) -> [f64; 2] {
        [self.writer.metric(REPLACED).await, self.reader.metric(REPLACED).await]
    }

    /// Announces a row, breaks something, commits the row, and asks for it until both instances have noticed, and
    /// enforce again.
    async fn survives(&self, pushed: bool, breaking: impl AsyncFnOnce()) {
        let (id, before) = (absent(&self.reader), self.losses().await);
        let path = format!("/v1/keys/users/{id}");
        let version = self.announced(&path).await;
        breaking().await;
        self.site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
        let start = Instant::now();
        while self.losses().await.iter().zip(before).any(|(now, before)| *now <= before) {
            self.is_found(&path, &version).await;
            assert!(start.elapsed() < PATIENCE, "a new log was not noticed: {}", self.writer.status("users").await);
        }
        self.until_both_enforce(pushed).await;
        assert_eq!(self.reader.get(&path).await.status, 200);
        self.works().await;
    }

    /// Where it was announced, and where the version is shown: at once.
    async fn is_found(&self, path: &str, version: &str) {
        let with_version = [("bloomguard-min-version", version)];
        for answer in [self.writer.get(path).await, self.reader.send("GET", path, &with_version).await] {
            // A busy machine may miss the deadline.
            assert!([200, 503].contains(&answer.status), "{}", answer.told());
        }
    }

    /// What is announced at one is found at the other, and strangers are rejected.
    async fn works(&self) {
        let id = absent(&self.reader);
        let path = format!("/v1/keys/users/{id}");
        self.announced(&path).await;
        self.site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
        assert_eventually!(within PATIENCE => self.reader.get(&path).await.status == 200, "{path} is not found");
        let stranger = absent(&self.reader);
        assert_eventually!(
            within PATIENCE => self.reader.get(&format!("/v1/keys/users/{stranger}")).await.told() == "404 filter",
            "strangers are not rejected any more"
        );
    }

    /// The version of an announce that is acknowledged.
    async fn announced(&self, path: &str) -> String {
        let mut answer = self.writer.send("PUT", path, &[]).await;
        assert_eventually!(
            within PATIENCE => {
                if answer.status != 204 {
                    answer = self.writer.send("PUT", path, &[]).await;
                }
                answer.status == 204
            },
            "{}",
            answer.text()
        );
        answer.header("bloomguard-version").to_owned()
    }
}

/// Invariant: new-primary-is-new-log
#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_failover_loses_no_acknowledged_announce() {
    let mut redis = RedisSentinels::start().await;
    let fleet = Fleet::at(&redis.url()).await;
    fleet.works().await;
    let primary = redis.primary().unwrap();
    fleet
        .survives(false, async || {
            redis.servers[primary].kill();
            redis.watch(true);
        })
        .await;
    assert_eq!(redis.primary(), Some(1 - primary));
}

/// Invariant: new-primary-is-new-log
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_cut_off_and_replaced_is_not_gone_back_to() {
    let redis = RedisSentinels::start().await;
    let fleet = Fleet::at(&redis.url()).await;
    let old = redis.primary().unwrap();
    fleet
        .survives(true, async || {
            redis.faces[old].set(Weather { black_hole: true, ..Weather::default() });
            redis.watch(true);
        })
        .await;
    redis.watch(false);
    // It still takes itself for the primary, until the sentinels tell it.
    redis.faces[old].heal();
    let start = Instant::now();
    while !redis.info(old).contains("role:slave") {
        fleet.works().await;
        assert!(start.elapsed() < PATIENCE, "it is never told");
    }
    fleet.works().await;
}

/// Invariant: new-primary-is-new-log
#[tokio::test(flavor = "multi_thread")]
async fn whom_sentinels_name_is_followed_though_the_old_primary_goes_on() {
    let redis = RedisSentinels::start().await;
    let fleet = Fleet::at(&redis.url()).await;
    fleet.survives(true, async || redis.name_another()).await;
    let clients: String = redis::cmd("CLIENT").arg("LIST").query(&mut redis.servers[1].connection()).unwrap();
    assert!(clients.contains("cmd=evalsha"), "{clients}");
}

/// Invariant: new-primary-is-new-log
#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_lives_on_one_cluster_node_and_follows_it() {
    let mut redis = RedisCluster::start();
    let fleet = Fleet::at(&redis.url()).await;
    fleet.works().await;
    let owner = redis.owner();
    let names = redis.names(owner);
    assert!(names.contains(&"{bloomguard:users}:deltas:users".to_owned()), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("{bloomguard:users}:")), "{names:?}");
    for other in (0..3).filter(|n| *n != owner) {
        assert_eq!(redis.names(other), [""; 0]);
    }
    fleet.survives(true, async || redis.kill_owner()).await;
    assert_ne!(redis.owner(), owner);
    // What comes back is a replica now.
    redis.nodes[owner].restart();
    redis.until("it follows", |it| it.replication(owner).contains("master_link_status:up"));
    let (heir, other) = (redis.owner(), redis.stranger());
    let log = redis.log_identity(heir);
    fleet.survives(true, async || redis.reshard(other)).await;
    assert_eq!(redis.owner(), other);
    fleet.survives(true, async || redis.reshard(heir)).await;
    assert_ne!(
        redis.log_identity(heir),
        log,
        "what it had before it gave the keyspace away may have been lost meanwhile"
    );
}
