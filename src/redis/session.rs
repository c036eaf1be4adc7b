//! A connection together with what was read over it before its first use.

use std::sync::Arc;
use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionAddr, FromRedisValue, RedisResult, Script};

use super::clock::ServerClock;
use super::connection::{Connection, Dialer, ServerKind};
use super::error::ConnectError;
use super::identity::{LogBirth, LogIdentity};
use super::names::Names;
use super::place::ServerPlace;
use crate::breaker::Permit;
use crate::clock::Moment;
use crate::config::{RedisConfig, RedisPlace};

/// Connecting, the TLS handshake and the login may each take this long, even if a command's own timeout is shorter.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Commands that may wait to be written. Further callers wait for a place, within their timeout.
const WRITE_QUEUE: usize = 512;

/// One connection, the log identity and the eviction policy read over it, and the breaker's permit that its commands
/// report under.
///
/// They belong together: what was read over one connection is stored over the same one or not at all.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) epoch: u64,
    pub(super) permit: Permit,
    pub(super) server: ServerInfo,
    pub(super) clock: ServerClock,
    /// The server's address.
    pub(super) address: ConnectionAddr,
}

/// What Redis says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    pub(crate) identity: LogIdentity,
    /// Name of the key that holds `identity`.
    pub(super) log: String,
    /// `maxmemory_policy`; `None` if Redis does not send it.
    policy: Option<String>,
}

impl ServerInfo {
    /// Returns true if marks stay until they expire. Any other policy, and an unknown one, may evict them, and an
    /// absence stored afterwards could hide an announced key.
    pub(crate) fn keeps_marks(&self) -> bool {
        self.policy.as_deref() == Some("noeviction")
    }

    /// Returns true if what has no expiry stays: the log, its identity, the roster, the hash secret, the enforcement
    /// setting and the instances.
    pub(crate) fn keeps_log(&self) -> bool {
        self.keeps_marks() || self.policy.as_deref().is_some_and(|policy| policy.starts_with("volatile-"))
    }

    /// A warning for operators about a wrong policy: what it can cost, and the command that corrects it.
    pub(crate) fn warning(&self) -> Option<String> {
        if self.keeps_marks() {
            return None;
        }
        let policy = self.policy.as_deref().unwrap_or("unknown");
        let (evicted, cost) = if self.keeps_log() {
            ("values, marks and tombstones", "")
        } else {
            let cost = ", an evicted delta log costs every instance a scan, and each start takes a commit_window";
            ("anything of ours", cost)
        };
        Some(format!(
            "Redis' maxmemory-policy is {policy}: a full Redis may evict {evicted}. So no absences are stored in Redis, \
             an invalidated value may come back until it expires{cost}. Run: redis-cli CONFIG SET maxmemory-policy \
             noeviction; where CONFIG is forbidden, set maxmemory-policy in the service's parameters"
        ))
    }
}

/// A connection before its first use.
pub(super) struct NewSession {
    connection: Connection,
    pub(super) server: ServerInfo,
    clock: ServerClock,
    address: ConnectionAddr,
}

impl NewSession {
    pub(super) fn into_session(self, epoch: u64, permit: Permit) -> Session {
        let Self { connection, server, clock, address } = self;
        Session { connection, epoch, permit, server, clock, address }
    }
}

/// Opens sessions.
pub(super) struct Opener {
    pub(super) place: ServerPlace,
    dialer: Arc<Dialer>,
    pub(super) names: Names,
    /// Replaces an entry if it begins with the expected bytes, and the server still holds the log that they were read
    /// under.
    pub(super) compare_and_set: Script,
    /// Stores an entry if there is none, unless it is too late or the server holds another log by now.
    pub(super) set_in_time: Script,
    /// Sets marks over everything but values, or only over absences. An entry's fifth byte is its kind.
    pub(super) mark_over: Script,
    /// Releases a lease that is still held: deletes it, or leaves a note in its place.
    pub(super) release: Script,
    /// Makes a node of a cluster the owner of the keyspace.
    take_over: Script,
}

impl Opener {
    /// Reads the configuration and connects to nothing. In a cluster a connection serves one keyspace, and leads to the
    /// node that owns it. The error says why the configuration can never be used, and quotes none of its text.
    pub(super) fn new(config: &RedisConfig, keyspace: Option<&str>) -> Result<Self, String> {
        let place = RedisPlace::parse(&config.url)?;
        let names = match (&place, keyspace) {
            (RedisPlace::Cluster { .. }, Some(keyspace)) => Names::kept_together(&config.key_prefix, keyspace),
            (RedisPlace::Cluster { .. }, None) => return Err("a cluster has no connection for all keyspaces".into()),
            (RedisPlace::Server(_) | RedisPlace::Sentinels { .. }, _) => Names::new(&config.key_prefix),
        };
        let settings = AsyncConnectionConfig::new()
            .set_response_timeout(Some(config.timeout))
            .set_pipeline_buffer_size(WRITE_QUEUE);
        let dialer = Arc::new(Dialer::new(config, CONNECT_TIMEOUT.max(config.timeout), settings));
        let compare_and_set = Script::new(
            "local log = redis.call('GET', KEYS[2]) \
             if not log or string.sub(log, 1, 32) ~= ARGV[5] then return 0 end \
             if redis.call('GETRANGE', KEYS[1], 0, ARGV[4] - 1) ~= ARGV[1] then return 0 end \
             redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1",
        );
        let set_in_time = Script::new(
            "local log = redis.call('GET', KEYS[2]) \
             if not log or string.sub(log, 1, 32) ~= ARGV[4] then return 0 end \
             local time = redis.call('TIME') \
             if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[3]) then return 0 end \
             if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end return 0",
        );
        let mark_over = Script::new(
            "local set = 0 \
             for i, key in ipairs(KEYS) do \
               local kind = redis.call('GETRANGE', key, 4, 4) \
               if kind == 'A' or (ARGV[2] == '1' and kind ~= 'V') then \
                 redis.call('SET', key, ARGV[i + 2], 'PX', ARGV[1]) set = set + 1 \
               end \
             end return set",
        );
        let release = Script::new(
            "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
             if ARGV[2] == '' then return redis.call('DEL', KEYS[1]) end \
             redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) return 1",
        );
        let take_over = Script::new(
            "local before = redis.call('GET', KEYS[1]) \
             if before and before ~= KEYS[2] then redis.call('DEL', before) end \
             redis.call('SET', KEYS[1], KEYS[2])",
        );
        let owned = names.secret(keyspace.unwrap_or_default());
        let place = ServerPlace::new(place, owned, &dialer).map_err(|_| "it can't be connected to")?;
        Ok(Self { place, dialer, names, compare_and_set, set_in_time, mark_over, release, take_over })
    }

    /// Connects and reads what must be known before the first use.
    pub(super) async fn open(&self) -> Result<NewSession, ConnectError> {
        let place = self.place.find().await?;
        let mut connection = self.dialer.dial(&place, ServerKind::Redis).await?;
        let (server, clock) = self.introduce(&mut connection).await?;
        Ok(NewSession { connection, server, clock, address: place.addr().clone() })
    }

    async fn introduce(&self, connection: &mut Connection) -> Result<(ServerInfo, ServerClock), ConnectError> {
        let asked = Moment::now();
        let (server, replication, memory, time): (String, String, String, (u64, u64)) = redis::pipe()
            .cmd("INFO")
            .arg("server")
            .cmd("INFO")
            .arg("replication")
            .cmd("INFO")
            .arg("memory")
            .cmd("TIME")
            .query_async(connection)
            .await
            .map_err(|e| ConnectError::from_first_commands(&e))?;
        let clock = ServerClock::new(time, asked);
        refuse_replica(&replication)?;
        let run_id = field(&server, "run_id").ok_or(ConnectError::Strange("INFO server"))?;
        let log = self
            .names
            .log(run_id, field(&replication, "master_replid").ok_or(ConnectError::Strange("INFO replication"))?);
        self.take_over(connection, &log).await.map_err(|e| ConnectError::from_first_commands(&e))?;
        let fresh = LogBirth::text_of_new(time.0, time.1);
        let text: String =
            get_or_set(connection, &log, fresh.as_bytes()).await.map_err(|e| ConnectError::from_first_commands(&e))?;
        // Loads the scripts, so that each use is one round trip from the first one on.
        for script in [&self.compare_and_set, &self.set_in_time, &self.mark_over, &self.release] {
            script.load_async(connection).await.map_err(|e| ConnectError::from_first_commands(&e))?;
        }
        let birth: LogBirth = text.parse().map_err(|()| ConnectError::Strange("GET of the log identity"))?;
        Ok((
            ServerInfo { identity: birth.identity, log, policy: field(&memory, "maxmemory_policy").map(str::to_owned) },
            clock,
        ))
    }
}

impl Opener {
    /// In a cluster a log moves with its slot, and the name of its identity too. If it returns to a node that had it
    /// before, that node's copy lacks what other nodes lost in between. So the first connection to another node ends
    /// the identity at the previous one.
    async fn take_over(&self, connection: &mut Connection, log: &str) -> RedisResult<()> {
        if !matches!(self.place, ServerPlace::Cluster(_)) {
            return Ok(());
        }
        let owner = self.names.owner();
        // The read comes first: a full Redis runs no script that may write.
        if redis::cmd("GET").arg(&owner).query_async::<Option<String>>(connection).await?.as_deref() == Some(log) {
            return Ok(());
        }
        self.take_over.key(owner).key(log).invoke_async(connection).await
    }
}

impl Session {
    /// Checks that the server is still a primary with the same eviction policy, and was not wiped. Reads its time too.
    pub(super) async fn check(&self) -> RedisResult<Result<(), ConnectError>> {
        let asked = Moment::now();
        let (replication, memory, text, time): (String, String, Option<String>, (u64, u64)) = redis::pipe()
            .cmd("INFO")
            .arg("replication")
            .cmd("INFO")
            .arg("memory")
            .cmd("GET")
            .arg(&self.server.log)
            .cmd("TIME")
            .query_async(&mut self.connection.clone())
            .await?;
        self.clock.set(time, asked);
        Ok(self.compare(&replication, &memory, text.as_deref()))
    }

    fn compare(&self, replication: &str, memory: &str, log: Option<&str>) -> Result<(), ConnectError> {
        refuse_replica(replication)?;
        // Each promotion begins a new history, also if the server was a replica since the last check, and when a first
        // replica joins.
        if field(replication, "master_replid").is_none_or(|history| !self.server.log.ends_with(history)) {
            return Err(ConnectError::Changed("its replication history is a new one, as after a failover and back"));
        }
        if field(memory, "maxmemory_policy") != self.server.policy.as_deref() {
            return Err(ConnectError::Changed("its eviction policy changed"));
        }
        if log.and_then(|text| text.parse().ok()).map(|birth: LogBirth| birth.identity) != Some(self.server.identity) {
            return Err(ConnectError::Changed("its log identity is gone: Redis was wiped, and marks with it"));
        }
        Ok(())
    }
}

/// Reads `name`, which the first instance sets to `fresh`.
///
/// The read comes first: a full Redis rejects `SET NX` even if it would set nothing.
pub(super) async fn get_or_set<T: FromRedisValue>(
    connection: &mut Connection,
    name: &str,
    fresh: &[u8],
) -> RedisResult<T> {
    if let Some(present) = redis::cmd("GET").arg(name).query_async(connection).await? {
        return Ok(present);
    }
    let mut pipe = redis::pipe();
    pipe.cmd("SET").arg(name).arg(fresh).arg("NX").ignore().cmd("GET").arg(name);
    let (agreed,): (T,) = pipe.query_async(connection).await?;
    Ok(agreed)
}

/// A replica answers reads with what it has received: marks may be missing there.
fn refuse_replica(replication: &str) -> Result<(), ConnectError> {
    match field(replication, "role") {
        Some("master") => Ok(()),
        Some(_) => Err(ConnectError::Replica),
        None => Err(ConnectError::Strange("INFO replication")),
    }
}

/// The value of `name:value` in the text of an INFO command.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_info_are_found_whole() {
        let info = "# Server\r\nold_run_id:x\r\nrun_id:abc\r\nrun_id_2:y\r\n";
        assert_eq!(field(info, "run_id"), Some("abc"));
        assert_eq!(field(info, "run"), None);
    }

    #[test]
    fn only_noeviction_keeps_marks() {
        let server = |policy: Option<&str>| ServerInfo {
            identity: LogIdentity([0; 16]),
            log: String::new(),
            policy: policy.map(str::to_owned),
        };
        assert_eq!(server(Some("noeviction")).warning(), None);
        for policy in [Some("allkeys-lru"), Some("volatile-ttl"), None] {
            let warning = server(policy).warning().unwrap();
            assert!(warning.contains(policy.unwrap_or("unknown")), "{warning}");
            assert!(warning.contains("redis-cli CONFIG SET maxmemory-policy noeviction;"), "{warning}");
            assert_eq!(warning.contains("delta log"), policy != Some("volatile-ttl"), "{warning}");
        }
    }
}
