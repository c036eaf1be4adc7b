//! Every metric: name, labels, unit and buckets, as typed recorders whose handles are made once. Nobody else calls `metrics::`.
//!
//! All names begin with `bloomguard_`, but for those of the process, which all client libraries share; units are base units; every enum series exists at 0 from the start; labels come from enums and
//! the keyspace names of the configuration, never from a key.

mod breakers;
mod connections;
mod filter_gauges;
mod gauges;
mod http;
mod keyspace;
mod polls;
mod process;
mod rebuilds;
mod reloads;
mod snapshots;

use std::fmt;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

pub use self::breakers::BreakerMetrics;
pub use self::connections::{OpenConnection, OpenConnections};
pub use self::gauges::Gauges;
pub use self::http::{HttpMetrics, Method, Route};
pub use self::keyspace::{Inflight, KeyspaceMetrics};
pub use self::polls::PollMetrics;
pub use self::rebuilds::RebuildMetrics;
pub use self::reloads::ReloadMetrics;
pub use self::snapshots::SnapshotMetrics;
use crate::words::Listener;

/// Seconds, from 1 µs to 10 s.
const LATENCY_BUCKETS: &[f64] = &[
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// Seconds, from 10 ms to an hour.
const REBUILD_BUCKETS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0];

/// The metrics of one process. No global state: each instance has a recorder of its own.
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// Requests by route, method and code.
    pub http: HttpMetrics,
    /// Circuit breakers.
    pub breakers: Arc<BreakerMetrics>,
    /// Reloads of the configuration.
    pub reloads: ReloadMetrics,
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
    /// Registers what belongs to the process.
    ///
    /// # Panics
    /// Never: the bucket lists are not empty.
    #[must_use]
    pub fn new() -> Self {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets) in [
            ("bloomguard_lookup_duration_seconds", LATENCY_BUCKETS),
            ("bloomguard_backend_request_duration_seconds", LATENCY_BUCKETS),
            ("bloomguard_rebuild_duration_seconds", REBUILD_BUCKETS),
            ("bloomguard_poll_duration_seconds", REBUILD_BUCKETS),
        ] {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.into()), buckets).expect("bucket lists are not empty");
        }
        let recorder = builder.build_recorder();
        let registry = Registry(&recorder);
        registry.gauge("build_info", "1, labelled with the version", None, &[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
        let http = HttpMetrics::new(&registry);
        let breakers = Arc::new(BreakerMetrics::new(&registry));
        let reloads = ReloadMetrics::new(&registry);
        let connections = OpenConnections::all(&registry);
        Self { handle: recorder.handle(), recorder, http, breakers, reloads, connections }
    }

    /// Registers the metrics of one keyspace; call once a keyspace.
    #[must_use]
    pub fn keyspace(&self, name: &str) -> Arc<KeyspaceMetrics> {
        Arc::new(KeyspaceMetrics::new(&Registry(&self.recorder), name, Arc::clone(&self.breakers)))
    }

    /// The open connections of `listener`.
    #[must_use]
    pub fn connections(&self, listener: Listener) -> OpenConnections {
        self.connections[listener as usize].clone()
    }

    /// Everything in the Prometheus text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.handle.render() + &process::render()
    }

    /// Moves histogram samples out of their buffers; call every few seconds.
    pub fn run_upkeep(&self) {
        self.handle.run_upkeep();
    }
}

/// Makes handles under our prefix, each described once.
struct Registry<'a>(&'a PrometheusRecorder);

static METADATA: Metadata<'static> = Metadata::new("bloomguard", Level::INFO, None);

impl Registry<'_> {
    fn key(name: &str, labels: &[(&'static str, &str)]) -> Key {
        let labels: Vec<Label> = labels.iter().map(|(k, v)| Label::new(*k, (*v).to_owned())).collect();
        Key::from_parts(format!("bloomguard_{name}"), labels)
    }

    fn counter(&self, name: &str, help: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        let key = Self::key(name, labels);
        self.0.describe_counter(key.name().to_owned().into(), None, help.into());
        let counter = self.0.register_counter(&key, &METADATA);
        counter.increment(0);
        counter
    }

    fn gauge(&self, name: &str, help: &'static str, unit: Option<Unit>, labels: &[(&'static str, &str)]) -> Gauge {
        let key = Self::key(name, labels);
        self.0.describe_gauge(key.name().to_owned().into(), unit, help.into());
        let gauge = self.0.register_gauge(&key, &METADATA);
        gauge.set(0.0);
        gauge
    }

    fn histogram(&self, name: &str, help: &'static str, labels: &[(&'static str, &str)]) -> Histogram {
        let key = Self::key(name, labels);
        self.0.describe_histogram(key.name().to_owned().into(), Some(Unit::Seconds), help.into());
        self.0.register_histogram(&key, &METADATA)
    }
}
