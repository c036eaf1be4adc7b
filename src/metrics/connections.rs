//! Open connections of the listeners.

use super::series::Gauge;
use super::{BufferMetrics, Registry};
use crate::words::{BufferRefusal, Listener};

/// Counts the open connections of one listener.
#[derive(Debug, Clone)]
pub struct OpenConnections {
    open: Gauge,
    buffers: BufferMetrics,
}

/// One of them, counted until dropped.
#[derive(Debug)]
pub struct OpenConnection<'a>(&'a Gauge);

impl OpenConnections {
    pub(super) fn all(registry: &Registry, buffers: &BufferMetrics) -> Vec<Self> {
        let of = |listener: &Listener| Self {
            open: registry.gauge("http_open_connections", "Open connections of a listener", &[("listener", listener.as_str())]),
            buffers: buffers.clone(),
        };
        Listener::ALL.iter().map(of).collect()
    }

    /// One was closed because its client did not take a response in time.
    pub fn slow_client(&self) {
        self.buffers.refused(BufferRefusal::SlowClient);
    }

    /// One more.
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
