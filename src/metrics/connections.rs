//! Connections of the listeners.

use super::series::{Counter, Gauge};
use super::{BufferMetrics, Registry};
use crate::labels::{BufferRefusal, Listener};

/// Why a listener closed a connection that its client had kept open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// It was idle, and another connection needed its slot.
    Evicted,
    /// The client flooded it with HTTP/2 control frames.
    Flood,
}

impl CloseReason {
    const ALL: [Self; 2] = [Self::Evicted, Self::Flood];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Flood => "flood",
        }
    }
}

/// Counts the connections of one listener.
#[derive(Debug, Clone)]
pub struct OpenConnections {
    open: Gauge,
    max: Gauge,
    closed: [Counter; CloseReason::ALL.len()],
    buffers: BufferMetrics,
}

/// Counts an open connection until dropped.
#[derive(Debug)]
pub struct OpenConnection<'a>(&'a Gauge);

impl OpenConnections {
    pub(super) fn all(registry: &Registry, buffers: &BufferMetrics) -> Vec<Self> {
        let of = |listener: &Listener| {
            let listener = ("listener", listener.as_str());
            let closed = |reason: CloseReason| {
                let labels = [listener, ("reason", reason.as_str())];
                registry.counter(
                    "http_closed_connections_total",
                    "Connections that the listener closed and not the client",
                    &labels,
                )
            };
            Self {
                open: registry.gauge("http_open_connections", "Open connections of a listener", &[listener]),
                max: registry.gauge("http_max_connections", "Maximum of open connections of a listener", &[listener]),
                closed: CloseReason::ALL.map(closed),
                buffers: buffers.clone(),
            }
        };
        Listener::ALL.iter().map(of).collect()
    }

    /// Sets the cap.
    pub fn set_max(&self, connections: usize) {
        self.max.set(connections as f64);
    }

    /// Counts a connection that the listener closed.
    pub fn closed(&self, reason: CloseReason) {
        self.closed[reason as usize].increment(1);
    }

    /// Counts a connection that was closed because its client did not read a response in time.
    pub fn slow_client(&self) {
        self.buffers.refused(BufferRefusal::SlowClient);
    }

    /// Counts a connection as open.
    #[must_use]
    pub fn open(&self) -> OpenConnection<'_> {
        self.open.add(1.0);
        OpenConnection(&self.open)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.add(-1.0);
    }
}
