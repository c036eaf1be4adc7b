//! A primary, its replica, and three sentinels that fail over between the two. A proxy leads to the server that they
//! name.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::FromRedisValue;
use tempfile::TempDir;

use crate::support::chaos_proxy::ChaosProxy;
use crate::support::redis::{RedisServer, free_port, spawn};

use super::wait::Wait;

/// What sentinels call the primary.
const SERVICE: &str = "main";
/// Of the servers, and of the sentinels.
const PASSWORDS: [&str; 2] = ["of-servers", "of-sentinels"];
/// A primary that does not answer for so many milliseconds is down: never, however slow the machine is, and soon, once
/// a failover is wanted.
const ASLEEP: &str = "1000000";
const AWAKE: &str = "500";
/// How long something is waited for that takes a moment.
const PATIENCE: Duration = Duration::from_secs(300);

pub struct RedisSentinels {
    pub servers: [RedisServer; 2],
    /// Before each server: the address that it is known by.
    pub faces: [ChaosProxy; 2],
    sentinels: Vec<Sentinel>,
}

/// One sentinel. Dropped, it is killed.
struct Sentinel {
    port: u16,
    process: Child,
    _directory: TempDir,
}

impl RedisSentinels {
    pub async fn start() -> Self {
        let faces = [face().await, face().await];
        let [first, second] = [0, 1].map(|n: usize| faces[n].port().to_string());
        let announced = |port: &str| {
            let common =
                ["--repl-diskless-sync-delay", "0", "--requirepass", PASSWORDS[0], "--masterauth", PASSWORDS[0]];
            [&common[..], &["--replica-announce-port", port]]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let (mut replica, primary) = (announced(&second), announced(&first));
        replica.extend(["--replicaof", "127.0.0.1", &first].map(str::to_owned));
        let servers = [primary, replica]
            .map(|arguments| RedisServer::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
        faces.iter().zip(&servers).for_each(|(face, server)| face.switch(server.port()));
        let mut started = Self { servers, faces, sentinels: Vec::new() };
        // Sentinels ask for replicas at once, and then every ten seconds.
        started.until("the replica follows", |it| {
            it.info(1).contains("master_link_status:up") && it.info(0).contains("state=online")
        });
        started.sentinels = (0..3).map(|_| Sentinel::start(&first)).collect();
        started.until("the sentinels know each other and the replica", |it| {
            it.sentinels.iter().all(|sentinel| {
                let facts = sentinel.facts();
                let at_least =
                    |name: &str, least: &str| facts.windows(2).any(|pair| pair[0] == name && pair[1].as_str() >= least);
                at_least("num-other-sentinels", "2") && at_least("num-slaves", "1")
            })
        });
        started
    }

    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        let [server, sentinel] = PASSWORDS;
        format!("redis+sentinel://:{server}@{}/{SERVICE}?sentinel_password={sentinel}", hosts.join(","))
    }

    /// Which server most sentinels call the primary; `None` while they don't agree.
    pub fn primary(&self) -> Option<usize> {
        let named: Vec<u16> = self.sentinels.iter().filter_map(Sentinel::named).collect();
        (0..2).find(|n| named.iter().filter(|port| **port == self.faces[*n].port()).count() > 1)
    }

    /// From now on a primary that does not answer is replaced; no other than one that a test has broken is to be.
    pub fn watch(&self, awake: bool) {
        for sentinel in &self.sentinels {
            let _: String =
                sentinel.command(&["SET", SERVICE, "down-after-milliseconds", if awake { AWAKE } else { ASLEEP }]);
        }
    }

    /// Tells every sentinel that another server is the primary, and that one too; the old one hears nothing of it.
    pub fn name_another(&self) {
        let other = self.faces[1].port().to_string();
        let _: String = redis::cmd("REPLICAOF").arg(&["NO", "ONE"]).query(&mut self.servers[1].connection()).unwrap();
        for sentinel in &self.sentinels {
            let _: String = sentinel.command(&["REMOVE", SERVICE]);
            let _: String = sentinel.command(&["MONITOR", SERVICE, "127.0.0.1", &other, "2"]);
            let _: String = sentinel.command(&["SET", SERVICE, "auth-pass", PASSWORDS[0]]);
        }
    }

    pub fn info(&self, server: usize) -> String {
        redis::cmd("INFO").arg("replication").query(&mut self.servers[server].connection()).unwrap()
    }

    fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        super::eventually_blocking(what, || condition(self));
    }
}

async fn face() -> ChaosProxy {
    // Until there is a server behind it.
    ChaosProxy::start(1, 1, |_| false).await
}

impl Sentinel {
    fn start(primary: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("bloomguard-sentinel-").tempdir().unwrap();
        let file = directory.path().join("sentinel.conf");
        for _ in 0..5 {
            let port = free_port();
            let settings = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nrequirepass {}\n\
                 sentinel monitor {SERVICE} 127.0.0.1 {primary} 2\nsentinel auth-pass {SERVICE} {}\n\
                 sentinel down-after-milliseconds {SERVICE} {ASLEEP}\nsentinel failover-timeout {SERVICE} 5000\n",
                directory.path().display(),
                PASSWORDS[1],
                PASSWORDS[0]
            );
            std::fs::write(&file, settings).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "redis-server"]).arg(&file).arg("--sentinel");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut process = spawn(command);
            let wait = Wait::within(PATIENCE);
            while process.try_wait().unwrap().is_none() && !wait.is_over() {
                if connection(port).is_ok() {
                    let sentinel = Self { port, process, _directory: directory };
                    // A busy machine stands still for longer than a sentinel would believe itself after.
                    let _: String = sentinel.command(&[
                        "DEBUG",
                        "tilt-trigger",
                        "60000",
                        "publish-period",
                        "200",
                        "ask-period",
                        "200",
                        "info-period",
                        "500",
                    ]);
                    return sentinel;
                }
                wait.pause_blocking();
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("the sentinel did not start");
    }

    fn facts(&self) -> Vec<String> {
        self.command(&["MASTER", SERVICE])
    }

    /// The port of whom it calls the primary.
    fn named(&self) -> Option<u16> {
        self.command::<Option<(String, u16)>>(&["GET-MASTER-ADDR-BY-NAME", SERVICE]).map(|(_, port)| port)
    }

    fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd("SENTINEL").arg(words).query(&mut connection(self.port).unwrap()).unwrap()
    }
}

fn connection(port: u16) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("redis://:{}@127.0.0.1:{port}", PASSWORDS[1]))?
        .get_connection_with_timeout(Duration::from_secs(5))
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
