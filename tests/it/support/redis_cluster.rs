//! Three primaries of a cluster, and a replica of the one that owns the keyspace `users`.

use redis::{FromRedisValue, Value};

use crate::support::redis::{RedisServer, free_port};

/// What decides on the node of the keyspace.
const TAG: &str = "{bloomguard:users}";
const SLOTS: u16 = 16384;
const PASSWORD: &str = "of-nodes";

pub struct RedisCluster {
    /// The last one is the replica, at first.
    pub nodes: Vec<RedisServer>,
    bus: Vec<u16>,
}

impl RedisCluster {
    pub fn start() -> Self {
        let bus: Vec<u16> = (0..4).map(|_| free_port()).collect();
        let nodes = bus.iter().map(|port| {
            let (port, on) =
                (port.to_string(), ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-port"]);
            let more = ["--repl-diskless-sync-delay", "0", "--requirepass", PASSWORD, "--masterauth", PASSWORD];
            // A replica is not told of before its first ping. No replica takes over from a node that is only slow, as
            // all are on a busy machine.
            let calm = ["--repl-ping-replica-period", "1", "--cluster-replica-no-failover", "yes"];
            RedisServer::start_with(&[&on[..], &[&port], &more, &calm].concat())
        });
        let started = Self { nodes: nodes.collect(), bus };
        for n in 0..3_u16 {
            let (first, last) = (SLOTS / 3 * n, if n == 2 { SLOTS - 1 } else { SLOTS / 3 * (n + 1) - 1 });
            started.cluster::<String>(usize::from(n), &["SET-CONFIG-EPOCH", &(n + 1).to_string()]);
            started.cluster::<String>(usize::from(n), &["ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for n in 1..4 {
            let (port, bus) = (started.nodes[n].port().to_string(), started.bus[n].to_string());
            started.cluster::<String>(0, &["MEET", "127.0.0.1", &port, &bus]);
        }
        let are_met =
            |it: &Self, n| it.info(n).contains("cluster_state:ok") && it.info(n).contains("cluster_known_nodes:4");
        started.until("the nodes know each other", |it| (0..4).all(|n| are_met(it, n)));
        let owner = started.id(started.owner());
        started.cluster::<String>(3, &["REPLICATE", &owner]);
        started.until("the replica follows", |it| it.replication(3).contains("master_link_status:up"));
        // Only a replica that most primaries know as one can take over.
        started.until("all know the replica", |it| (0..4).all(|n| it.servers_of(n).len() == 2));
        started
    }

    /// Only one of the nodes, and one that does not own the keyspace: the others are found through it.
    pub fn url(&self) -> String {
        format!("redis+cluster://:{PASSWORD}@127.0.0.1:{}", self.nodes[self.stranger()].port())
    }

    /// The node that has the keyspace, as a node tells that is a primary and lives.
    pub fn owner(&self) -> usize {
        let told = (0..3).rev().find(|n| self.nodes[*n].is_running()).unwrap();
        let port = self.servers_of(told)[0];
        self.nodes.iter().position(|node| node.port() == port).unwrap()
    }

    /// Kills the node that has the keyspace; its replica takes over.
    pub fn kill_owner(&mut self) {
        let owner = self.owner();
        self.nodes[owner].kill();
        let mut connection = self.nodes[3].connection();
        let _: String =
            redis::cmd("CONFIG").arg(&["SET", "cluster-replica-no-failover", "no"]).query(&mut connection).unwrap();
    }

    /// Names in the node.
    pub fn names(&self, n: usize) -> Vec<String> {
        redis::cmd("KEYS").arg("*").query(&mut self.nodes[n].connection()).unwrap()
    }

    /// The log identity that the node tells as long as it has the keyspace.
    pub fn log_identity(&self, n: usize) -> String {
        let mut connection = self.nodes[n].connection();
        let server: String = redis::cmd("INFO").arg("server").query(&mut connection).unwrap();
        let run_id = server.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().trim();
        let names = self.names(n);
        let name = names
            .iter()
            .find(|name| name.contains(&format!(":log:{run_id}:")))
            .unwrap_or_else(|| panic!("{run_id}: {names:?}"));
        redis::cmd("GET").arg(name).query(&mut connection).unwrap()
    }

    /// Another primary than the one that has the keyspace.
    pub fn stranger(&self) -> usize {
        let owner = self.owner();
        (0..4).find(|n| *n != owner && self.replication(*n).contains("role:master")).unwrap()
    }

    /// Moves the keyspace's slot, with all that is in it, to another primary.
    pub fn reshard(&self, to: usize) {
        let (from, slot) = (self.owner(), self.slot().to_string());
        let (from_id, to_id) = (self.id(from), self.id(to));
        self.cluster::<String>(to, &["SETSLOT", &slot, "IMPORTING", &from_id]);
        self.cluster::<String>(from, &["SETSLOT", &slot, "MIGRATING", &to_id]);
        loop {
            let names: Vec<String> = self.cluster(from, &["GETKEYSINSLOT", &slot, "100"]);
            if names.is_empty() {
                break;
            }
            let mut migrate = redis::cmd("MIGRATE");
            migrate
                .arg("127.0.0.1")
                .arg(self.nodes[to].port())
                .arg("")
                .arg(0)
                .arg(60_000)
                .arg("REPLACE")
                .arg("AUTH")
                .arg(PASSWORD)
                .arg("KEYS")
                .arg(names);
            let _: String = migrate.query(&mut self.nodes[from].connection()).unwrap();
        }
        for n in [to, from] {
            self.cluster::<String>(n, &["SETSLOT", &slot, "NODE", &to_id]);
        }
    }

    fn slot(&self) -> u16 {
        self.cluster(0, &["KEYSLOT", TAG])
    }

    /// Ports of the servers that have the keyspace, as node `n` tells: the primary first.
    fn servers_of(&self, n: usize) -> Vec<u16> {
        let slot: u16 = self.cluster(n, &["KEYSLOT", TAG]);
        let ranges: Vec<Vec<Value>> = self.cluster(n, &["SLOTS"]);
        let number = |value: &Value| u16::from_redis_value(value.clone()).unwrap();
        let owned = ranges.iter().find(|range| (number(&range[0])..=number(&range[1])).contains(&slot)).unwrap();
        owned[2..].iter().map(|node| number(&Vec::<Value>::from_redis_value(node.clone()).unwrap()[1])).collect()
    }

    fn id(&self, n: usize) -> String {
        self.cluster(n, &["MYID"])
    }

    fn info(&self, n: usize) -> String {
        self.cluster(n, &["INFO"])
    }

    pub fn replication(&self, n: usize) -> String {
        redis::cmd("INFO").arg("replication").query(&mut self.nodes[n].connection()).unwrap()
    }

    fn cluster<T: FromRedisValue>(&self, n: usize, words: &[&str]) -> T {
        redis::cmd("CLUSTER").arg(words).query(&mut self.nodes[n].connection()).unwrap()
    }

    pub fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        super::eventually_blocking(what, || condition(self));
    }
}
