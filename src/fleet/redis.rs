//! [`RedisDeltaLog`]: one Redis Stream a keyspace.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::Script;

use super::entry::{self, Delta, EntryId, WriterId};
use super::log::{DeltaLog, LogError, Page};
use super::switch::{self, Switch};
use crate::config::EnforcementSetting;
use crate::redis::{LinkError, LogBirth, LogIdentity, RedisLink, Replicas};

/// Entries of one read: at 256 hashes each, 4 MiB.
const ENTRIES_A_READ: usize = 1000;

/// Appends the entries `ARGV[4..]` if the log is still the one with the identity `ARGV[1]`, keeps those of the last `ARGV[2]` milliseconds, and of those
/// no more than `ARGV[3]` bytes; returns the place of the last one. Where want of room takes entries, the floor under those that are left is noted.
const APPEND: &str = r"
local identity = redis.call('GET', KEYS[2])
if not identity or string.sub(identity, 1, 32) ~= ARGV[1] then return false end
local time = redis.call('TIME')
local oldest = string.format('%.0f-0', time[1] * 1000 - ARGV[2])
local id
for i = 4, #ARGV do id = redis.call('XADD', KEYS[1], 'MINID', '~', oldest, '*', 'd', ARGV[i]) end
if redis.call('MEMORY', 'USAGE', KEYS[1]) > tonumber(ARGV[3]) then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', math.floor(redis.call('XLEN', KEYS[1]) * 0.9))
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  redis.call('SET', KEYS[3], first and first[1] or id)
end
return id";

/// Stores the switch `ARGV[2]`, where there is a later one leaves it. With `ARGV[1] = 'new'` it is later than what is there, than serial `ARGV[3]`, and
/// than all others that this server's clock numbered; else it has that serial. Returns the serial. One of a form that can't be read stays.
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

/// What one page is made of, seen at one moment: identity, clock, last entry, entries ever made, floor, entries behind `ARGV[1]`, switch. There is no
/// identity at a replica, which may lack entries, nor at a server that was one since the connection was made: its history is another one then.
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
return {identity, time[1], time[2], last, made, redis.call('GET', KEYS[3]) or '0-0', entries, redis.call('GET', KEYS[4])}";

/// What [`READ`] answers.
type Answer = (Option<String>, u64, u64, String, u64, String, Vec<(String, Vec<Vec<u8>>)>, Option<String>);

/// How much a log keeps.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Entries of so long ago are kept.
    pub time: Duration,
    /// As far as they take no more than so many bytes.
    pub bytes: u64,
}

/// The log of one keyspace in a Redis Stream.
#[derive(Debug)]
pub struct RedisDeltaLog {
    link: Arc<RedisLink>,
    /// What it is appended to over.
    appends: Arc<RedisLink>,
    replicas: Option<Replicas>,
    stream: String,
    floor: String,
    switch: String,
    writer: WriterId,
    retention: Retention,
    append: Script,
    read: Script,
    tell: Script,
    /// The last entry of ours that was acknowledged, and in which log.
    previous: Mutex<Option<(LogIdentity, EntryId)>>,
}

impl RedisDeltaLog {
    /// The log of `keyspace` at the server that `link` connects to.
    #[must_use]
    pub fn new(link: Arc<RedisLink>, keyspace: &str, writer: WriterId, retention: Retention) -> Self {
        let [stream, floor, switch] = link.log_names(keyspace);
        let [append, read, tell] = [APPEND, READ, SWITCH].map(Script::new);
        Self {
            appends: Arc::clone(&link),
            link,
            replicas: None,
            stream,
            floor,
            switch,
            writer,
            retention,
            append,
            read,
            tell,
            previous: Mutex::default(),
        }
    }

    /// Appends over a connection of its own, and waits until so many replicas have what was appended, and the marks that were set over it before.
    #[must_use]
    pub fn appending_over(mut self, link: Arc<RedisLink>, replicas: Option<Replicas>) -> Self {
        (self.appends, self.replicas) = (link, replicas);
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
        let previous = self.previous.lock().filter(|(log, _)| *log == identity).map_or(EntryId::ZERO, |(_, id)| id);
        let mut append = self.append.key(&self.stream);
        append.key(call.log_name()).key(&self.floor).arg(identity.to_string());
        append.arg(u64::try_from(self.retention.time.as_millis()).unwrap_or(u64::MAX)).arg(self.retention.bytes);
        for delta in deltas {
            append.arg(entry::encode(self.writer, previous, delta));
        }
        let place: Option<String> = call.script(&append).await?;
        let id = place.ok_or(LogError::Replaced)?.parse().map_err(|()| strange("XADD"))?;
        // Also where too few replicas have it: readers of this server find it.
        *self.previous.lock() = Some((identity, id));
        if let Some(replicas) = &self.replicas {
            // Over the same connection, whose last write that is.
            replicas.acknowledge(&call).await?;
        }
        Ok((identity, id))
    }

    async fn read(&self, after: EntryId) -> Result<Page, LogError> {
        let call = self.link.call()?;
        let mut read = self.read.key(&self.stream);
        read.key(call.log_name()).key(&self.floor).key(&self.switch).arg(after.to_string()).arg(ENTRIES_A_READ);
        let (identity, seconds, micros, last, made, floor, found, switch): Answer = call.script(&read).await?;
        let birth: LogBirth = identity.ok_or(LogError::Replaced)?.parse().map_err(|()| strange("GET of the log identity"))?;
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
        Ok(Page {
            identity: birth.identity,
            born: birth.millis,
            now,
            last: id(&last)?,
            made,
            floor: id(&floor)?,
            entries,
            complete,
            switch,
        })
    }

    async fn switch(&self, setting: Option<EnforcementSetting>, known: u64) -> Result<Switch, LogError> {
        self.tell("new", setting, known).await
    }

    async fn restore_switch(&self, switch: Switch) -> Result<(), LogError> {
        self.tell("known", switch.setting, switch.serial).await.map(|_| ())
    }
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
