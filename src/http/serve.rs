//! The accept loop: a cap on connections, patience with accept errors, and a drain with a deadline.
//!
//! `axum::serve` never times out a half-sent header and knows no cap, so we accept ourselves.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto::Builder;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use super::activity::Activity;
use super::connection::{self, ConnectionEnd};
use super::fast_path::FastResponder;
use super::listener::{BoundListener, LocalAddr};
use super::slots::{ConnectionSlot, ConnectionSlots, MAX_CLOSING, max_closing};
use super::stream::Stream;
use crate::config::ServerConfig;
use crate::metrics::{CloseReason, OpenConnections};

/// Outlasts the idle timeout of common client pools (90 s at most), so that the client closes first and no request meets a closing socket.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Connections taken from the accept queue once the drain has begun: more than the queue holds means that clients keep coming.
const MAX_BACKLOG_AT_DRAIN: usize = 2048;
/// Connections cut at the deadline end within a poll; a task that blocks its thread is not waited for.
const FORCED_GRACE: Duration = Duration::from_secs(1);

/// What a listener grants its connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections open at once. For a further one the longest-idle one is closed; where none is idle, it waits.
    pub max_connections: usize,
    /// How long a request's head may take to arrive, from its first byte, or from the connect for a connection's first.
    pub header_timeout: Duration,
    /// How long a client may take to receive a response.
    pub send_timeout: Duration,
    /// How long a connection may be kept alive without a request.
    pub idle_timeout: Duration,
    /// How long requests in flight may go on after the shutdown signal.
    pub drain_timeout: Duration,
}

impl From<&ServerConfig> for ConnectionLimits {
    fn from(config: &ServerConfig) -> Self {
        Self {
            max_connections: config.max_connections,
            header_timeout: config.header_timeout,
            send_timeout: config.send_timeout,
            idle_timeout: IDLE_TIMEOUT,
            drain_timeout: config.drain_timeout,
        }
    }
}

impl ConnectionLimits {
    /// Most of what [`descriptors`](Self::descriptors) adds.
    pub const MAX_EXTRA_DESCRIPTORS: usize = MAX_CLOSING + 1;

    /// File descriptors that a listener of `max_connections` takes beside its own: also for connections that are closing, and for the one that waits for a place.
    #[must_use]
    pub fn descriptors(max_connections: usize) -> usize {
        max_connections + max_closing(max_connections) + 1
    }
}

/// How a listener ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that the drain deadline cut.
    pub forced: usize,
}

/// What a listener and its connections share.
pub(super) struct ServerState {
    pub(super) limits: ConnectionLimits,
    pub(super) protocol: Builder<TokioExecutor>,
    pub(super) responder: Option<Arc<FastResponder>>,
    pub(super) gauges: OpenConnections,
    /// Read at each answer, so apart from the token, whose reading takes a lock.
    pub(super) draining: Arc<AtomicBool>,
    pub(super) drain: CancellationToken,
    deadline: OnceLock<Instant>,
    open: AtomicUsize,
    forced: AtomicUsize,
}

impl ServerState {
    fn begin_drain(&self) -> Instant {
        let deadline = *self.deadline.get_or_init(|| Instant::now() + self.limits.drain_timeout);
        self.draining.store(true, Relaxed);
        self.drain.cancel();
        deadline
    }

    /// When the drain ends; set before `drain` is cancelled.
    pub(super) fn drain_deadline(&self) -> Instant {
        self.deadline.get().copied().unwrap_or_else(Instant::now)
    }
}

/// Serves connections until `shutdown`, then drains: takes those that wait in the accept queue, stops accepting, lets requests in flight
/// finish and idle connections close, and cuts what is left at the drain deadline.
///
/// The service must always be ready, as routers are; it is cloned once a connection. `gauges` shows how many are open.
pub async fn serve<S, B>(
    bound: BoundListener,
    service: S,
    limits: ConnectionLimits,
    gauges: OpenConnections,
    shutdown: CancellationToken,
) -> Drained
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    serve_all(bound, service, None, limits, gauges, shutdown).await
}

/// As [`serve`], but that the service is not asked for what `responder` answers. Whose answers are in one piece: hyper is taken to be done with one when it has
/// flushed it.
pub async fn serve_with_fast_path<S>(
    bound: BoundListener,
    service: S,
    responder: Arc<FastResponder>,
    limits: ConnectionLimits,
    gauges: OpenConnections,
    shutdown: CancellationToken,
) -> Drained
where
    S: Service<Request<Incoming>, Response = Response<Full<Bytes>>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    serve_all(bound, service, Some(responder), limits, gauges, shutdown).await
}

async fn serve_all<S, B>(
    bound: BoundListener,
    service: S,
    responder: Option<Arc<FastResponder>>,
    limits: ConnectionLimits,
    gauges: OpenConnections,
    shutdown: CancellationToken,
) -> Drained
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let server = Arc::new(ServerState {
        limits,
        protocol: connection::protocol(),
        responder,
        gauges: gauges.clone(),
        draining: Arc::new(AtomicBool::new(false)),
        drain: CancellationToken::new(),
        deadline: OnceLock::new(),
        open: AtomicUsize::new(0),
        forced: AtomicUsize::new(0),
    });
    gauges.set_max(limits.max_connections);
    let mut slots = ConnectionSlots::new(limits.max_connections);
    let connections = TaskTracker::new();
    let spawn = |stream: Stream, slot: ConnectionSlot| {
        let (server, service, gauges) = (Arc::clone(&server), service.clone(), gauges.clone());
        let activity = Arc::new(Activity::new(Arc::clone(&server.draining)).with_slot(slot));
        let entered = Arc::clone(&activity);
        connections.spawn(async move {
            let _open = (OpenGuard::new(&server.open), gauges.open());
            match connection::drive(stream, service, activity, &server).await {
                ConnectionEnd::Closed => {}
                ConnectionEnd::Evicted => gauges.closed(CloseReason::Evicted),
                ConnectionEnd::Flooded => gauges.closed(CloseReason::Flood),
                ConnectionEnd::Forced => _ = server.forced.fetch_add(1, Relaxed),
            }
        });
        entered
    };

    let waiting = accept_until(&bound, &mut slots, &shutdown, &spawn).await;
    let deadline = server.begin_drain();
    accept_backlog(&bound, waiting, &slots, deadline, &spawn).await;
    drop(bound);
    connections.close();
    // Connections end themselves at the deadline.
    let stuck = timeout_at(deadline + FORCED_GRACE, connections.wait()).await.is_err();
    let unfinished = if stuck { server.open.load(Relaxed) } else { 0 };
    Drained { forced: server.forced.load(Relaxed) + unfinished }
}

/// Counts a connection as open until dropped, also by a panic.
struct OpenGuard<'a>(&'a AtomicUsize);

impl<'a> OpenGuard<'a> {
    fn new(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Relaxed);
        Self(open)
    }
}

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A connection is accepted before it has a place, so that it is known that one is needed. Returns the one that had none as the shutdown began.
async fn accept_until(
    bound: &BoundListener,
    slots: &mut ConnectionSlots,
    shutdown: &CancellationToken,
    spawn: &impl Fn(Stream, ConnectionSlot) -> Arc<Activity>,
) -> Option<Stream> {
    let mut backoff = AcceptBackoff::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            accepted = bound.accept() => accepted,
        };
        match accepted {
            Ok(stream) => {
                backoff.reset();
                let slot = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Some(stream),
                    slot = slots.acquire() => slot,
                };
                slots.track(&spawn(stream, slot));
            }
            Err(error) => {
                let Some(pause) = backoff.pause(bound.local_addr(), &error) else { continue };
                // Others of this process may have taken the descriptors that were meant for this listener.
                let _ = slots.evict();
                tokio::select! {
                    () = shutdown.cancelled() => return None,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}

/// A client that connected before the signal gets its answer, although nobody had accepted it yet.
async fn accept_backlog(
    bound: &BoundListener,
    mut waiting: Option<Stream>,
    slots: &ConnectionSlots,
    deadline: Instant,
    spawn: &impl Fn(Stream, ConnectionSlot) -> Arc<Activity>,
) {
    for _ in 0..MAX_BACKLOG_AT_DRAIN {
        let Ok(Some(slot)) = timeout_at(deadline, slots.acquire_without_eviction()).await else { return };
        match waiting.take().map_or_else(|| bound.accept_waiting(), Ok) {
            Ok(stream) => _ = spawn(stream, slot),
            Err(error) if is_connection_error(&error) => {}
            Err(_) => return,
        }
    }
}

/// The connection died before it was accepted; the listener is well.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Errors of the listener itself, as when file descriptors run out. They last: a loop without pauses would burn a core and flood the log.
#[derive(Debug, Default)]
struct AcceptBackoff {
    pause: Option<Duration>,
    last_logged: Option<Instant>,
    suppressed: u64,
}

impl AcceptBackoff {
    const FIRST_PAUSE: Duration = Duration::from_millis(10);
    const MAX_PAUSE: Duration = Duration::from_secs(1);
    const LOG_EVERY: Duration = Duration::from_secs(10);

    fn reset(&mut self) {
        self.pause = None;
    }

    /// How long to wait; `None`: go on at once.
    fn pause(&mut self, addr: &LocalAddr, error: &io::Error) -> Option<Duration> {
        if is_connection_error(error) {
            return None;
        }
        let pause = self.pause.map_or(Self::FIRST_PAUSE, |p| (p * 2).min(Self::MAX_PAUSE));
        self.pause = Some(pause);
        if self.last_logged.is_none_or(|at| at.elapsed() >= Self::LOG_EVERY) {
            tracing::error!(listener = %addr, %error, suppressed = self.suppressed, "connections can't be accepted; trying again");
            self.last_logged = Some(Instant::now());
            self.suppressed = 0;
        } else {
            self.suppressed += 1;
        }
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_accept_errors_are_waited_out_and_logged_now_and_then() {
        let addr = LocalAddr::Unix("/run/data.sock".into());
        let no_descriptors = io::Error::from(rustix::io::Errno::MFILE);
        let mut backoff = AcceptBackoff::default();
        let pauses: Vec<u128> = (0..9).map(|_| backoff.pause(&addr, &no_descriptors).unwrap().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(backoff.suppressed, 8, "all but the first");
        backoff.reset();
        assert_eq!(backoff.pause(&addr, &no_descriptors), Some(AcceptBackoff::FIRST_PAUSE));
    }

    #[test]
    fn a_connection_that_died_in_the_queue_delays_no_other() {
        let addr = LocalAddr::Unix("/run/data.sock".into());
        let mut backoff = AcceptBackoff::default();
        for error in [rustix::io::Errno::CONNABORTED, rustix::io::Errno::INTR] {
            assert_eq!(backoff.pause(&addr, &error.into()), None);
        }
    }
}
