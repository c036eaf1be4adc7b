//! Instances before one Redis scan a source one after another, and never wait for each other longer than a filter may.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::users::{USERS, config, site};
use crate::support::app::{Http, TestApp};
use crate::support::config::{Config, Source};
use crate::support::database::Site;
use crate::support::process::Process;
use crate::support::redis::RedisServer;
use crate::support::{assert_eventually, eventually};

/// A list of all users behind a gate. It counts the scans that wait at it or pass it.
struct SlowList {
    url: String,
    counts: Arc<Counts>,
    open: watch::Sender<bool>,
}

#[derive(Default)]
struct Counts {
    begun: AtomicUsize,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl SlowList {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (url, counts) = (format!("http://{}/keys", listener.local_addr().unwrap()), Arc::<Counts>::default());
        let (open, gate) = watch::channel(false);
        let of_server = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(list(stream, Arc::clone(&of_server), gate.clone()));
            }
        });
        Self { url, counts, open }
    }

    fn begun(&self) -> usize {
        self.counts.begun.load(SeqCst)
    }

    fn under_way(&self) -> usize {
        self.counts.under_way.load(SeqCst)
    }

    fn most(&self) -> usize {
        self.counts.most.load(SeqCst)
    }

    fn config(&self, site: &Site, redis: &RedisServer) -> Config {
        config(&site.url()).redis(redis).users(|k| {
            k.set("key", "integer")
                .set("filter.expected_keys", USERS)
                .source(Source::new("http").set("url", self.url.as_str()))
        })
    }
}

/// One answer a connection.
async fn list(mut stream: TcpStream, counts: Arc<Counts>, mut gate: watch::Receiver<bool>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let body: String = (1..=USERS).map(|id| format!("{id}\n")).collect();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    if head.starts_with(b"HEAD ") {
        let _ = stream.write_all(answer.as_bytes()).await;
        return;
    }
    counts.begun.fetch_add(1, SeqCst);
    counts.most.fetch_max(counts.under_way.fetch_add(1, SeqCst) + 1, SeqCst);
    let mut gone = [0; 1];
    tokio::select! {
        _ = gate.wait_for(|open| *open) => {}
        _ = stream.read(&mut gone) => {}
    }
    // Before the answer, which ends the scan and lets the next one begin.
    counts.under_way.fetch_sub(1, SeqCst);
    let _ = stream.write_all((answer + &body).as_bytes()).await;
}

/// A real process.
struct Instance {
    process: Process,
    telemetry: String,
    _dir: TempDir,
}

impl Instance {
    fn start(config: &Config) -> Self {
        let dir = TempDir::new().unwrap();
        let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
        let (_, telemetry) = process.addresses();
        Self { process, telemetry, _dir: dir }
    }

    async fn status(&self, http: &Http) -> serde_json::Value {
        http.get(&format!("http://{}/status", self.telemetry)).await.json()["keyspaces"]["users"].clone()
    }

    async fn waits(&self, http: &Http) -> bool {
        self.status(http).await["rebuild_waits"] == "another instance scans"
    }

    async fn enforces(&self, http: &Http) {
        let mut status;
        assert_eventually!(
            {
                status = self.status(http).await;
                status["state"] == "enforcing"
            },
            "{status}"
        );
    }
}

/// Which of them wait; returns once this number does.
async fn waiting(instances: &[Instance], http: &Http, count: usize) -> Vec<bool> {
    let mut waits;
    assert_eventually!(
        {
            waits = Vec::new();
            for instance in instances {
                waits.push(instance.waits(http).await);
            }
            waits.iter().filter(|waits| **waits).count() == count
        },
        "{count} should wait: {waits:?}"
    );
    waits
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_scan_one_after_another_also_when_one_is_killed_at_it() {
    let (redis, site, list) = (RedisServer::start(), site(Site::postgres()).await, SlowList::start().await);
    let (config, http) = (list.config(&site, &redis), Http::default());
    let mut instances: Vec<Instance> = (0..3).map(|_| Instance::start(&config)).collect();
    let waits = waiting(&instances, &http, 2).await;
    assert_eq!(list.under_way(), 1);
    let waiter = &instances[waits.iter().position(|waits| *waits).unwrap()];
    assert!(waiter.status(&http).await["reason"].as_str().unwrap().contains("another instance scans"));
    let scans = waits.iter().position(|waits| !*waits).unwrap();
    instances.remove(scans).process.signal("KILL");
    eventually("another one goes on", || list.begun() == 2).await;
    waiting(&instances, &http, 1).await;
    list.open.send(true).unwrap();
    for instance in &instances {
        instance.enforces(&http).await;
        assert!(!instance.waits(&http).await);
    }
    assert_eq!((list.most(), list.begun()), (1, 3));
}

/// One that scans, held at the gate, and one that waits for it.
async fn held_and_waiting(config: &Config, list: &SlowList) -> (TestApp, TestApp) {
    let first = TestApp::start(config).await;
    eventually("the first scans", || list.under_way() == 1).await;
    let second = TestApp::start(config).await;
    (first, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_need_not_wait_for_other_instances() {
    let (redis, site, list) = (RedisServer::start(), site(Site::sqlite()).await, SlowList::start().await);
    let (first, second) = held_and_waiting(&list.config(&site, &redis), &list).await;
    let path = "/admin/keyspaces/users/rebuild";
    let mut running;
    assert_eventually!(
        {
            running = second.admin("GET", path, "").await.json()["running"].clone();
            running["waits"] == "another instance scans"
        },
        "{running}"
    );
    let asked = second.admin("POST", path, "").await;
    assert_eq!((asked.status, &asked.json()["job"]), (202, &running["job"]), "the job that waited begins");
    eventually("both scan", || list.under_way() == 2).await;
    assert_eq!(second.admin("POST", path, "").await.status, 409);
    list.open.send(true).unwrap();
    first.wait_for("enforcing").await;
    second.wait_for("enforcing").await;
    assert_eq!(second.metric("bloomguard_rebuild_turns_total{keyspace=\"users\",outcome=\"overridden\"}").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_waits_for_its_turn_at_most_max_staleness() {
    let (redis, site, list) = (RedisServer::start(), site(Site::sqlite()).await, SlowList::start().await);
    let (first, second) =
        held_and_waiting(&list.config(&site, &redis).users(|k| k.set("max_staleness", "2s")), &list).await;
    eventually("the second scans although the first does", || list.under_way() == 2).await;
    assert_eq!(second.metric("bloomguard_rebuild_turns_total{keyspace=\"users\",outcome=\"timed_out\"}").await, 1.0);
    list.open.send(true).unwrap();
    first.wait_for("enforcing").await;
    second.wait_for("enforcing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_scans_go_on() {
    let (mut redis, site, list) = (RedisServer::start(), site(Site::sqlite()).await, SlowList::start().await);
    list.open.send(true).unwrap();
    let config =
        list.config(&site, &redis).users(|k| k.set("rebuild.schedule", "* * * * * *").set("rebuild.jitter", "0s"));
    let app = TestApp::enforcing(&config).await;
    redis.kill();
    let before = app.keyspace("users").generation();
    // One may have had its turn already.
    eventually("two more filters", || app.keyspace("users").generation() > before + 1).await;
    assert!(app.metric("bloomguard_rebuild_turns_total{keyspace=\"users\",outcome=\"unreachable\"}").await >= 1.0);
}
