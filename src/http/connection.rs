//! The life of one connection: serve it, enforce its timeouts, drain it.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use axum::http::{Request, Response};
use bytes::Bytes;
use futures_util::poll;
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulConnection;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use tower::Service;

use super::BoxError;
use super::activity::{Activity, Due};
use super::fast_path::FastPath;
use super::server_state::ServerState;
use super::stream::Stream;
use super::tracked_service::TrackedService;
use super::tracked_stream::TrackedStream;

/// Longest request head. hyper limits the URI itself to 64 KiB.
const MAX_HEAD_BYTES: u32 = 128 << 10;
/// Send buffer of an HTTP/2 stream. It does not bound what waits, because hyper gets each response in one piece.
/// [`PendingResponses`](super::pending_responses::PendingResponses) and the budget of buffered bytes do.
const MAX_SEND_BUFFER_BYTES: usize = 64 << 10;
/// Time for the other requests of an HTTP/2 connection to finish after the client failed to read one response in time.
const LAST_STREAMS_GRACE: Duration = Duration::from_secs(5);
/// Pings detect HTTP/2 peers that vanished; the idle timeout detects HTTP/1 ones.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Open streams of an HTTP/2 client; further ones are refused.
const MAX_STREAMS: u32 = 200;
/// Streams that an HTTP/2 client may reset before they are processed (rapid reset), and resets that it may provoke in
/// all.
const MAX_EARLY_RESETS: usize = 20;
const MAX_RESETS: usize = 1024;
/// How long the drain waits for a connection without a request in flight. A client that is about to send its next
/// request gets an answer with `Connection: close` instead of a reset.
const LAST_REQUEST_GRACE: Duration = Duration::from_millis(500);

/// The protocol settings: HTTP/1.1, and HTTP/2 with prior knowledge.
pub(super) fn protocol() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // `Activity` enforces the header timeout.
        .header_read_timeout(None)
        .half_close(false)
        .max_buf_size(MAX_HEAD_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_EARLY_RESETS)
        .max_local_error_reset_streams(MAX_RESETS)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .max_header_list_size(MAX_HEAD_BYTES);
    builder
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// Closed by either side, or drained.
    Closed,
    /// Idle, and another connection needed its slot.
    Evicted,
    /// The client flooded it with control frames.
    Flooded,
    /// Cut at the drain deadline.
    Forced,
}

/// Serves one connection to its end.
pub(super) async fn drive<S, B>(
    stream: Stream,
    service: S,
    activity: Arc<Activity>,
    server: &ServerState,
) -> ConnectionEnd
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let observed = TrackedStream::new(stream, Arc::clone(&activity));
    let io = TokioIo::new(FastPath::new(observed, server.responder.clone()));
    let tracked = TrackedService::new(service, Arc::clone(&activity));
    let mut connection = pin!(server.protocol.serve_connection(io, tracked));
    // A child token: polling the listener's token would contend on one lock for all connections.
    let drain = server.drain.child_token();
    let mut drain_begun = pin!(drain.cancelled());
    let mut is_registered = false;
    let mut timer = pin!(sleep(server.limits.header_timeout));
    let mut closing = false;
    let mut deadline = None;
    let mut streams = 0;
    loop {
        // HTTP/2 streams are tasks, and each wakes this one when it answers. While others are in flight, streams that
        // are ready run first, so that their responses leave together. A stream that waits delays none.
        let served = poll_fn(|cx| {
            let before = std::mem::replace(&mut streams, activity.open_streams());
            if 0 < streams && streams < before && pin!(yield_now()).poll(cx).is_pending() {
                return Poll::Pending;
            }
            connection.as_mut().poll(cx)
        });
        // Polling the drain takes a lock, so it is polled once to register the waker. Its flag, and that of an
        // eviction, is set before this task is woken.
        let signal = poll_fn(|cx| {
            let first = !std::mem::replace(&mut is_registered, true);
            if first {
                activity.register_waker(cx);
            }
            if activity.accept_eviction() {
                Poll::Ready(ConnectionSignal::Evict)
            } else if first || server.draining.load(Relaxed) {
                drain_begun.as_mut().poll(cx).map(|()| ConnectionSignal::Drain)
            } else {
                Poll::Pending
            }
        });
        tokio::select! {
            biased;
            result = served => return log_end(result, &activity),
            () = timer.as_mut() => match due(&activity, server, Some(server.limits.idle_timeout)) {
                Due::At(at) => timer.as_mut().reset(at),
                Due::HeaderTimeout => return close_late_head(),
                // HTTP/2 clients learn from a GOAWAY frame that they need another connection.
                Due::SendTimeout if activity.is_http2() && deadline.is_none() => {
                    connection.as_mut().graceful_shutdown();
                    let grace = Instant::now() + LAST_STREAMS_GRACE.min(server.limits.send_timeout);
                    deadline = Some(grace);
                    timer.as_mut().reset(grace);
                }
                Due::SendTimeout => return close_slow_client(server),
                Due::IdleTimeout if closing => return ConnectionEnd::Closed,
                Due::IdleTimeout => {
                    connection.as_mut().graceful_shutdown();
                    closing = true;
                    timer.as_mut().reset(Instant::now() + server.limits.header_timeout);
                }
            },
            signal = signal => match signal {
                ConnectionSignal::Drain => return drain_connection(connection, &activity, server).await,
                ConnectionSignal::Evict => {
                    // HTTP/2 clients are sent a GOAWAY frame by this poll.
                    connection.as_mut().graceful_shutdown();
                    let _ = poll!(connection.as_mut());
                    return ConnectionEnd::Evicted;
                }
            },
        }
    }
}

/// What the listener asks of a connection.
enum ConnectionSignal {
    Evict,
    Drain,
}

/// Answers requests in flight and requests whose bytes have arrived. Ends by the drain deadline.
async fn drain_connection<C>(mut connection: Pin<&mut C>, activity: &Activity, server: &ServerState) -> ConnectionEnd
where
    C: GracefulConnection<Error: Into<BoxError>>,
{
    let deadline = server.drain_deadline();
    let begun = activity.begun();
    let mut grace = pin!(sleep_until(deadline.min(Instant::now() + LAST_REQUEST_GRACE)));
    let mut cut = pin!(sleep_until(deadline));
    // hyper closes a connection that has read no head at once, even if a request waits in the kernel's buffer or on the
    // wire. It also does not know of unsent responses of the fast path.
    let early = poll_fn(|cx| {
        if let Poll::Ready(result) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(result));
        }
        let hopes = grace.as_mut().poll(cx).is_pending() && activity.begun() == begun;
        let sends = activity.is_sending() && cut.as_mut().poll(cx).is_pending();
        if hopes || sends { Poll::Pending } else { Poll::Ready(None) }
    });
    if let Some(result) = early.await {
        return log_end(result, activity);
    }
    if activity.is_sending() {
        return ConnectionEnd::Forced;
    }
    connection.as_mut().graceful_shutdown();
    let mut timer = pin!(sleep_until(Instant::now()));
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => return log_end(result, activity),
            () = cut.as_mut() => {
                return if activity.is_lingering() { ConnectionEnd::Closed } else { ConnectionEnd::Forced };
            }
            () = timer.as_mut() => match due(activity, server, None) {
                Due::At(at) => timer.as_mut().reset(at),
                Due::HeaderTimeout | Due::IdleTimeout => return close_late_head(),
                Due::SendTimeout => return close_slow_client(server),
            },
        }
    }
}

fn due(activity: &Activity, server: &ServerState, idle_timeout: Option<Duration>) -> Due {
    let (now, limits) = (Instant::now(), server.limits);
    activity.due(now, limits.header_timeout, idle_timeout).or_send_timeout(activity.send_due(now, limits.send_timeout))
}

/// Peers break connections all the time, so this logs at debug level.
fn log_end<E: Into<BoxError>>(result: Result<(), E>, activity: &Activity) -> ConnectionEnd {
    if let Err(error) = result {
        let error: BoxError = error.into();
        tracing::debug!(error = %error, "connection broke");
    }
    if activity.was_flooded() { ConnectionEnd::Flooded } else { ConnectionEnd::Closed }
}

fn close_slow_client(server: &ServerState) -> ConnectionEnd {
    tracing::debug!("closing connection: send timeout");
    server.gauges.slow_client();
    ConnectionEnd::Closed
}

fn close_late_head() -> ConnectionEnd {
    tracing::debug!("closing connection: header timeout");
    ConnectionEnd::Closed
}
