//! What a connection is doing. Its timeouts and its eviction are decided from this.
//!
//! hyper's own header timeout does not fit. It runs while a kept-alive connection is idle, so client pools would lose
//! connections every few seconds. It does not run while the protocol's first bytes are read. And it sets a timer for
//! each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Context;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use super::pending_responses::PendingResponses;
use super::slot::{ConnectionSlot, IdleRank};

/// A client that reads nothing of a response for this long may be evicted when another connection needs the slot.
const STALL_LIMIT: Duration = Duration::from_secs(1);
/// No timestamp: no head is being read, or nothing is blocked.
const NONE: u64 = u64::MAX;

/// Times are milliseconds since the connection began.
///
/// All accesses are relaxed. Apart from the end of HTTP/2 requests and the start of the drain they come from the
/// connection's own task. They only say when to check again; no data is published through them.
#[derive(Debug)]
pub(super) struct Activity {
    started: Instant,
    /// Set by the listener when its drain begins.
    draining: Arc<AtomicBool>,
    /// Requests whose head has been read.
    begun: AtomicU64,
    /// Requests that have begun and are not answered yet.
    in_flight: AtomicUsize,
    last_read: AtomicU64,
    /// When the head that is being read began to arrive. A fresh connection owes its first head from the start.
    head_since: AtomicU64,
    /// Responses of the fast path wait for the client to read them.
    sends: AtomicBool,
    /// Since when the socket has not accepted all that was written.
    blocked_since: AtomicU64,
    /// HTTP/2 responses that the client has not read.
    pending: PendingResponses,
    /// Set after the first HTTP/2 request. HTTP/2 frames also arrive without a request (pings, window updates), so
    /// bytes don't mean that a head began.
    http2: AtomicBool,
    /// When the last request began or ended.
    last_request: AtomicU64,
    /// Handed to another connection once this one only waits for its client to close.
    slot: ConnectionSlot,
    /// `begun + 1` at the time when the listener requested the eviction; 0 if it has not.
    evict_at: AtomicU64,
    /// Wakes the connection's task when its eviction is requested.
    task: AtomicWaker,
    /// All requests are answered; what the client still sends is discarded.
    lingers: AtomicBool,
    /// The client flooded the connection with control frames.
    flooded: AtomicBool,
}

/// What the connection's timer finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing before this moment.
    At(Instant),
    /// A request head did not arrive in time.
    HeaderTimeout,
    /// No request arrived for too long.
    IdleTimeout,
    /// The client did not read a response in time.
    SendTimeout,
}

impl Due {
    /// The earlier of two deadlines. An expired send timeout comes first.
    pub(super) fn or_send_timeout(self, unsent: Self) -> Self {
        match (self, unsent) {
            (_, Self::SendTimeout) => Self::SendTimeout,
            (Self::At(one), Self::At(other)) => Self::At(one.min(other)),
            (due, _) => due,
        }
    }
}

impl Activity {
    pub(super) fn new(draining: Arc<AtomicBool>) -> Self {
        Self {
            started: Instant::now(),
            draining,
            begun: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            last_read: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            sends: AtomicBool::new(false),
            blocked_since: AtomicU64::new(NONE),
            pending: PendingResponses::default(),
            http2: AtomicBool::new(false),
            last_request: AtomicU64::new(0),
            slot: ConnectionSlot::default(),
            evict_at: AtomicU64::new(0),
            task: AtomicWaker::new(),
            lingers: AtomicBool::new(false),
            flooded: AtomicBool::new(false),
        }
    }

    /// Attaches the slot that the connection occupies.
    pub(super) fn with_slot(self, slot: ConnectionSlot) -> Self {
        Self { slot, ..self }
    }

    fn at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.started).as_millis()).unwrap_or(NONE - 1)
    }

    /// Records that bytes were read.
    pub(super) fn record_read(&self, now: Instant) {
        let now = self.at(now);
        self.last_read.store(now, Relaxed);
        let expects_head = self.in_flight.load(Relaxed) == 0 && !self.http2.load(Relaxed);
        if expects_head {
            self.head_begins(now);
        }
    }

    fn head_begins(&self, at: u64) {
        if self.head_since.load(Relaxed) == NONE {
            self.head_since.store(at, Relaxed);
        }
    }

    /// Records that a request head was read. The request is in flight until the guard is dropped.
    pub(super) fn begin_request(self: &Arc<Self>, http2: bool) -> InFlight {
        self.begun.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        self.head_since.store(NONE, Relaxed);
        self.last_request.store(self.last_read.load(Relaxed), Relaxed);
        if http2 {
            self.http2.store(true, Relaxed);
        }
        InFlight(Arc::clone(self))
    }

    /// Records a request that the fast path answered.
    pub(super) fn record_fast_answer(&self) {
        self.begun.fetch_add(1, Relaxed);
        self.head_since.store(NONE, Relaxed);
        self.last_request.store(self.last_read.load(Relaxed), Relaxed);
    }

    /// Part of a head has arrived: starts the timeout for the rest.
    pub(super) fn expect_rest_of_head(&self) {
        self.head_begins(self.at(Instant::now()));
    }

    /// Sets whether a response of the fast path waits for the client to read it.
    pub(super) fn set_sending(&self, waits: bool) {
        self.sends.store(waits, Relaxed);
        if waits {
            self.mark_blocked();
        } else {
            self.mark_flushed();
        }
    }

    /// The socket accepts no more at present.
    pub(super) fn mark_blocked(&self) {
        if self.blocked_since.load(Relaxed) == NONE {
            self.blocked_since.store(self.at(Instant::now()), Relaxed);
        }
    }

    /// The socket has accepted everything.
    pub(super) fn mark_flushed(&self) {
        if self.blocked_since.load(Relaxed) != NONE {
            self.blocked_since.store(NONE, Relaxed);
        }
    }

    /// HTTP/2 responses that the client has not read.
    pub(super) const fn pending_responses(&self) -> &PendingResponses {
        &self.pending
    }

    /// When the client must have read what waits for it, be it in the socket or in a response whose window is closed.
    pub(super) fn send_due(&self, now: Instant, send_timeout: Duration) -> Due {
        match self.stalled_since() {
            Some(since) if since + send_timeout <= now => Due::SendTimeout,
            Some(since) => Due::At(since + send_timeout),
            // A response that begins to wait right after this check is due no earlier.
            None => Due::At(now + send_timeout),
        }
    }

    /// Since when the client has not read what waits for it.
    fn stalled_since(&self) -> Option<Instant> {
        let blocked = self.blocked_since.load(Relaxed);
        let blocked = (blocked != NONE).then(|| self.started + Duration::from_millis(blocked));
        blocked.into_iter().chain(self.pending.oldest()).min()
    }

    /// See [`set_sending`](Self::set_sending).
    pub(super) fn is_sending(&self) -> bool {
        self.sends.load(Relaxed)
    }

    /// Whether the socket has not taken all that was written.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked_since.load(Relaxed) != NONE
    }

    /// Returns `None` if a request is in flight, a response is unsent, or the connection is closing and has no slot to
    /// free. Half a head is no request.
    pub(super) fn idle_rank(&self) -> Option<IdleRank> {
        if self.is_lingering() {
            return None;
        }
        // An HTTP/2 response may wait for its window without hyper or the socket showing it.
        if let Some(since) = self.stalled_since() {
            return (since.elapsed() >= STALL_LIMIT).then_some(IdleRank { stalled: true, was_used: true, since });
        }
        if self.has_requests() || self.is_sending() {
            return None;
        }
        let since = self.started + Duration::from_millis(self.last_request.load(Relaxed));
        Some(IdleRank { stalled: false, was_used: self.begun() > 0, since })
    }

    /// Time since the connection began.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Requests the eviction of this connection, because the listener has no free slot. Returns false if that was
    /// requested before.
    pub(super) fn request_eviction(&self) -> bool {
        let asked = self.evict_at.compare_exchange(0, self.begun() + 1, Relaxed, Relaxed).is_ok();
        self.task.wake();
        asked
    }

    /// Registers the task to wake when the eviction is requested.
    pub(super) fn register_waker(&self, cx: &Context<'_>) {
        self.task.register(cx.waker());
    }

    /// Whether an eviction was requested and the connection accepts it. It declines if a request has arrived since;
    /// then the listener chooses another connection.
    pub(super) fn accept_eviction(&self) -> bool {
        if self.evict_at.load(Relaxed) == 0 {
            return false;
        }
        let asked = self.evict_at.swap(0, Relaxed);
        let leaves = self.idle_rank().is_some() && self.begun() + 1 == asked;
        if !leaves {
            self.slot.decline_eviction();
        }
        leaves
    }

    /// Called when all requests are answered. Returns whether the connection may wait for its client to close, on a
    /// slot of its own kind.
    pub(super) fn try_linger(&self) -> bool {
        let may = self.slot.move_to_closing();
        self.lingers.store(may, Relaxed);
        may
    }

    /// Whether all requests are answered and only the client's close is awaited.
    pub(super) fn is_lingering(&self) -> bool {
        self.lingers.load(Relaxed)
    }

    /// Records that the client floods the connection with control frames.
    pub(super) fn mark_flooded(&self) {
        self.flooded.store(true, Relaxed);
    }

    /// See [`mark_flooded`](Self::mark_flooded).
    pub(super) fn was_flooded(&self) -> bool {
        self.flooded.load(Relaxed)
    }

    /// Whether a request is in flight.
    pub(super) fn has_requests(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    /// Whether HTTP/2 requests have arrived.
    pub(super) fn is_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    /// Unanswered requests of an HTTP/2 connection.
    pub(super) fn open_streams(&self) -> usize {
        if self.http2.load(Relaxed) { self.in_flight.load(Relaxed) } else { 0 }
    }

    /// Whether the listener's drain has begun.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Requests whose head has been read so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// What is due now, or when to check again. Without an `idle_timeout` the connection is never idle: this does not
    /// see whether a response is still being sent.
    pub(super) fn due(&self, now: Instant, header_timeout: Duration, idle_timeout: Option<Duration>) -> Due {
        let after = |since: u64, limit: Duration| self.started + Duration::from_millis(since) + limit;
        let head_since = self.head_since.load(Relaxed);
        if head_since != NONE {
            let at = after(head_since, header_timeout);
            return if at <= now { Due::HeaderTimeout } else { Due::At(at) };
        }
        // A head that begins right after this check is due no earlier than `header_timeout` from now, so check again by
        // then.
        let next_look = now + header_timeout;
        if self.in_flight.load(Relaxed) > 0 {
            return Due::At(next_look);
        }
        match idle_timeout.map(|limit| after(self.last_read.load(Relaxed), limit)) {
            Some(idle_at) if idle_at <= now => Due::IdleTimeout,
            Some(idle_at) => Due::At(idle_at.min(next_look)),
            None => Due::At(next_look),
        }
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

impl InFlight {
    /// Whether the connection ends after this response.
    pub(super) fn is_last(&self) -> bool {
        self.0.is_draining()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.last_request.store(self.0.at(Instant::now()), Relaxed);
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
