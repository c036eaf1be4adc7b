//! What one instance holds of the simulated Redis: its [`SharedCache`] and its [`DeltaLog`], with the comparisons that
//! the real ones make.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bloomguard::backend::Value;
use bloomguard::cache::{CacheError, CacheStatus, Entry, Mark, Seen, SharedCache, Stamp, Stored};
use bloomguard::config::EnforcementSetting;
use bloomguard::fleet::{Delta, DeltaLog, Enrolled, EntryId, LogError, LogPage, RosterChange, Switch, WriterId};
use bloomguard::key::Key;
use bloomguard::keyspace::Keyspace;
use bloomguard::redis::LogIdentity;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::network::{Link, Session};
use super::server::{Appended, Content, RETENTION, Slot};

/// Reads of the log begin at multiples of this. The reader's own pauses are spread over 80 to 120 ms by chance, which
/// no seed decides.
const STEP: Duration = Duration::from_millis(130);
const SECRET_AGAIN: Duration = Duration::from_secs(1);

pub struct SimulatedCache(pub Arc<Link>);

fn token(stamp: &Stamp) -> Option<u64> {
    stamp.head.as_ref().map(|head| u64::from_be_bytes(head.as_slice().try_into().unwrap()))
}

fn seen(session: &Session, slot: Option<Slot>) -> Seen {
    let head = slot.as_ref().map(|slot| slot.token.to_be_bytes().to_vec());
    let entry = match slot.map(|slot| slot.content) {
        Some(Content::Value(value)) => Entry::Value(value),
        Some(Content::Absence(log)) if log == session.identity => Entry::Absence,
        Some(Content::Mark(mark)) => Entry::Mark(mark),
        Some(Content::Absence(_)) | None => Entry::Nothing,
    };
    Seen { entry, stamp: Stamp { epoch: session.epoch, log: Some(session.identity), sent: 0, head }, expiry: None }
}

fn stored(stored: bool) -> Stored {
    if stored { Stored::Yes } else { Stored::No }
}

#[async_trait]
impl SharedCache for SimulatedCache {
    async fn get(&self, key: &Key) -> Result<Seen, CacheError> {
        let (session, key) = (self.0.session()?, key.clone());
        let slot = self.0.execute(&session, move |server| server.get(&key)).await?;
        Ok(seen(&session, slot))
    }

    async fn put_value(
        &self,
        key: &Key,
        value: &Value,
        ttl: Duration,
        _: Duration,
        seen: &Stamp,
    ) -> Result<Stored, CacheError> {
        let (session, key, value, token) = (self.0.session()?, key.clone(), value.clone(), token(seen));
        if session.epoch != seen.epoch {
            return Ok(Stored::No);
        }
        let identity = session.identity;
        self.0
            .execute(&session, move |server| server.put(identity, &key, Content::Value(value), ttl, token))
            .await
            .map(stored)
    }

    async fn put_absence(&self, key: &Key, ttl: Duration, seen: &Stamp) -> Result<Stored, CacheError> {
        let (session, key) = (self.0.session()?, key.clone());
        if session.epoch != seen.epoch || seen.head.is_some() {
            return Ok(Stored::No);
        }
        let identity = session.identity;
        self.0
            .execute(&session, move |server| server.put(identity, &key, Content::Absence(identity), ttl, None))
            .await
            .map(stored)
    }

    async fn put_mark(&self, key: &Key, mark: Mark, life: Duration) -> Result<(), CacheError> {
        let (session, key) = (self.0.session()?, key.clone());
        self.0.execute(&session, move |server| server.set(&key, Content::Mark(mark), life)).await
    }

    fn epoch(&self) -> Option<u64> {
        Some(*self.0.epochs().borrow())
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.0.epochs()
    }

    fn status(&self) -> CacheStatus {
        CacheStatus { kind: "redis", reachable: self.0.session().is_ok(), warning: None }
    }
}

pub struct SimulatedLog {
    link: Arc<Link>,
    writer: WriterId,
    previous: Mutex<Option<(LogIdentity, EntryId)>>,
    began: Instant,
    answered: Mutex<Instant>,
}

impl SimulatedLog {
    pub fn new(link: Arc<Link>, writer: WriterId, began: Instant) -> Self {
        Self { link, writer, previous: Mutex::default(), began, answered: Mutex::new(Instant::now()) }
    }

    fn session(&self) -> Result<Arc<Session>, LogError> {
        self.link.session().map_err(|error| log_error(&error))
    }

    async fn step(&self) {
        let (now, step) = (Instant::now(), STEP.as_millis());
        // A page that was not the last is followed by the next at once.
        if now - *self.answered.lock() > STEP / 2 {
            let steps = (now - self.began).as_millis().div_ceil(step);
            sleep_until(self.began + Duration::from_millis((steps * step) as u64)).await;
        }
    }
}

fn log_error(error: &CacheError) -> LogError {
    match error {
        CacheError::Timeout(_) => LogError::Timeout,
        other => LogError::Unavailable(other.to_string()),
    }
}

#[async_trait]
impl DeltaLog for SimulatedLog {
    fn retention(&self) -> Duration {
        RETENTION
    }

    async fn append(&self, deltas: &[Delta], epoch: Option<u64>) -> Result<(LogIdentity, EntryId), LogError> {
        let session = self.session()?;
        if epoch.is_some_and(|epoch| epoch != session.epoch) {
            return Err(LogError::Replaced);
        }
        let identity = session.identity;
        let previous = self.previous.lock().filter(|(log, _)| *log == identity).map_or(EntryId::ZERO, |(_, id)| id);
        let (writer, deltas) = (self.writer, deltas.to_vec());
        let append = self.link.execute(&session, move |server| server.append(identity, writer, previous, &deltas));
        let id = match append.await.map_err(|error| log_error(&error))? {
            Appended::At(id) => id,
            Appended::NotAdmitted => return Err(LogError::NotAdmitted),
            Appended::OtherLog => return Err(LogError::Replaced),
        };
        *self.previous.lock() = Some((identity, id));
        Ok((identity, id))
    }

    async fn read(&self, after: EntryId, _: Option<&str>) -> Result<LogPage, LogError> {
        self.step().await;
        let page = match self.session() {
            Ok(session) => {
                self.link.execute(&session, move |server| server.read(after)).await.map_err(|error| log_error(&error))
            }
            Err(error) => Err(error),
        };
        *self.answered.lock() = Instant::now();
        page?.ok_or(LogError::Replaced)
    }

    async fn change_roster(&self, change: RosterChange, epoch: Option<u64>) -> Result<Enrolled, LogError> {
        let session = self.session()?;
        if epoch.is_some_and(|epoch| epoch != session.epoch) {
            return Err(LogError::Replaced);
        }
        let (identity, writer) = (session.identity, self.writer);
        if matches!(change, RosterChange::Report(of) if of != identity) {
            return Err(LogError::Replaced);
        }
        let changed = self.link.execute(&session, move |server| server.change_roster(identity, writer, change));
        changed.await.map_err(|error| log_error(&error))?.ok_or(LogError::Replaced)
    }

    async fn switch(&self, _: Option<EnforcementSetting>, _: u64) -> Result<Switch, LogError> {
        Err(LogError::Timeout)
    }

    async fn restore_switch(&self, _: Switch) -> Result<(), LogError> {
        Err(LogError::Timeout)
    }
}

/// As the composition root does it: after each connect, and every second.
pub async fn agree_on_secret(keyspace: Arc<Keyspace>, link: Arc<Link>) {
    let mut epochs = link.epochs();
    loop {
        epochs.mark_unchanged();
        let proposal = keyspace.proposed_secret();
        if let Ok(session) = link.session()
            && let Ok(secret) = link.execute(&session, move |server| server.secret(proposal)).await
        {
            keyspace.agree_on_secret(secret);
        }
        if timeout(SECRET_AGAIN, epochs.changed()).await.is_ok_and(|changed| changed.is_err()) {
            sleep(SECRET_AGAIN).await;
        }
    }
}
