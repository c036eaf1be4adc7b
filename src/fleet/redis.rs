//! [`RedisDeltaLog`]: one Redis Stream a keyspace.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::Script;

use super::entry::{self, Delta, EntryId, WriterId};
use super::log::{DeltaLog, LogError, LogPage};
use super::switch::{self, Switch};
use super::terms::{HOST_CHARS, Peer, Terms};
use crate::config::EnforcementSetting;
use crate::redis::{LinkError, LogBirth, LogIdentity, RedisLink, Replicas};

/// Entries of one read: at 256 hashes each, 4 MiB.
const ENTRIES_A_READ: usize = 1000;

/// Registered instances; the latest stay.
const REGISTERED: u32 = 1024;
/// An instance that was silent for longer than the log reaches back has no announces left to deliver. Doubled, as it
/// may be silent for that long.
const KEPT_LONGER: Duration = Duration::from_secs(60);

/// Appends the entries `ARGV[4..]` if the log still has the identity `ARGV[1]`. Keeps the entries of the last `ARGV[2]`
/// milliseconds, and of those at most `ARGV[3]` bytes. Returns the place of the last entry. If it trims for size, it
/// records the floor under the remaining entries.
const APPEND: &str = r"
local identity = redis.call('GET', KEYS[2])
if not identity or string.sub(identity, 1, 32) ~= ARGV[1] then return false end
local time = redis.call('TIME')
local oldest = string.format('%.0f-0', time[1] * 1000 - ARGV[2])
local id
local before = redis.call('XLEN', KEYS[1])
for i = 4, #ARGV do id = redis.call('XADD', KEYS[1], 'MINID', '~', oldest, '*', 'd', ARGV[i]) end
if redis.call('XLEN', KEYS[1]) < before + #ARGV - 3 then
  local floor = redis.call('GET', KEYS[3])
  if not floor or tonumber(string.match(floor, '^%d+')) < time[1] * 1000 - ARGV[2] then redis.call('SET', KEYS[3], oldest) end
end
if redis.call('MEMORY', 'USAGE', KEYS[1]) > tonumber(ARGV[3]) then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', math.floor(redis.call('XLEN', KEYS[1]) * 0.9))
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  redis.call('SET', KEYS[3], first and first[1] or id)
end
return id";

/// Records that `ARGV[1]` is alive now, and removes instances that were silent for `ARGV[2]` milliseconds, and all but
/// the latest `ARGV[3]`. `KEYS[2]` is the identity of the log, which must be `ARGV[4]`: registrations of one log say
/// nothing about another.
const REGISTER: &str = r"
local identity = redis.call('GET', KEYS[2])
if not identity or string.sub(identity, 1, 32) ~= ARGV[4] then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[2]))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -ARGV[3] - 1)
return 1";

/// Records that the namespace `ARGV[1]` announces rows of this backend. Returns all that did so within `ARGV[2]`
/// milliseconds.
const NAMESPACE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[2]))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -65)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZRANGE', KEYS[1], 0, -1)";

/// Stores the switch `ARGV[2]` unless there is a later one. With `ARGV[1] = 'new'` its serial is higher than the stored
/// one, than serial `ARGV[3]`, and than all others that this server's clock numbered; otherwise it keeps its serial.
/// Returns the serial. A switch in an unknown form stays.
const SWITCH: &str = r"
local held = redis.call('GET', KEYS[1])
local last = -1
if held then
  last = tonumber(string.match(held, '^v1 (%d+) '))
  if not last then return redis.error_reply('ERR the switch that is there has another form: is a later version of bloomguard writing it?') end
end
local serial = tonumber(ARGV[3])
if ARGV[1] == 'new' then
  local time = redis.call('TIME')
  serial = math.max(time[1] * 1000000 + time[2], serial + 1, last + 1)
end
local text = string.format('%.0f', serial)
if serial > last then redis.call('SET', KEYS[1], 'v1 ' .. text .. ' ' .. ARGV[2]) end
return text";

/// The contents of one page, read at one moment: identity, clock, last entry, entries ever appended, floor, entries
/// behind `ARGV[1]`, switch, and instances with other terms than `ARGV[3]`, with the time. A replica has no identity,
/// because it may lack entries. Neither has a server that was a replica since the connection was made: its history is
/// another one.
const READ: &str = r"
local replication, identity = redis.call('INFO', 'replication'), false
local history = string.match(replication, 'master_replid:(%x+)')
if string.find(replication, 'role:master', 1, true) and history and string.sub(KEYS[2], -#history) == history then
  identity = redis.call('GET', KEYS[2])
end
local time = redis.call('TIME')
local last, made, entries = '0-0', 0, {}
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  made = nil
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
    if info[i] == 'entries-added' then made = info[i + 1] end
  end
  if not made then return redis.error_reply('ERR the delta log needs Redis 7.0 or later') end
  entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
end
local peers, registered = {}, redis.call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES')
for i = 1, #registered, 2 do
  if string.match(registered[i], '^v1 %x+ (%x+ %x+ %d+ %d+)') ~= ARGV[3] then
    peers[#peers + 1] = {registered[i], string.format('%.0f', registered[i + 1])}
  end
end
return {identity, time[1], time[2], last, made, redis.call('GET', KEYS[3]) or '0-0', entries, redis.call('GET', KEYS[4]), peers}";

/// The answer of [`READ`].
type Answer =
    (Option<String>, u64, u64, String, u64, String, Vec<(String, Vec<Vec<u8>>)>, Option<String>, Vec<(Vec<u8>, u64)>);

/// How much a log keeps.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Entries are kept for this long.
    pub time: Duration,
    /// At most this many bytes of them.
    pub bytes: u64,
}

/// The log of one keyspace in a Redis Stream.
#[derive(Debug)]
pub struct RedisDeltaLog {
    link: Arc<RedisLink>,
    /// The connection for appends.
    appends: Arc<RedisLink>,
    replicas: Option<Replicas>,
    stream: String,
    floor: String,
    switch: String,
    register: String,
    host: String,
    /// What was registered last, and in which log.
    terms: Mutex<Option<(LogIdentity, Terms)>>,
    writer: WriterId,
    retention: Retention,
    append: Script,
    read: Script,
    tell: Script,
    note: Script,
    namespace: Option<Namespace>,
    /// Our last acknowledged entry, and its log.
    previous: Mutex<Option<(LogIdentity, EntryId)>>,
}

/// Namespaces that announce rows of the same backend.
#[derive(Debug)]
struct Namespace {
    name: String,
    /// The name of this log, which is unique among namespaces.
    ours: String,
    script: Script,
    others: Mutex<Vec<String>>,
}

impl RedisDeltaLog {
    /// The log of `keyspace` at the server that `link` connects to.
    #[must_use]
    pub fn new(link: Arc<RedisLink>, keyspace: &str, writer: WriterId, retention: Retention) -> Self {
        let [stream, floor, switch, register] = link.log_names(keyspace);
        let [append, read, tell, note] = [APPEND, READ, SWITCH, REGISTER].map(Script::new);
        Self {
            appends: Arc::clone(&link),
            link,
            replicas: None,
            stream,
            floor,
            switch,
            register,
            host: host(),
            terms: Mutex::default(),
            writer,
            retention,
            append,
            read,
            tell,
            note,
            namespace: None,
            previous: Mutex::default(),
        }
    }

    /// Appends over a connection of its own, and waits until this many replicas have the entries, and the marks that
    /// were set over it before.
    #[must_use]
    pub fn appending_over(mut self, link: Arc<RedisLink>, replicas: Option<Replicas>) -> Self {
        (self.appends, self.replicas) = (link, replicas);
        self
    }

    /// Looks for other namespaces at this server that announce rows of the same backend; `place` identifies the
    /// backend. Not in a cluster, whose node has only this keyspace.
    #[must_use]
    pub fn looking_for_others_over(mut self, place: u64) -> Self {
        let ours = self.stream.clone();
        self.namespace = (!ours.starts_with('{')).then(|| Namespace {
            name: format!("bloomguard-namespaces:{place:016x}"),
            ours,
            script: Script::new(NAMESPACE),
            others: Mutex::default(),
        });
        self
    }

    async fn tell(&self, how: &str, setting: Option<EnforcementSetting>, serial: u64) -> Result<Switch, LogError> {
        let mut tell = self.tell.key(&self.switch);
        tell.arg(how).arg(switch::words(setting)).arg(serial);
        let serial: String = self.link.call()?.script(&tell).await?;
        Ok(Switch { serial: serial.parse().map_err(|_| strange("SET of the switch"))?, setting })
    }
}

#[async_trait]
impl DeltaLog for RedisDeltaLog {
    fn retention(&self) -> Duration {
        self.retention.time
    }

    async fn append(&self, deltas: &[Delta], epoch: Option<u64>) -> Result<(LogIdentity, EntryId), LogError> {
        let call = self.appends.call()?;
        let identity = call.log_identity();
        if epoch.is_some_and(|epoch| epoch != call.epoch()) {
            return Err(LogError::Replaced);
        }
        // Before the first entry: a reader that begins goes back by the longest registered window.
        if let Some(terms) = deltas.iter().find_map(|delta| delta.terms)
            && *self.terms.lock() != Some((identity, terms))
        {
            self.register(&terms).await?;
            // Over another connection, which may lead to another server.
            if *self.terms.lock() != Some((identity, terms)) {
                return Err(LogError::Replaced);
            }
        }
        let previous = self.previous.lock().filter(|(log, _)| *log == identity).map_or(EntryId::ZERO, |(_, id)| id);
        let mut append = self.append.key(&self.stream);
        append.key(call.log_name()).key(&self.floor).arg(identity.to_string());
        append.arg(u64::try_from(self.retention.time.as_millis()).unwrap_or(u64::MAX)).arg(self.retention.bytes);
        for delta in deltas {
            append.arg(entry::encode(self.writer, previous, delta));
        }
        let place: Option<String> = call.script(&append).await?;
        let id = place.ok_or(LogError::Replaced)?.parse().map_err(|()| strange("XADD"))?;
        // Also with too few replicas: readers of this server find it.
        *self.previous.lock() = Some((identity, id));
        if let Some(replicas) = &self.replicas {
            // Over the same connection, because it was the last write there.
            replicas.acknowledge(&call).await?;
        }
        Ok((identity, id))
    }

    async fn read(&self, after: EntryId) -> Result<LogPage, LogError> {
        let call = self.link.call()?;
        let mut read = self.read.key(&self.stream);
        let ours = self.terms.lock().map_or_else(String::new, |(_, terms)| terms.suffix());
        read.key(call.log_name()).key(&self.floor).key(&self.switch).key(&self.register);
        read.arg(after.to_string()).arg(ENTRIES_A_READ).arg(ours);
        let (identity, seconds, micros, last, made, floor, found, switch, peers): Answer = call.script(&read).await?;
        let birth: LogBirth =
            identity.ok_or(LogError::Replaced)?.parse().map_err(|()| strange("GET of the log identity"))?;
        let id = |text: &str| text.parse::<EntryId>().map_err(|()| strange("XINFO"));
        let complete = found.len() < ENTRIES_A_READ;
        let mut entries = Vec::with_capacity(found.len());
        for (place, fields) in found {
            let place = id(&place)?;
            let entry = match fields.as_slice() {
                [name, bytes] if name == b"d" => entry::decode(place, bytes),
                _ => None,
            };
            entries.push((place, entry));
        }
        let now = seconds.saturating_mul(1000) + micros / 1000;
        let switch = switch.and_then(|text| text.parse().ok());
        // An earlier writer of this instance, from before a restart, counts as another instance.
        let peer = |(text, at): (Vec<u8>, u64)| {
            Peer::parse(&String::from_utf8_lossy(&text), Duration::from_millis(now.saturating_sub(at)))
        };
        let peers = peers.into_iter().filter_map(peer).filter(|peer| peer.writer != self.writer).collect();
        Ok(LogPage {
            identity: birth.identity,
            born: birth.millis,
            now,
            last: id(&last)?,
            made,
            floor: id(&floor)?,
            entries,
            complete,
            switch,
            peers,
        })
    }

    async fn register(&self, terms: &Terms) -> Result<(), LogError> {
        let call = self.link.call()?;
        let mut note = self.note.key(&self.register);
        note.key(call.log_name()).arg(Peer::text(self.writer, terms, &self.host));
        note.arg(millis(self.retention.time.saturating_add(KEPT_LONGER)))
            .arg(REGISTERED)
            .arg(call.log_identity().to_string());
        let noted: Option<u64> = call.script(&note).await?;
        noted.ok_or(LogError::Replaced)?;
        if let Some(namespace) = &self.namespace {
            let mut look = namespace.script.key(&namespace.name);
            look.arg(&namespace.ours).arg(millis(KEPT_LONGER));
            // A Redis user that may use only names with the prefix is rejected, and nothing is found.
            let found: Vec<String> = call.script(&look).await.unwrap_or_default();
            *namespace.others.lock() = found.into_iter().filter(|found| *found != namespace.ours).collect();
        }
        *self.terms.lock() = Some((call.log_identity(), *terms));
        Ok(())
    }

    fn other_namespaces(&self) -> Vec<String> {
        self.namespace.as_ref().map(|namespace| namespace.others.lock().clone()).unwrap_or_default()
    }

    async fn switch(&self, setting: Option<EnforcementSetting>, known: u64) -> Result<Switch, LogError> {
        self.tell("new", setting, known).await
    }

    async fn restore_switch(&self, switch: Switch) -> Result<(), LogError> {
        self.tell("known", switch.setting, switch.serial).await.map(|_| ())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The host's name, for people; instance ids are random.
fn host() -> String {
    let name =
        std::env::var("HOSTNAME").or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname")).unwrap_or_default();
    name.trim().chars().filter(|c| !c.is_control()).take(HOST_CHARS).collect()
}

fn strange(command: &str) -> LogError {
    LogError::Refused(format!("its answer to {command} can't be understood"))
}

impl From<LinkError> for LogError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Timeout(_) => Self::Timeout,
            LinkError::Unavailable(why) => Self::Unavailable(why),
            LinkError::Refused(why) => Self::Refused(why),
            LinkError::Unreplicated(few) => Self::Unreplicated(few),
        }
    }
}
