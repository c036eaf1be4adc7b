//! A bounded set of connections to one place, kept for the next use: to a database, or to an origin of HTTP.
//!
//! Neither the pool of sqlx nor that of hyper-util, bb8 or deadpool. sqlx retries a refused connection until the
//! caller's time is up, and tests each connection before every use. hyper-util opens more connections than it keeps,
//! and does not say whether a broken one had been used before, which is what makes a retry right. All of them stop
//! opening a connection when its caller leaves, and free the slot of an abandoned statement while the database still
//! runs it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

/// Opens connections, and knows when one can't be used again.
pub trait Connect: Send + Sync + 'static {
    /// An open connection. Dropping it closes it.
    type Connection: Send + 'static;
    /// Why there is none.
    type Error: fmt::Display + Send + 'static;

    /// Opens a connection. Bounds the time that this takes.
    fn connect(&self) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// The error for a caller whose connection will never be opened because the runtime shuts down.
    fn interrupted(&self) -> Self::Error;

    /// Returns true if an idle connection is known to be closed, without asking the peer.
    fn is_closed(_connection: &Self::Connection) -> bool {
        false
    }

    /// Waits until a connection that was abandoned in the middle of a use can be used again, and returns it if it can.
    /// It keeps its slot meanwhile. `None`: it never can, and is closed at once.
    fn settle(&self, _connection: Self::Connection) -> Option<BoxFuture<'static, Option<Self::Connection>>> {
        None
    }

    /// Closes an idle connection in good order.
    fn close(connection: Self::Connection) -> impl Future<Output = ()> + Send {
        async { drop(connection) }
    }
}

/// Bounds of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolSettings {
    /// Connections open at a time, those being opened included. At least 1.
    pub max: usize,
    /// Connections kept open. Needs `maintenance`.
    pub min: usize,
    /// Connections beyond the minimum are closed after so long without use.
    pub idle_timeout: Duration,
    /// Connections are replaced at this age, so that a peer that moved is found.
    pub lifetime: Duration,
    /// How often a background task restores the minimum and closes what is old. `None`: no task; what is old is closed
    /// when another connection is returned.
    pub maintenance: Option<Duration>,
}

/// A bounded set of connections. Opens none until asked, except for the minimum, which it keeps open in the background.
pub struct Pool<C: Connect>(Arc<PoolState<C>>);

struct PoolState<C: Connect> {
    connect: C,
    settings: PoolSettings,
    /// One permit for each connection that is in use or being opened. A new one is opened only while none is idle, so
    /// `max` bounds the idle ones too.
    slots: Arc<Semaphore>,
    /// Last used last, so that those not needed grow old.
    idle: Mutex<Vec<IdleConnection<C::Connection>>>,
}

struct IdleConnection<T> {
    connection: T,
    opened: Instant,
    since: Instant,
}

impl<C: Connect> Clone for Pool<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Without `connect`, which may hold a password.
impl<C: Connect> fmt::Debug for Pool<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl<C: Connect> Pool<C> {
    /// Connects to nothing yet. With `maintenance` it must be called within a Tokio runtime; the task ends with the
    /// pool.
    #[must_use]
    pub fn new(connect: C, settings: PoolSettings) -> Self {
        let max = settings.max.clamp(1, Semaphore::MAX_PERMITS);
        let settings = PoolSettings { max, min: settings.min.min(max), ..settings };
        let slots = Arc::new(Semaphore::new(max));
        let inner = Arc::new(PoolState { connect, settings, slots, idle: Mutex::new(Vec::new()) });
        if let Some(interval) = settings.maintenance {
            tokio::spawn(maintain(Arc::downgrade(&inner), interval));
        }
        Self(inner)
    }

    /// What opens the connections.
    #[must_use]
    pub fn connect(&self) -> &C {
        &self.0.connect
    }

    /// A connection: an idle one, else a new one. Waits while `max` are in use; the caller sets the deadline.
    ///
    /// # Errors
    /// As soon as connecting failed.
    pub async fn acquire(&self) -> Result<PooledConnection<C>, C::Error> {
        let slot = Arc::clone(&self.0.slots).acquire_owned().await.map_err(|_| self.0.connect.interrupted())?;
        match self.0.pop_idle() {
            Some(IdleConnection { connection, opened, .. }) => Ok(self.0.lend(connection, opened, true, slot)),
            None => self.0.open_in_background(slot).await,
        }
    }

    /// Closes what is idle: one broken connection means that the others are as old as the outage that broke it.
    pub fn discard_idle(&self) {
        let idle = std::mem::take(&mut *self.0.idle.lock());
        drop(idle);
    }
}

impl<C: Connect> PoolState<C> {
    fn lend(
        self: &Arc<Self>,
        connection: C::Connection,
        opened: Instant,
        reused: bool,
        slot: OwnedSemaphorePermit,
    ) -> PooledConnection<C> {
        PooledConnection { connection: Some(connection), opened, reused, slot: Some(slot), pool: Arc::clone(self) }
    }

    /// In a task of its own: a handshake slower than one caller's deadline still ends as an idle connection for the
    /// next caller.
    async fn open_in_background(self: &Arc<Self>, slot: OwnedSemaphorePermit) -> Result<PooledConnection<C>, C::Error> {
        let (sender, opened) = oneshot::channel();
        let pool = Arc::clone(self);
        tokio::spawn(async move {
            let opened = pool.open(slot).await;
            if let Err(Ok(unwanted)) = sender.send(opened) {
                unwanted.finish();
            }
        });
        opened.await.map_err(|_| self.connect.interrupted())?
    }

    async fn open(self: &Arc<Self>, slot: OwnedSemaphorePermit) -> Result<PooledConnection<C>, C::Error> {
        let connection = self.connect.connect().await?;
        Ok(self.lend(connection, Instant::now(), false, slot))
    }

    fn is_expired(&self, idle: &IdleConnection<C::Connection>, is_spare: bool) -> bool {
        (is_spare && idle.since.elapsed() > self.settings.idle_timeout)
            || idle.opened.elapsed() > self.settings.lifetime
            || C::is_closed(&idle.connection)
    }

    fn pop_idle(&self) -> Option<IdleConnection<C::Connection>> {
        let mut idle = self.idle.lock();
        while let Some(candidate) = idle.pop() {
            if !self.is_expired(&candidate, idle.len() >= self.settings.min) {
                return Some(candidate);
            }
        }
        None
    }

    fn put_idle(&self, connection: C::Connection, opened: Instant) {
        if self.settings.maintenance.is_none() {
            drop(self.take_expired());
        }
        self.idle.lock().push(IdleConnection { connection, opened, since: Instant::now() });
    }

    /// Takes out the connections that have served their time, the least used first.
    fn take_expired(&self) -> Vec<C::Connection> {
        let mut idle = self.idle.lock();
        let mut spare = idle.len().saturating_sub(self.settings.min);
        let (mut kept, mut expired) = (Vec::with_capacity(idle.len()), Vec::new());
        for entry in idle.drain(..) {
            if self.is_expired(&entry, spare > 0) {
                spare = spare.saturating_sub(1);
                expired.push(entry.connection);
            } else {
                kept.push(entry);
            }
        }
        *idle = kept;
        expired
    }

    /// A slot to open one more connection in, if there are fewer than the minimum.
    fn missing(&self) -> Option<OwnedSemaphorePermit> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let in_use = self.settings.max - self.slots.available_permits() - 1;
        (self.idle.lock().len() + in_use < self.settings.min).then_some(slot)
    }
}

async fn maintain<C: Connect>(pool: Weak<PoolState<C>>, interval: Duration) {
    while let Some(inner) = pool.upgrade() {
        for connection in inner.take_expired() {
            C::close(connection).await;
        }
        while let Some(slot) = inner.missing() {
            match inner.open(slot).await {
                Ok(connection) => connection.finish(),
                // The next lookup meets the same error and reports it.
                Err(error) => {
                    tracing::debug!(%error, "can't restore the minimum of connections");
                    break;
                }
            }
        }
        drop(inner);
        tokio::time::sleep(interval).await;
    }
}

/// A connection in use.
///
/// End it by [`PooledConnection::finish`] or [`PooledConnection::discard`]. Dropped before that, in the middle of a
/// use, it is given to [`Connect::settle`].
pub struct PooledConnection<C: Connect> {
    connection: Option<C::Connection>,
    opened: Instant,
    reused: bool,
    slot: Option<OwnedSemaphorePermit>,
    pool: Arc<PoolState<C>>,
}

impl<C: Connect> fmt::Debug for PooledConnection<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledConnection").field("reused", &self.reused).finish_non_exhaustive()
    }
}

impl<C: Connect> PooledConnection<C> {
    /// The connection.
    #[must_use]
    #[allow(clippy::expect_used, reason = "taken only by methods that consume the guard, and by drop")]
    pub fn connection(&mut self) -> &mut C::Connection {
        self.connection.as_mut().expect("a guard holds its connection until it ends")
    }

    /// Returns true if it was idle before, and may have broken since.
    #[must_use]
    pub const fn is_reused(&self) -> bool {
        self.reused
    }

    /// Returns the connection to the pool, between two uses.
    pub fn finish(mut self) {
        if let Some(connection) = self.connection.take() {
            // The slot is free only after this: the caller that gets it finds the connection and opens no other.
            self.pool.put_idle(connection, self.opened);
        }
    }

    /// Closes the connection.
    pub fn discard(mut self) {
        drop(self.connection.take());
    }

    /// Closes the connection and opens another one in its slot.
    ///
    /// # Errors
    /// As for [`Pool::acquire`].
    pub async fn reopen(mut self) -> Result<Self, C::Error> {
        drop(self.connection.take());
        let slot = self.slot.take().ok_or_else(|| self.pool.connect.interrupted())?;
        self.pool.open_in_background(slot).await
    }
}

impl<C: Connect> Drop for PooledConnection<C> {
    fn drop(&mut self) {
        let (Some(connection), slot) = (self.connection.take(), self.slot.take()) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Some(settled) = self.pool.connect.settle(connection) else { return };
        let (pool, opened) = (Arc::clone(&self.pool), self.opened);
        runtime.spawn(async move {
            if let Some(connection) = settled.await {
                pool.put_idle(connection, opened);
            }
            drop(slot);
        });
    }
}

#[cfg(test)]
mod tests;
