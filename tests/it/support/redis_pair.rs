//! Two Redis servers, one following the other, as instances see them: behind one address each, which leads to the
//! current primary.

use super::assert_eventually;
use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue;

use crate::support::chaos_proxy::{ChaosProxy, Weather};
use crate::support::redis::RedisServer;

/// A replica copies everything before it follows.
const LIMIT: Duration = Duration::from_secs(300);
const LOG: &str = "bloomguard:deltas:users";

pub struct RedisPair {
    servers: [RedisServer; 2],
    primary: usize,
    /// Between the two.
    replication: ChaosProxy,
    /// What each instance connects to.
    pub faces: Vec<Arc<ChaosProxy>>,
}

/// Whether a command reads the delta log.
fn is_log_read(command: &[&[u8]]) -> bool {
    let names = |end: &[u8]| command.iter().any(|word| word.ends_with(end));
    command[0] == b"EVALSHA" && names(b":deltas:users") && names(b":enforcement:users")
}

impl RedisPair {
    pub async fn start(instances: usize, seed: u64) -> Self {
        let servers = [0, 1].map(|_| RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]));
        let port = servers[0].port();
        let mut faces = Vec::new();
        for instance in 0..instances as u64 {
            faces.push(Arc::new(ChaosProxy::start(port, seed + 1 + instance, is_log_read).await));
        }
        let pair = Self { replication: ChaosProxy::start(port, seed, |_| false).await, servers, primary: 0, faces };
        pair.follow().await;
        pair
    }

    pub fn everywhere(&self, weather: Weather) {
        self.faces.iter().for_each(|face| face.set(weather));
    }

    /// Kills the primary by SIGKILL; it comes back with nothing.
    pub async fn kill_and_restart(&mut self, after: Duration) {
        let primary = self.primary;
        self.servers[primary].kill();
        // The time itself is the fault: how long Redis is down.
        tokio::time::sleep(after).await;
        self.servers[primary].restart();
        // What the replica has got is of the server that is gone.
        self.follow().await;
    }

    /// Until they change places, nothing reaches the replica any more.
    pub fn hold_replica_back(&self) {
        self.replication.set(Weather { black_hole: true, ..Weather::default() });
    }

    /// Waits until the replica lacks so many entries of the log.
    pub async fn replica_lacks(&self, count: u64) {
        assert_eventually!(
            within LIMIT => self.entries(self.primary) >= self.entries(1 - self.primary) + count,
            "nothing is announced"
        );
    }

    /// The primary dies, the replica takes over with what it has; the dead one comes back as its replica.
    pub async fn fail_over(&mut self) {
        let old = self.primary;
        self.servers[old].kill();
        self.promote();
        self.servers[old].restart();
        self.follow().await;
    }

    /// The two change places, and both live on.
    pub async fn change_places(&mut self) {
        // No client talks to the old one any more when it becomes a replica.
        self.promote();
        self.follow().await;
    }

    fn promote(&mut self) {
        let new = 1 - self.primary;
        self.command::<String>(new, &["REPLICAOF", "NO", "ONE"]);
        self.primary = new;
        self.faces.iter().for_each(|face| face.switch(self.servers[new].port()));
    }

    /// Waits until the other one has all that the primary has.
    async fn follow(&self) {
        self.replication.switch(self.servers[self.primary].port());
        self.replication.heal();
        let replica = 1 - self.primary;
        self.command::<String>(replica, &["REPLICAOF", "127.0.0.1", &self.replication.port().to_string()]);
        assert_eventually!(
            within LIMIT => self.command::<String>(replica, &["INFO", "replication"]).contains("master_link_status:up"),
            "the replica never follows"
        );
    }

    /// How many entries the log holds.
    fn entries(&self, server: usize) -> u64 {
        self.command(server, &["XLEN", LOG])
    }

    /// Waits until the replica has what the primary has under this name.
    pub async fn replicated(&self, name: &str) {
        assert_eventually!(
            {
                let [held, sent] = [1 - self.primary, self.primary]
                    .map(|server| self.command::<Option<Vec<u8>>>(server, &["GET", name]));
                held == sent && sent.is_some()
            },
            "{name} is not replicated"
        );
    }

    fn command<T: FromRedisValue>(&self, server: usize, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut self.servers[server].connection()).unwrap()
    }
}
