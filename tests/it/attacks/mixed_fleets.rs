//! Instances that differ in their configuration, as during a rolling restart: what the one announces the other never
//! answers 404.

use std::time::{Duration, Instant};

use bloomguard::config::{RedisConfig, SecretUrl};
use bloomguard::fleet::{Delta, DeltaLog, LogEntryKind, RedisDeltaLog, Retention, Terms, WriterId};
use bloomguard::key::{KeyForm, KeySecret};
use bloomguard::redis::RedisLink;
use tempfile::TempDir;

use crate::product::users::config;
use crate::support::app::{Answer, Http};
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

/// A table of a thousand users, whose ids are text.
async fn site() -> Site {
    let site = Site::postgres();
    let users = format!("SELECT i::text, 'User ' || i FROM ({}) AS n", site.series(1000));
    site.run(&format!("CREATE TABLE users (id TEXT PRIMARY KEY, name TEXT NOT NULL); INSERT INTO users {users}")).await;
    site
}

/// Instances of the new release, with windows that close at once.
fn brief(site: &Site, redis: Option<&RedisServer>) -> Config {
    let config =
        config(&site.url()).users(|k| k.set("key", "integer").set("cache.hot_ttl", "10m").times("5s", "200ms", "4s"));
    match redis {
        Some(redis) => config.redis(redis).set("redis.log.retention", "2m"),
        None => config,
    }
}

/// With time enough for a commit on a busy machine.
fn roomy(site: &Site, redis: &RedisServer) -> Config {
    brief(site, Some(redis)).users(|k| k.set("commit_window", "3s"))
}

/// Instances of the old release, whose keys are of another form.
fn old(site: &Site, redis: &RedisServer) -> Config {
    roomy(site, redis).users(|k| k.set("key", "text"))
}

/// A reader whose own window and deadline pass soon.
fn short(site: &Site, redis: Option<&RedisServer>) -> Config {
    brief(site, redis).users(|k| k.times("300ms", "200ms", "200ms"))
}

/// One process.
struct Instance {
    process: Process,
    dir: TempDir,
    data: String,
    telemetry: String,
    http: Http,
}

impl Instance {
    fn start(config: &Config) -> Self {
        Self::start_in(TempDir::new().unwrap(), config)
    }

    fn start_in(dir: TempDir, config: &Config) -> Self {
        let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
        let (data, telemetry) = process.addresses();
        Self { process, dir, data, telemetry, http: Http::default() }
    }

    async fn enforcing(config: &Config) -> Self {
        let instance = Self::start(config);
        instance.is("enforcing", "").await;
        instance
    }

    /// Ends as by SIGKILL, and starts again in its place.
    async fn restarted(mut self, config: &Config) -> Self {
        self.process.signal("KILL");
        self.process.ended();
        let again = Self::start_in(self.dir, config);
        again.is("enforcing", "").await;
        again
    }

    async fn status(&self) -> serde_json::Value {
        self.http.get(&format!("http://{}/status", self.telemetry)).await.json()["keyspaces"]["users"].clone()
    }

    /// Waits until it is in this state, for a reason that contains `why`.
    async fn is(&self, state: &str, why: &str) {
        let mut status;
        assert_eventually!(
            {
                status = self.status().await;
                status["state"] == state && status["reason"].as_str().unwrap().contains(why)
            },
            "it is never {state} {why}: {status}\n{}",
            self.process.log()
        );
    }

    async fn generation(&self) -> u64 {
        self.status().await["generation"].as_u64().unwrap()
    }

    /// Waits until it has logged this number of losses for this reason, and enforces again, with a filter of after
    /// generation `before`.
    async fn recovers(&self, losses: usize, why: &str, before: u64) {
        let told = || {
            self.process.log().lines().filter(|line| line.contains("may have been lost") && line.contains(why)).count()
        };
        assert_eventually!(
            told() >= losses && self.generation().await > before,
            "no loss that says {why}: {}",
            self.process.log()
        );
        self.is("enforcing", "").await;
    }

    /// Waits for a warning that contains `what`.
    async fn warns(&self, what: &str) {
        let mut status;
        assert_eventually!(
            {
                status = self.status().await;
                let mut warnings = status["warnings"].as_array().unwrap().iter();
                warnings.any(|warning| warning.as_str().unwrap().contains(what))
            },
            "it never warns of {what}: {status}"
        );
    }

    async fn get(&self, key: &str, headers: &[(&str, &str)]) -> Answer {
        self.http.send("GET", &format!("http://{}/v1/keys/users/{key}", self.data), headers, "").await
    }

    /// Announces a key, and returns the version.
    async fn announce(&self, key: &str) -> String {
        let announced = self.http.send("PUT", &format!("http://{}/v1/keys/users/{key}", self.data), &[], "").await;
        assert_eq!(announced.status, 204, "{}", announced.text());
        announced.header("bloomguard-version").to_owned()
    }

    async fn rebuild(&self) {
        let url = format!("http://{}/admin/keyspaces/users/rebuild", self.process.admin());
        let json = [("content-type", "application/json")];
        assert_eventually!(
            self.http.send("POST", &url, &json, "").await.status != 409,
            "the running build does not end"
        );
        let mut progress;
        assert_eventually!(
            {
                progress = self.http.send("GET", &url, &json, "").await.json();
                progress["running"].is_null()
            },
            "the build does not end: {progress}"
        );
        assert_eq!(progress["last"]["outcome"], "swapped", "{progress}");
    }

    /// An absent key that passes the filter, once this filter enforces.
    async fn false_positive(&self) -> u32 {
        for from in (2_000_000..).step_by(10_000) {
            let keys: Vec<u32> = (from..from + 10_000).collect();
            let body = serde_json::to_string(&keys).unwrap();
            let url = format!("http://{}/v1/check/users", self.data);
            let checked = self.http.send("POST", &url, &[("content-type", "application/json")], &body).await.json();
            let absent = checked["absent"].as_array().unwrap();
            if let Some(at) =
                (0..keys.len()).find(|at| absent.get(*at).and_then(serde_json::Value::as_u64) != Some(*at as u64))
            {
                return keys[at];
            }
        }
        unreachable!()
    }
}

async fn insert(site: &Site, id: &str) {
    site.run(&format!("INSERT INTO users VALUES ('{id}', 'new')")).await;
}

/// Invariant: mixed-fleet-does-no-harm
#[tokio::test(flavor = "multi_thread")]
async fn a_row_announced_under_another_key_form_is_never_404() {
    let (redis, site) = (RedisServer::start(), site().await);
    let old = Instance::enforcing(&old(&site, &redis)).await;
    let new = Instance::enforcing(&roomy(&site, &redis)).await;
    for (nth, id) in (1..).zip(5000..5003) {
        let before = new.generation().await;
        // To the one that is another key than 5000, to the other the same.
        let version = old.announce(&format!("0{id}")).await;
        insert(&site, &id.to_string()).await;
        let brings = [("bloomguard-min-version", version.as_str())];
        assert_eq!(new.get(&format!("0{id}"), &brings).await.told(), "200 backend");
        // By itself, once the window is over.
        new.recovers(nth, "runs another configuration: its key form is text, here integer", before).await;
        assert_eq!(new.get(&id.to_string(), &brings).await.status, 200);
    }
    // And the other way round.
    let before = old.generation().await;
    let version = new.announce("06000").await;
    insert(&site, "6000").await;
    old.recovers(1, "its key form is integer, here text", before).await;
    assert_eq!(old.get("6000", &[("bloomguard-min-version", version.as_str())]).await.status, 200);
    // Two instances of one configuration agree again.
    let old = old.restarted(&roomy(&site, &redis)).await;
    let version = old.announce("07000").await;
    insert(&site, "7000").await;
    assert_eq!(new.get("7000", &[("bloomguard-min-version", version.as_str())]).await.status, 200);
    new.is("enforcing", "").await;
}

/// Invariant: mixed-fleet-does-no-harm
#[tokio::test(flavor = "multi_thread")]
async fn an_absence_of_before_such_an_announce_is_not_believed_after_it() {
    let (redis, site) = (RedisServer::start(), site().await);
    let new = Instance::enforcing(&roomy(&site, &redis)).await;
    let old = Instance::enforcing(&old(&site, &redis)).await;
    let id = new.false_positive().await.to_string();
    // The server's clock must say that the next lookup began after the scan.
    assert_eventually!(new.get(&id, &[]).await.told() == "404 hot", "the absence is never hot");
    let stored: bool =
        redis::cmd("EXISTS").arg(format!("bloomguard:entry:users:{id}")).query(&mut redis.connection()).unwrap();
    assert!(stored, "the absence is in Redis");
    // Its mark stands over another key.
    let before = new.generation().await;
    old.announce(&format!("0{id}")).await;
    insert(&site, &id).await;
    new.recovers(1, "another configuration", before).await;
    assert_eq!(new.get(&id, &[]).await.told(), "200 backend");
}

/// Invariant: mixed-fleet-does-no-harm
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_of_another_source_is_told_of_and_does_no_harm() {
    let (redis, site) = (RedisServer::start(), site().await);
    let other_source = roomy(&site, &redis).users(|k| k.source_sql("SELECT id FROM users WHERE id > ''"));
    let old = Instance::enforcing(&other_source).await;
    let new = Instance::enforcing(&roomy(&site, &redis)).await;
    new.warns("its backend or source is another one").await;
    new.is("enforcing", "").await;
    let before = new.generation().await;
    let version = old.announce("5000").await;
    insert(&site, "5000").await;
    assert_eq!(new.get("5000", &[("bloomguard-min-version", version.as_str())]).await.status, 200);
    new.recovers(1, "its backend or source is another one", before).await;
    assert_eq!(new.get("5000", &[]).await.status, 200);
}

/// Invariant: mixed-fleet-does-no-harm
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_window_of_the_fleet_counts_for_every_reader() {
    let (redis, site) = (RedisServer::start(), site().await);
    let slow = Instance::enforcing(&brief(&site, Some(&redis)).users(|k| k.set("commit_window", "1m"))).await;
    let quick_config = short(&site, Some(&redis));
    let quick = Instance::enforcing(&quick_config).await;
    let version = slow.announce("5000").await;
    let announced = Instant::now();
    let late = Instance::start(&quick_config);
    // The time itself is tested: longer than the window and the deadline of the reader.
    tokio::time::sleep(Duration::from_millis(600)).await;
    quick.rebuild().await;
    let later = Instance::enforcing(&quick_config).await;
    late.is("enforcing", "").await;
    late.rebuild().await;
    insert(&site, "5000").await;
    assert!(announced.elapsed() < Duration::from_secs(60), "this machine is too slow for the promise");
    let left: u64 = redis::cmd("PTTL").arg("bloomguard:entry:users:5000").query(&mut redis.connection()).unwrap();
    assert!(left > 0, "the mark lasts as long");
    for reader in [&quick, &late, &later] {
        let answer = reader.get("5000", &[("bloomguard-min-version", version.as_str())]).await;
        assert_ne!(answer.status, 404, "{}", reader.process.log());
        reader.is("enforcing", "").await;
        assert_ne!(reader.get("5000", &[]).await.status, 404);
    }
    quick.warns("its commit_window is 1m").await;
}

/// Invariant: mixed-fleet-does-no-harm
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_a_shorter_window_keeps_the_longer_for_old_announces() {
    for with_redis in [false, true] {
        let (redis, site) = (RedisServer::start(), site().await);
        let redis = with_redis.then_some(&redis);
        let short = short(&site, redis);
        let long = short.clone().users(|k| k.set("commit_window", "1m"));
        let mut instance = Instance::enforcing(&long).await;
        instance.announce("5000").await;
        let announced = Instant::now();
        // Twice: what was replayed is written again, and still matters as long.
        for _ in 0..2 {
            instance = instance.restarted(&short).await;
        }
        // The time itself is tested: longer than the window and the deadline that it has now.
        tokio::time::sleep(Duration::from_millis(600)).await;
        instance.rebuild().await;
        insert(&site, "5000").await;
        assert!(announced.elapsed() < Duration::from_secs(60), "this machine is too slow for the promise");
        instance.is("enforcing", "").await;
        assert_ne!(instance.get("5000", &[]).await.status, 404, "with Redis: {with_redis}");
    }
}

/// Writes to the log as an instance of this configuration, hashing under the fleet's secret.
async fn write(redis: &RedisServer, terms: Option<Terms>) -> WriterId {
    let config =
        RedisConfig { url: SecretUrl::new(redis.url()), timeout: Duration::from_secs(5), ..RedisConfig::default() };
    let link = RedisLink::connect(&config, |_| ()).unwrap();
    assert!(link.wait_connected(Duration::from_secs(60)).await);
    let secret = link.secret("users", &KeySecret::random()).await.unwrap();
    let hashes = vec![secret.hash(&KeyForm::Text.canonical(b"whatever").unwrap())];
    let writer = WriterId::random();
    let log = RedisDeltaLog::new(link, "users", writer, Retention { time: Duration::from_secs(120), bytes: 64 << 20 });
    log.append(&[Delta { kind: LogEntryKind::Announce, secret: secret.fingerprint(), terms, hashes }], None)
        .await
        .unwrap();
    writer
}

/// Invariant: mixed-fleet-does-no-harm
#[tokio::test(flavor = "multi_thread")]
async fn what_an_instance_of_an_earlier_release_writes_is_a_loss() {
    let (redis, site) = (RedisServer::start(), site().await);
    let instance = Instance::enforcing(&brief(&site, Some(&redis))).await;
    let before = instance.generation().await;
    let writer = write(&redis, None).await;
    let why = format!("instance {writer} runs another configuration: its release does not say which");
    instance.recovers(1, &why, before).await;
}

/// Invariant: mixed-fleet-does-no-harm
#[tokio::test(flavor = "multi_thread")]
async fn an_absurd_window_is_told_and_does_not_hold_the_fleet_for_ever() {
    let (redis, site) = (RedisServer::start(), site().await);
    let short = brief(&site, Some(&redis)).set("redis.log.retention", "8s");
    let instance = Instance::enforcing(&short).await;
    let config = bloomguard::config::load(&[instance.dir.path().join("bloomguard.toml")], std::iter::empty()).unwrap();
    let terms = Terms::new(
        Some(KeyForm::Integer),
        config.keyspaces["users"].data_fingerprint(),
        Duration::MAX,
        Duration::from_secs(5),
    );
    let writer = write(&redis, Some(terms)).await;
    instance.is("degraded", &format!("instance {writer}")).await;
    instance.is("degraded", "longer than redis.log.retention = 8s here").await;
    // No longer than the log reaches back.
    instance.is("enforcing", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_namespace_over_the_same_rows_is_told_of() {
    let (redis, site) = (RedisServer::start(), site().await);
    let one = Instance::enforcing(&brief(&site, Some(&redis))).await;
    // Its log is young, for the server knows only the other's.
    let other = Instance::start(&brief(&site, Some(&redis)).set("redis.key_prefix", "elsewhere"));
    one.warns("another namespace announces rows of the same backend: its delta log is \"elsewhere:deltas:users\"")
        .await;
    other.warns("its delta log is \"bloomguard:deltas:users\"").await;
}
