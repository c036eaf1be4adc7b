//! One endpoint whose name moves to another server, as at a managed service.
//!
//! The process runs in a mount namespace in which `/etc/hosts` is a file of the test: the name is resolved as in
//! production, and the test moves it by writing the file. Both servers have the same port, so nothing but the name's
//! address changes.

use std::path::PathBuf;

use tempfile::TempDir;

use super::users::{config, site};
use crate::support::app::Http;
use crate::support::assert_eventually;
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;

const NAME: &str = "primary.cache.test";

struct Endpoint {
    hosts: PathBuf,
    first: RedisServer,
    second: RedisServer,
}

impl Endpoint {
    /// The name leads to the first server; the second is its replica.
    fn start(dir: &TempDir) -> Self {
        let quick = ["--repl-diskless-sync-delay", "0"];
        let first = RedisServer::start_with(&quick);
        let port = first.port().to_string();
        let replica = [&quick[..], &["--replicaof", "127.0.0.1", &port]].concat();
        let second = RedisServer::start_at("127.0.0.2", first.port(), &replica);
        let endpoint = Self { hosts: dir.path().join("hosts"), first, second };
        endpoint.lead_to("127.0.0.1");
        crate::support::eventually_blocking("the replica follows", || {
            info(&endpoint.second, "replication").contains("master_link_status:up")
        });
        endpoint
    }

    fn lead_to(&self, address: &str) {
        std::fs::write(&self.hosts, format!("127.0.0.1 localhost\n{address} {NAME}\n")).unwrap();
    }

    fn url(&self) -> String {
        format!("redis://{NAME}:{}", self.first.port())
    }
}

fn info(server: &RedisServer, section: &str) -> String {
    redis::cmd("INFO").arg(section).query(&mut server.connection()).unwrap()
}

fn command(server: &RedisServer, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.connection()).unwrap();
}

/// Entries of the delta log.
fn logged(server: &RedisServer) -> u64 {
    redis::cmd("XLEN").arg("bloomguard:deltas:users").query(&mut server.connection()).unwrap()
}

/// Connections of others than the test's own and the replication.
fn clients(server: &RedisServer) -> usize {
    let list: String =
        redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal").query(&mut server.connection()).unwrap();
    list.lines().count() - 1
}

/// Invariant: new-primary-is-new-log
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_moves_to_another_server_is_resolved_again() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
    let endpoint = Endpoint::start(&dir);
    let file = config(&site.url()).redis_at(&endpoint.url()).users(|k| k.set("commit_window", "1s")).write(dir.path());
    let mut process = Process::start_with_hosts(dir.path(), &["serve", "--config", &file], &endpoint.hosts);
    let (data, telemetry) = process.addresses();
    let http = Http::default();
    let announce =
        async |id: u32| http.send("PUT", &format!("http://{data}/v1/keys/users/{id}"), &[], "").await.status == 204;
    assert_eventually!(announce(5_000_000).await, "{}", process.log());
    assert_eq!((clients(&endpoint.first), clients(&endpoint.second)), (1, 0));

    // A planned failover: the old primary follows the new one, keeps its connections, and the name still leads to it.
    command(&endpoint.second, &["REPLICAOF", "NO", "ONE"]);
    command(&endpoint.first, &["REPLICAOF", "127.0.0.2", &endpoint.first.port().to_string()]);
    let refused = "it is a replica; the url must name the primary";
    let status = async || http.get(&format!("http://{telemetry}/status")).await.text().to_owned();
    assert_eventually!(status().await.contains(refused), "{}", status().await);
    assert!(!announce(5_000_001).await, "a replica has acknowledged an announce");
    assert_eventually!(clients(&endpoint.first) == 0, "the connection to the old primary is kept");
    let before = logged(&endpoint.second);
    endpoint.lead_to("127.0.0.2");
    assert_eventually!(announce(5_000_002).await, "the name is not resolved again: {}", process.log());
    assert!(logged(&endpoint.second) > before);
    assert_eq!((clients(&endpoint.first), clients(&endpoint.second)), (0, 1));
}

/// A write reaches the demoted server before the check of each second does.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_to_a_demoted_server_ends_with_the_first_refused_write() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
    let endpoint = Endpoint::start(&dir);
    let file = config(&site.url()).redis_at(&endpoint.url()).users(|k| k.set("commit_window", "1s")).write(dir.path());
    let mut process = Process::start_with_hosts(dir.path(), &["serve", "--config", &file], &endpoint.hosts);
    let (data, _) = process.addresses();
    let http = Http::default();
    let announce =
        async |id: u32| http.send("PUT", &format!("http://{data}/v1/keys/users/{id}"), &[], "").await.status == 204;
    assert_eventually!(announce(5_000_000).await, "{}", process.log());
    command(&endpoint.second, &["REPLICAOF", "NO", "ONE"]);
    endpoint.lead_to("127.0.0.2");
    let before = process.log().matches("connected to Redis").count();
    command(&endpoint.first, &["REPLICAOF", "127.0.0.2", &endpoint.first.port().to_string()]);
    assert!(!announce(5_000_001).await, "a replica has acknowledged an announce");
    assert_eventually!(announce(5_000_002).await, "{}", process.log());
    assert!(process.log().matches("connected to Redis").count() > before);
    // The second one if the check of each second came between.
    let reasons = ["it answered READONLY", "it is a replica"];
    assert!(reasons.iter().any(|reason| process.log().contains(reason)), "{}", process.log());
    assert_eq!(clients(&endpoint.first), 0);
}
