//! Open connections of the listeners.

use super::Registry;
use super::series::Gauge;
use crate::words::Listener;

/// Counts the open connections of one listener.
#[derive(Debug, Clone)]
pub struct OpenConnections(Gauge);

/// One of them, counted until dropped.
#[derive(Debug)]
pub struct OpenConnection<'a>(&'a Gauge);

impl OpenConnections {
    pub(super) fn all(registry: &Registry) -> Vec<Self> {
        let gauge = |listener: &Listener| {
            Self(registry.gauge("http_open_connections", "Open connections of a listener", &[("listener", listener.as_str())]))
        };
        Listener::ALL.iter().map(gauge).collect()
    }

    /// One more.
    #[must_use]
    pub fn open(&self) -> OpenConnection<'_> {
        self.0.add(1.0);
        OpenConnection(&self.0)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.add(-1.0);
    }
}
