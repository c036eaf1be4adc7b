//! Redis loses its data while a process starts that has never known the fleet's secret.

use std::time::Duration;

use tempfile::TempDir;

use super::users::{config, site};
use crate::support::app::Http;
use crate::support::assert_eventually;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

const SECRET: &str = "bloomguard:secret:users";
/// Logged by a process that waits a second before it proposes a secret.
const WAITS: &str = "keyspace secret not in Redis yet: waiting for it";

fn stored(redis: &RedisServer) -> Option<Vec<u8>> {
    redis::cmd("GET").arg(SECRET).query(&mut redis.connection()).unwrap()
}

async fn status(telemetry: &str) -> serde_json::Value {
    Http::default().get(&format!("http://{telemetry}/status")).await.json()["keyspaces"]["users"].clone()
}

/// How long ago the process logged that it waits.
fn waited(process: &mut Process) -> Duration {
    process.logged(WAITS);
    let log = process.log();
    let line: serde_json::Value = serde_json::from_str(log.lines().find(|line| line.contains(WAITS)).unwrap()).unwrap();
    let logged = chrono::DateTime::parse_from_rfc3339(line["timestamp"].as_str().unwrap()).unwrap();
    chrono::Utc::now().signed_duration_since(logged).to_std().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_process_leaves_the_first_word_to_those_that_know_the_secret() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = config(&site.url()).redis(&redis).users(|k| k.times("10s", "5s", "5s").set("key", "integer"));
    let known = TempDir::new().unwrap();
    let start = |dir: &TempDir| Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
    let mut running = start(&known);
    let telemetry = running.addresses().1;
    assert_eventually!(status(&telemetry).await["state"] == "enforcing", "{}", running.log());
    let fleets = stored(&redis).unwrap();
    // The one that has known it comes late, and the other one must not be quicker than this test.
    running.signal("STOP");
    let (_fresh, mut starting) = loop {
        let _: () = redis::cmd("FLUSHALL").query(&mut redis.connection()).unwrap();
        let fresh = TempDir::new().unwrap();
        let mut starting = start(&fresh);
        starting.logged(WAITS);
        starting.signal("STOP");
        // Later, on a busy machine, its second may be over: then another one starts.
        if waited(&mut starting) < Duration::from_millis(500) {
            break (fresh, starting);
        }
    };
    assert_eq!(stored(&redis), None, "it proposes a secret before those that have known the fleet's");
    running.signal("CONT");
    assert_eventually!(stored(&redis).is_some(), "{}", running.log());
    starting.signal("CONT");
    let other = starting.addresses().1;
    for (process, telemetry) in [(&running, &telemetry), (&starting, &other)] {
        assert_eventually!(status(telemetry).await["state"] == "enforcing", "{}", process.log());
        assert!(!process.log().contains("keyspace secret changed"), "{}", process.log());
    }
    assert_eq!(stored(&redis), Some(fleets));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_build_of_a_fleet_waits_for_its_secret_and_does_not_fail() {
    let (redis, site) = (RedisServer::start(), site(Site::postgres()).await);
    let config = config(&site.url()).redis(&redis).users(|k| k.set("key", "integer"));
    let dir = TempDir::new().unwrap();
    let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
    let telemetry = process.addresses().1;
    assert_eventually!(status(&telemetry).await["state"] == "enforcing", "{}", process.log());
    assert!(process.log().contains(WAITS), "{}", process.log());
    assert!(!process.log().contains("rebuild failed"), "{}", process.log());
    assert!(stored(&redis).is_some());
}
