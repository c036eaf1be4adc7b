//! All metrics: names, labels and buckets, as typed recorders whose handles are created once.
//!
//! Names begin with `bloomguard_`, except those of the process, which all Prometheus client libraries share. Units are
//! base units. Every enum series exists at 0 from the start. Labels come from enums and from the configured keyspace
//! names, never from a key.
//!
//! The exporter is our own by decision; `registry` says why.

mod breakers;
mod buffers;
mod connections;
mod filter_gauges;
mod gauges;
mod http;
mod keyspace;
mod log;
mod polls;
mod process;
mod rebuilds;
mod registry;
mod reloads;
mod series;
mod snapshots;
mod unprotected;

use std::fmt;
use std::sync::Arc;

pub use self::breakers::BreakerMetrics;
pub use self::buffers::BufferMetrics;
pub use self::connections::{CloseReason, OpenConnection, OpenConnections};
pub use self::gauges::Gauges;
pub use self::http::{HttpMetrics, Method, Route};
pub use self::keyspace::{Inflight, KeyspaceMetrics};
pub use self::log::LogMetrics;
pub use self::polls::PollMetrics;
pub use self::rebuilds::RebuildMetrics;
use self::registry::Registry;
pub use self::reloads::ReloadMetrics;
pub use self::snapshots::SnapshotMetrics;
pub use self::unprotected::UnprotectedMetrics;
use crate::labels::Listener;

/// Seconds, from 1 µs to 10 s.
const LATENCY_BUCKETS: &[f64] = &[
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];
/// Seconds, from 10 ms to an hour.
const REBUILD_BUCKETS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0];

/// The metrics of one process. No global state: each instance has a registry of its own.
pub struct Metrics {
    registry: Registry,
    /// Requests by route, method and code.
    pub http: HttpMetrics,
    /// Circuit breakers.
    pub breakers: Arc<BreakerMetrics>,
    /// Reloads of the configuration.
    pub reloads: ReloadMetrics,
    /// Bytes that requests and responses hold.
    pub buffers: BufferMetrics,
    connections: Vec<OpenConnections>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers the metrics of the process.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::default();
        registry
            .gauge("build_info", "Always 1; the label is the version", &[("version", env!("CARGO_PKG_VERSION"))])
            .set(1.0);
        let http = HttpMetrics::new(&registry);
        let breakers = Arc::new(BreakerMetrics::new(&registry));
        let reloads = ReloadMetrics::new(&registry);
        let buffers = BufferMetrics::new(&registry);
        let connections = OpenConnections::all(&registry, &buffers);
        Self { registry, http, breakers, reloads, buffers, connections }
    }

    /// Registers the metrics of one keyspace; call once per keyspace.
    #[must_use]
    pub fn keyspace(&self, name: &str) -> Arc<KeyspaceMetrics> {
        Arc::new(KeyspaceMetrics::new(&self.registry, name, Arc::clone(&self.breakers)))
    }

    /// The connection recorders of `listener`.
    #[must_use]
    pub fn connections(&self, listener: Listener) -> OpenConnections {
        self.connections[listener as usize].clone()
    }

    /// Renders everything in the Prometheus text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.registry.render() + &process::render()
    }
}
