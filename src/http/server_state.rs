//! What a listener's accept loop and its connections share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto::Builder;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fast_path::FastResponder;
use super::limits::ConnectionLimits;
use crate::metrics::OpenConnections;

/// Settings, counters and the drain state of one listener.
pub(super) struct ServerState {
    pub(super) limits: ConnectionLimits,
    pub(super) protocol: Builder<TokioExecutor>,
    pub(super) responder: Option<Arc<FastResponder>>,
    pub(super) gauges: OpenConnections,
    /// Read on every response, so it is kept apart from the token, whose check takes a lock.
    pub(super) draining: Arc<AtomicBool>,
    pub(super) drain: CancellationToken,
    deadline: OnceLock<Instant>,
    open: AtomicUsize,
    forced: AtomicUsize,
}

impl ServerState {
    pub(super) fn new(
        limits: ConnectionLimits,
        protocol: Builder<TokioExecutor>,
        responder: Option<Arc<FastResponder>>,
        gauges: OpenConnections,
    ) -> Self {
        Self {
            limits,
            protocol,
            responder,
            gauges,
            draining: Arc::new(AtomicBool::new(false)),
            drain: CancellationToken::new(),
            deadline: OnceLock::new(),
            open: AtomicUsize::new(0),
            forced: AtomicUsize::new(0),
        }
    }

    /// Begins the drain and returns its deadline.
    pub(super) fn begin_drain(&self) -> Instant {
        let deadline = *self.deadline.get_or_init(|| Instant::now() + self.limits.drain_timeout);
        self.draining.store(true, Relaxed);
        self.drain.cancel();
        deadline
    }

    /// The end of the drain; set before `drain` is cancelled.
    pub(super) fn drain_deadline(&self) -> Instant {
        self.deadline.get().copied().unwrap_or_else(Instant::now)
    }

    /// Counts a connection as open until the guard is dropped.
    pub(super) fn count_open(&self) -> OpenGuard<'_> {
        self.open.fetch_add(1, Relaxed);
        OpenGuard(&self.open)
    }

    /// Counts a connection that the drain deadline cut.
    pub(super) fn count_forced(&self) {
        self.forced.fetch_add(1, Relaxed);
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    pub(super) fn forced(&self) -> usize {
        self.forced.load(Relaxed)
    }
}

/// Counts a connection as open until dropped, also if its task panics.
pub(super) struct OpenGuard<'a>(&'a AtomicUsize);

impl Drop for OpenGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
