//! The accept loop: a cap on connections, pauses after accept errors, and a drain with a deadline.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use super::BoxError;
use super::accept_backoff::{AcceptBackoff, is_connection_error};
use super::activity::Activity;
use super::connection::{self, ConnectionEnd};
use super::fast_path::FastResponder;
use super::limits::ConnectionLimits;
use super::listener::BoundListener;
use super::server_state::ServerState;
use super::slot::ConnectionSlot;
use super::slots::ConnectionSlots;
use super::stream::Stream;
use crate::metrics::{CloseReason, OpenConnections};

/// Connections accepted from the queue once the drain has begun. More than the queue holds means that clients keep
/// connecting.
const MAX_BACKLOG_AT_DRAIN: usize = 2048;
/// Connections cut at the deadline end within one poll. A task that blocks its thread gets no more time than this.
const FORCED_GRACE: Duration = Duration::from_secs(1);

/// How a listener ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that the drain deadline cut.
    pub forced: usize,
}

/// Serves connections until `shutdown`, then drains.
///
/// The drain accepts what waits in the accept queue, then stops accepting. Requests in flight finish, idle connections
/// close, and the drain deadline cuts the rest.
///
/// The service must always be ready, as routers are; it is cloned for each connection. `gauges` shows how many
/// connections are open.
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
    B::Error: Into<BoxError>,
{
    serve_all(bound, service, None, limits, gauges, shutdown).await
}

/// As [`serve`], with a fast path in front. The service must answer in one piece: a response counts as sent when hyper
/// has flushed it.
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
    B::Error: Into<BoxError>,
{
    let server = Arc::new(ServerState::new(limits, connection::protocol(), responder, gauges.clone()));
    gauges.set_max(limits.max_connections);
    let mut slots = ConnectionSlots::new(limits.max_connections);
    let connections = TaskTracker::new();
    let spawn = |stream: Stream, slot: ConnectionSlot| {
        let (server, service, gauges) = (Arc::clone(&server), service.clone(), gauges.clone());
        let activity = Arc::new(Activity::new(Arc::clone(&server.draining)).with_slot(slot));
        let entered = Arc::clone(&activity);
        connections.spawn(async move {
            let _open = (server.count_open(), gauges.open());
            match connection::drive(stream, service, activity, &server).await {
                ConnectionEnd::Closed => {}
                ConnectionEnd::Evicted => gauges.closed(CloseReason::Evicted),
                ConnectionEnd::Flooded => gauges.closed(CloseReason::Flood),
                ConnectionEnd::Forced => server.count_forced(),
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
    let unfinished = if stuck { server.open() } else { 0 };
    Drained { forced: server.forced() + unfinished }
}

/// Accepts before a slot is free, so that an eviction happens only if a slot is needed. Returns the connection that had
/// no slot when the shutdown began.
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
                // Other parts of the process may have taken the descriptors that were reserved for this listener.
                let _ = slots.evict();
                tokio::select! {
                    () = shutdown.cancelled() => return None,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        }
    }
}

/// Answers clients that connected before the signal but were not accepted yet.
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
