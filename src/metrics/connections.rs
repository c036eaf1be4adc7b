//! Open connections of the listeners.

use metrics::Gauge;

use super::Registry;
use crate::words::Listener;

/// Counts the open connections of one listener.
#[derive(Debug, Clone)]
pub struct OpenConnections(Gauge);

/// One of them, counted until dropped.
#[derive(Debug)]
pub struct OpenConnection<'a>(&'a Gauge);

impl OpenConnections {
    pub(super) fn all(registry: &Registry<'_>) -> Vec<Self> {
        let gauge = |listener: &Listener| {
            Self(registry.gauge("http_open_connections", "Open connections of a listener", None, &[("listener", listener.as_str())]))
        };
        Listener::ALL.iter().map(gauge).collect()
    }

    /// One more.
    #[must_use]
    pub fn open(&self) -> OpenConnection<'_> {
        self.0.increment(1.0);
        OpenConnection(&self.0)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
