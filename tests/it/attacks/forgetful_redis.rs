//! A Redis that forgets in the middle of a load: no value that was invalidated meanwhile comes back.

use sqlx::{Connection, Executor, PgConnection};
use tempfile::TempDir;

use crate::product::users::config;
use crate::support::app::{Answer, Http};
use crate::support::assert_eventually;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;
use crate::support::redis_pair::RedisPair;

/// Reads the row as it was when the statement began, and then waits for the holder of the lock.
const SLOW: &str = "SELECT id, name FROM users WHERE id = $1 AND pg_advisory_xact_lock_shared(7)::text IS NOT NULL";

async fn site() -> Site {
    let site = Site::postgres();
    let users = format!("SELECT i, 'old' FROM ({}) AS n", site.series(1000));
    site.run(&format!("CREATE TABLE users (id BIGINT PRIMARY KEY, name TEXT NOT NULL); INSERT INTO users {users}"))
        .await;
    site
}

/// An instance, whose loads last as long as `lock` says.
struct Held {
    site: Site,
    lock: PgConnection,
    process: Process,
    data: String,
    http: Http,
    _dir: TempDir,
}

impl Held {
    async fn start(url: &str) -> Self {
        let (dir, site) = (TempDir::new().unwrap(), site().await);
        let config = config(&site.url()).redis_at(url).users(|k| k.times("1m", "5s", "50s").set("backend.query", SLOW));
        let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
        let (data, telemetry) = process.addresses();
        let http = Http::default();
        // In any state: values are stored in each of them. But the form of keys must be known.
        assert_eventually!(
            http.get(&format!("http://{telemetry}/status")).await.json()["keyspaces"]["users"]["generation"] != 0,
            "{}",
            process.log()
        );
        let lock = PgConnection::connect(&site.url()).await.unwrap();
        Self { site, lock, process, data, http, _dir: dir }
    }

    async fn get(&self, id: u32) -> Answer {
        self.http.get(&format!("http://{}/v1/keys/users/{id}", self.data)).await
    }

    /// Waits until Redis takes what is stored, and returns what the key's value is there.
    async fn is_stored(&self, redis: &mut redis::Connection, id: u32) {
        let url = format!("http://{}/v1/keys/users/{id}", self.data);
        assert_eventually!(
            {
                let stored = holds(redis, id, "old");
                if !stored {
                    assert_eq!(self.http.send("GET", &url, &[("bloomguard-bypass", "1")], "").await.status, 200);
                }
                stored
            },
            "values are never stored again:\n{}",
            self.process.log()
        );
    }

    /// A load has read the old row and waits; the row is changed and invalidated; Redis forgets that by `forget`; the
    /// load ends.
    async fn attack(&mut self, id: u32, forget: impl AsyncFnOnce()) {
        self.lock.execute("SELECT pg_advisory_lock(7)").await.unwrap();
        let load = tokio::spawn({
            let (http, url) = (self.http.clone(), format!("http://{}/v1/keys/users/{id}", self.data));
            async move { http.get(&url).await }
        });
        assert_eventually!(
            {
                let waiting: i64 = sqlx::query_scalar(
                    "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database \
                 WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()",
                )
                .fetch_one(&mut self.lock)
                .await
                .unwrap();
                waiting > 0
            },
            "the load never gets there: {}",
            self.process.log()
        );
        self.site.run(&format!("UPDATE users SET name = 'new' WHERE id = {id}")).await;
        let url = format!("http://{}/v1/invalidate/users", self.data);
        let invalidated =
            self.http.send("POST", &url, &[("content-type", "application/json")], &format!("[{id}]")).await;
        assert_eq!(invalidated.status, 204, "{}", invalidated.text());
        forget().await;
        self.lock.execute("SELECT pg_advisory_unlock(7)").await.unwrap();
        assert_eq!(load.await.unwrap().status, 200);
    }
}

fn holds(redis: &mut redis::Connection, id: u32, name: &str) -> bool {
    let stored: Option<Vec<u8>> = redis::cmd("GET").arg(format!("bloomguard:entry:users:{id}")).query(redis).unwrap();
    stored.is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(name))
}

fn command(redis: &RedisServer, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut redis.connection()).unwrap();
}

/// Invariant: removed-rows-stay-removed
#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_ends_after_a_wipe_stores_nothing() {
    let redis = RedisServer::start();
    let mut held = Held::start(&redis.url()).await;
    for id in 1..=8 {
        // Values are stored: where they were not, nothing would be shown.
        held.is_stored(&mut redis.connection(), 500 + id).await;
        held.attack(id, async || command(&redis, &["FLUSHALL"])).await;
        assert!(!holds(&mut redis.connection(), id, "old"), "the value from before the invalidation of {id} is back");
        let answer = held.get(id).await;
        assert!(answer.status == 200 && answer.text().contains("new"), "{}", answer.text());
    }
}

/// Invariant: removed-rows-stay-removed
#[tokio::test(flavor = "multi_thread")]
async fn no_value_comes_back_without_identity_or_scripts() {
    let redis = RedisServer::start();
    let mut held = Held::start(&redis.url()).await;
    for id in 1..=3 {
        held.is_stored(&mut redis.connection(), 500 + id).await;
        let identity: Vec<String> = redis::cmd("KEYS").arg("bloomguard:log:*").query(&mut redis.connection()).unwrap();
        held.attack(id, async || {
            command(&redis, &["DEL", &identity[0], &format!("bloomguard:entry:users:{id}")]);
        })
        .await;
        assert!(!holds(&mut redis.connection(), id, "old"), "{id} without identity");
    }
    for id in 4..=5 {
        held.is_stored(&mut redis.connection(), 500 + id).await;
        held.attack(id, async || command(&redis, &["SCRIPT", "FLUSH"])).await;
        assert!(!holds(&mut redis.connection(), id, "old"), "{id} without scripts");
    }
    // The scripts come back by themselves.
    held.is_stored(&mut redis.connection(), 600).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_value_comes_back_after_a_restart_without_data() {
    let mut redis = RedisServer::start();
    let mut held = Held::start(&redis.url()).await;
    held.is_stored(&mut redis.connection(), 500).await;
    held.attack(1, async || {
        redis.kill();
        redis.restart();
    })
    .await;
    assert!(!holds(&mut redis.connection(), 1, "old"));
}

/// Invariant: removed-rows-stay-removed
#[tokio::test(flavor = "multi_thread")]
async fn no_value_comes_back_after_a_failover_without_its_tombstone() {
    let mut pair = RedisPair::start(1, 7).await;
    let url = format!("redis://127.0.0.1:{}", pair.faces[0].port());
    let mut held = Held::start(&url).await;
    held.is_stored(&mut redis::Client::open(url.as_str()).unwrap().get_connection().unwrap(), 500).await;
    pair.hold_replica_back();
    held.attack(1, async || pair.fail_over().await).await;
    assert!(!holds(&mut redis::Client::open(url.as_str()).unwrap().get_connection().unwrap(), 1, "old"));
}
