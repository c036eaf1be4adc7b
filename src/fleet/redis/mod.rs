//! [`RedisDeltaLog`]: one Redis Stream a keyspace.

mod roster;
mod scripts;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use redis::Script;

use self::roster::RosterAnswer;
use self::scripts::{APPEND, NAMESPACE, READ, REGISTER, ROSTER, SWITCH};
use super::entry::{self, Delta, EntryId, LogEntryKind};
use super::log::{DeltaLog, LogError, LogPage};
use super::roster::{Enrolled, Member, RosterChange};
use super::switch::{self, Switch};
use super::terms::{HOST_CHARS, Peer, Terms};
use super::writer::WriterId;
use crate::config::EnforcementSetting;
use crate::redis::{Call, LinkError, LogBirth, LogIdentity, RedisLink, Replicas};

/// Entries of one read: at 256 hashes each, 4 MiB.
const ENTRIES_A_READ: usize = 1000;

/// Registered instances; the latest stay.
const REGISTERED: u32 = 1024;
/// An instance that was silent for longer than the log reaches back has no announces left to deliver. Doubled, as it
/// may be silent for that long.
const KEPT_LONGER: Duration = Duration::from_secs(60);

/// The answer of [`READ`].
type Answer = (
    Option<String>,
    u64,
    u64,
    String,
    u64,
    String,
    Vec<(String, Vec<Vec<u8>>)>,
    Option<String>,
    Vec<(Vec<u8>, u64)>,
    Option<RosterAnswer>,
    u8,
);

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
    roster: String,
    /// Announces need a member of the roster that is admitted.
    enrols: bool,
    host: String,
    /// What was registered last, and in which log.
    terms: Mutex<Option<(LogIdentity, Terms)>>,
    writer: WriterId,
    retention: Retention,
    append: Script,
    read: Script,
    tell: Script,
    note: Script,
    enrol: Script,
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
        let [stream, floor, switch, register, roster] = link.log_names(keyspace);
        let [append, read, tell, note, enrol] = [APPEND, READ, SWITCH, REGISTER, ROSTER].map(Script::new);
        Self {
            appends: Arc::clone(&link),
            link,
            replicas: None,
            stream,
            floor,
            switch,
            register,
            roster,
            enrols: false,
            host: host(),
            terms: Mutex::default(),
            writer,
            retention,
            append,
            read,
            tell,
            note,
            enrol,
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

    /// Announces only while this instance is admitted in the roster.
    #[must_use]
    pub fn enrolling(self) -> Self {
        Self { enrols: true, ..self }
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
        let is_announce = deltas.iter().any(|delta| delta.kind == LogEntryKind::Announce);
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
        append.key(call.log_name()).key(&self.floor).key(&self.roster).arg(identity.to_string());
        append.arg(u64::try_from(self.retention.time.as_millis()).unwrap_or(u64::MAX)).arg(self.retention.bytes);
        append.arg(if self.enrols && is_announce { self.writer.to_string() } else { String::new() });
        for delta in deltas {
            append.arg(entry::encode(self.writer, previous, delta));
        }
        let place: Option<String> = call.script(&append).await?;
        let place = place.ok_or_else(|| replaced(&call))?;
        if place.is_empty() {
            return Err(LogError::NotAdmitted);
        }
        let id = place.parse().map_err(|()| strange("XADD"))?;
        // Also with too few replicas: readers of this server find it.
        *self.previous.lock() = Some((identity, id));
        if let Some(replicas) = &self.replicas {
            // Over the same connection, because it was the last write there.
            replicas.acknowledge(&call).await?;
        }
        Ok((identity, id))
    }

    async fn read(&self, after: EntryId, roster: Option<&str>) -> Result<LogPage, LogError> {
        let call = self.link.call()?;
        let mut read = self.read.key(&self.stream);
        let ours = self.terms.lock().map_or_else(String::new, |(_, terms)| terms.suffix());
        read.key(call.log_name()).key(&self.floor).key(&self.switch).key(&self.register).key(&self.roster);
        read.arg(after.to_string()).arg(ENTRIES_A_READ).arg(ours).arg(roster.unwrap_or_default());
        read.arg(self.writer.to_string());
        let (identity, seconds, micros, last, made, floor, found, switch, peers, roster, registered): Answer =
            call.script(&read).await?;
        let birth: LogBirth =
            identity.ok_or_else(|| replaced(&call))?.parse().map_err(|()| strange("GET of the log identity"))?;
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
            roster: roster.map(|found| roster::parse(found, now, call.server().keeps_marks())),
            is_registered: registered == 1,
            is_evictable: !call.server().keeps_log(),
        })
    }

    async fn change_roster(&self, change: RosterChange, epoch: Option<u64>) -> Result<Enrolled, LogError> {
        // Where announces wait for replicas, an enrolment does too.
        let call = self.appends.call()?;
        if epoch.is_some_and(|epoch| epoch != call.epoch()) {
            return Err(LogError::Replaced);
        }
        let log = call.log_identity();
        if matches!(change, RosterChange::Report(of) if of != log) {
            return Err(LogError::Replaced);
        }
        let mut enrol = self.enrol.key(&self.roster);
        enrol.key(call.log_name()).arg(log.to_string()).arg(self.writer.to_string());
        roster::add_arguments(&mut enrol, change, log);
        let member: Option<String> = call.script(&enrol).await?;
        let member = member.ok_or_else(|| replaced(&call))?;
        let is_replicated = match &self.replicas {
            Some(replicas) => replicas.acknowledge(&call).await.is_ok(),
            None => true,
        };
        Ok(Enrolled { log, member: Member::parse(&self.writer.to_string(), &member), is_replicated })
    }

    async fn register(&self, terms: &Terms) -> Result<(), LogError> {
        let call = self.link.call()?;
        let mut note = self.note.key(&self.register);
        note.key(call.log_name()).arg(Peer::text(self.writer, terms, &self.host, self.enrols));
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

/// The server holds another log than this connection: nothing that is sent over it counts any more.
fn replaced(call: &Call<'_>) -> LogError {
    call.lose_log();
    LogError::Replaced
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
