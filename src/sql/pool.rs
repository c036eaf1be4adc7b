//! Connections kept for lookups.
//!
//! Not the driver's own pool: that one retries a refused connection until the caller's time is up and then says only that time is
//! up, and it asks each connection whether it lives before every statement. Here a refusal is an answer at once, with its reason,
//! and a connection that died while idle shows on use; reads can be repeated on another.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{Connector, SqlError};

/// How long connecting may take, name resolution and handshakes included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections beyond the minimum are closed after so long without work.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// Connections are replaced at this age, so that a database that moved is found and server-side caches don't grow for ever.
const LIFETIME: Duration = Duration::from_secs(1800);
/// How often the minimum is restored and old connections are closed.
const MAINTENANCE: Duration = Duration::from_secs(5);

/// Bounds of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolSettings {
    /// Connections open at a time, those being opened included. At least 1.
    pub max: usize,
    /// Connections kept open.
    pub min: usize,
    /// How long an abandoned statement may keep its connection before that is closed.
    pub settle: Duration,
}

/// A bounded set of connections. Opens none until asked, except for the minimum, which it keeps open in the background.
#[derive(Debug)]
pub struct Pool<C: Connection + 'static>(Arc<Inner<C>>);

struct Inner<C: Connection> {
    connector: Box<dyn Connector<C>>,
    /// Where it connects, without password.
    target: String,
    settings: PoolSettings,
    /// One permit for each connection that is in use or being opened. A new one is opened only where none is idle, so `max`
    /// bounds the idle ones too.
    slots: Arc<Semaphore>,
    /// Last used last, so that those not needed grow old.
    idle: Mutex<Vec<Idle<C>>>,
}

/// Without the connector, which holds the password.
impl<C: Connection> fmt::Debug for Inner<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("target", &self.target).field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Idle<C> {
    connection: C,
    opened: Instant,
    since: Instant,
}

impl<C: Connection + 'static> Pool<C> {
    /// Connects to nothing yet. Must be called within a Tokio runtime, where it keeps up the minimum for as long as the pool lives.
    #[must_use]
    pub fn new(connector: impl Connector<C> + 'static, target: String, settings: PoolSettings) -> Self {
        let settings = PoolSettings { max: settings.max.max(1), min: settings.min.min(settings.max), ..settings };
        let slots = Arc::new(Semaphore::new(settings.max));
        let inner =
            Arc::new(Inner { connector: Box::new(connector), target, settings, slots, idle: Mutex::new(Vec::new()) });
        tokio::spawn(maintain(Arc::downgrade(&inner)));
        Self(inner)
    }

    /// A connection: an idle one, else a new one. Waits while `max` are in use; the caller sets the deadline.
    ///
    /// # Errors
    /// [`SqlError::Unavailable`] as soon as connecting failed.
    pub async fn acquire(&self) -> Result<Lease<C>, SqlError> {
        let closed = || SqlError::Unavailable(format!("{}: connecting was given up", self.0.target));
        let slot = Arc::clone(&self.0.slots).acquire_owned().await.map_err(|_| closed())?;
        if let Some(Idle { connection, opened, .. }) = self.0.pop_idle() {
            return Ok(Lease {
                connection: Some(connection),
                opened,
                reused: true,
                slot: Some(slot),
                pool: Arc::clone(&self.0),
            });
        }
        // In a task of its own: a handshake slower than one caller's deadline still ends as an idle connection for the next caller.
        let (answer, opened) = oneshot::channel();
        let pool = Arc::clone(&self.0);
        tokio::spawn(async move {
            let lease = pool.open(slot).await;
            if let Err(Ok(unwanted)) = answer.send(lease) {
                unwanted.finish();
            }
        });
        opened.await.map_err(|_| closed())?
    }

    /// Closes what is idle: one dead connection means that the others are as old as the outage that killed it.
    pub fn discard_idle(&self) {
        let idle = std::mem::take(&mut *self.0.idle.lock());
        drop(idle);
    }
}

impl<C: Connection + 'static> Inner<C> {
    fn pop_idle(&self) -> Option<Idle<C>> {
        let mut idle = self.idle.lock();
        while let Some(candidate) = idle.pop() {
            if candidate.opened.elapsed() < LIFETIME {
                return Some(candidate);
            }
        }
        None
    }

    async fn open(self: &Arc<Self>, slot: OwnedSemaphorePermit) -> Result<Lease<C>, SqlError> {
        let connection = tokio::time::timeout(CONNECT_TIMEOUT, self.connector.connect())
            .await
            .map_err(|_| SqlError::Unavailable(format!("{}: no connection within {CONNECT_TIMEOUT:?}", self.target)))?
            .map_err(|error| SqlError::connecting(&self.target, &error))?;
        let pool = Arc::clone(self);
        Ok(Lease { connection: Some(connection), opened: Instant::now(), reused: false, slot: Some(slot), pool })
    }

    fn put_idle(&self, connection: C, opened: Instant) {
        self.idle.lock().push(Idle { connection, opened, since: Instant::now() });
    }

    /// Takes out the connections that have served their time, the least used first.
    fn take_expired(&self) -> Vec<C> {
        let mut idle = self.idle.lock();
        let mut spare = idle.len().saturating_sub(self.settings.min);
        let mut kept = Vec::with_capacity(idle.len());
        let mut expired = Vec::new();
        for entry in idle.drain(..) {
            let unused = spare > 0 && entry.since.elapsed() > IDLE_TIMEOUT;
            if unused || entry.opened.elapsed() > LIFETIME {
                spare = spare.saturating_sub(1);
                expired.push(entry.connection);
            } else {
                kept.push(entry);
            }
        }
        *idle = kept;
        expired
    }

    /// A slot to open one more connection in, where there are fewer than the minimum.
    fn missing(&self) -> Option<OwnedSemaphorePermit> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let in_use = self.settings.max - self.slots.available_permits() - 1;
        (self.idle.lock().len() + in_use < self.settings.min).then_some(slot)
    }
}

/// Ends with the pool.
async fn maintain<C: Connection + 'static>(pool: Weak<Inner<C>>) {
    while let Some(inner) = pool.upgrade() {
        for connection in inner.take_expired() {
            if let Err(error) = connection.close().await {
                tracing::debug!(%error, "closing an idle database connection");
            }
        }
        while let Some(slot) = inner.missing() {
            match inner.open(slot).await {
                Ok(lease) => lease.finish(),
                // Whoever looks a key up meets the same error and reports it.
                Err(error) => {
                    tracing::debug!(%error, "keeping the minimum of database connections");
                    break;
                }
            }
        }
        drop(inner);
        tokio::time::sleep(MAINTENANCE).await;
    }
}

/// A connection in use.
///
/// End it by [`Lease::finish`] or [`Lease::discard`]. Dropped before that, in the middle of a statement, it keeps its slot
/// until the database has ended the statement: abandoning calls does not add to the database's load.
#[derive(Debug)]
pub struct Lease<C: Connection + 'static> {
    connection: Option<C>,
    opened: Instant,
    reused: bool,
    slot: Option<OwnedSemaphorePermit>,
    pool: Arc<Inner<C>>,
}

impl<C: Connection + 'static> Lease<C> {
    /// The connection.
    #[must_use]
    #[allow(clippy::expect_used, reason = "taken only by methods that consume the lease, and by drop")]
    pub fn connection(&mut self) -> &mut C {
        self.connection.as_mut().expect("a lease holds its connection until it ends")
    }

    /// It has been used before, and may have died since.
    #[must_use]
    pub const fn is_reused(&self) -> bool {
        self.reused
    }

    /// Gives the connection back, between two statements.
    pub fn finish(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.put_idle(connection, self.opened);
        }
    }

    /// Closes the connection.
    pub fn discard(mut self) {
        drop(self.connection.take());
    }
}

impl<C: Connection + 'static> Drop for Lease<C> {
    fn drop(&mut self) {
        let (Some(mut connection), slot) = (self.connection.take(), self.slot.take()) else { return };
        let (pool, opened) = (Arc::clone(&self.pool), self.opened);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Ok(Ok(())) = tokio::time::timeout(pool.settings.settle, connection.ping()).await {
                pool.put_idle(connection, opened);
            }
            drop(slot);
        });
    }
}
