//! What the handlers of all listeners share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::middleware::Hosts;
use super::reload_handle::ReloadHandle;
use super::tokens::{LiveTokens, Tokens};
use crate::buffers::Buffers;
use crate::config::{Listen, ServerConfig};
use crate::keyspace::Keyspace;
use crate::metrics::{KeyspaceMetrics, Metrics};
use crate::rebuild::RebuildHandle;

/// Well above the deadline of any lookup. It ends requests whose bodies trickle in, and anything else that does not end
/// by itself.
const DATA_DEADLINE: Duration = Duration::from_secs(60);
const TELEMETRY_DEADLINE: Duration = Duration::from_secs(10);
const ADMIN_DEADLINE: Duration = Duration::from_secs(30);

/// What the handlers of all listeners share.
#[derive(Debug)]
pub struct HttpContext {
    /// The guarded keyspaces, by name.
    pub keyspaces: BTreeMap<String, ServedKeyspace>,
    /// The metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Limits and switches.
    pub settings: HttpSettings,
    /// The budget of buffered bytes.
    pub buffers: Arc<Buffers>,
    /// The active configuration and its reloads; `None` if there is nothing to show or reload.
    pub config: Option<ReloadHandle>,
    draining: AtomicBool,
    started: Instant,
}

/// One keyspace as HTTP sees it.
#[derive(Debug)]
pub struct ServedKeyspace {
    /// Answers lookups, announces and deletes.
    pub keyspace: Arc<Keyspace>,
    /// Starts rebuilds.
    pub rebuild: RebuildHandle,
    /// Gauges are set before each scrape.
    pub metrics: Arc<KeyspaceMetrics>,
}

/// Limits and switches of the listeners.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Longest key in bytes, after percent-decoding.
    pub max_key_bytes: usize,
    /// Longest request body in bytes.
    pub max_body_bytes: u64,
    /// Keys of one batch.
    pub max_batch_keys: usize,
    /// Bytes of values in the answer to one batch.
    pub max_batch_bytes: u64,
    /// Most bytes that requests and responses hold together.
    pub max_buffered_bytes: u64,
    /// Whether `Cache-Control: no-cache` bypasses filter and caches.
    pub honor_no_cache: bool,
    /// Whether answers carry `Cache-Status`.
    pub cache_status: bool,
    /// Deadline of a whole request on the data listener. Longer than any keyspace's deadline, which bounds lookups.
    pub data_deadline: Duration,
    /// Deadline of a whole request on the telemetry listener.
    pub telemetry_deadline: Duration,
    /// Deadline of a whole request on the admin listener.
    pub admin_deadline: Duration,
    /// Whether lookups may bypass filter and caches.
    pub allow_bypass: bool,
    /// All tokens; a reload replaces them.
    pub tokens: Arc<LiveTokens>,
    /// Whether the data listener requires a token.
    pub data_requires_token: bool,
    /// Whether the admin listener requires a token; without one it requires a loopback `Host`.
    pub admin_requires_token: bool,
    /// Hosts that the data listener serves.
    pub(super) data_hosts: Hosts,
    /// Hosts that the telemetry listener serves.
    pub(super) telemetry_hosts: Hosts,
    /// Sites whose pages may change something through the data listener; `None` if browsers can't reach it.
    pub(super) data_origins: Option<Arc<[String]>>,
}

impl HttpSettings {
    /// Reads limits and tokens from a configuration.
    #[must_use]
    pub fn new(config: &ServerConfig) -> Self {
        let is_socket = matches!(config.listen.parse(), Ok(Listen::Unix(_)));
        Self {
            max_key_bytes: config.max_key_bytes,
            max_body_bytes: config.max_body_bytes,
            max_batch_keys: config.max_batch_keys,
            max_batch_bytes: config.max_batch_bytes,
            max_buffered_bytes: config.buffered_bytes(None).0,
            honor_no_cache: config.honor_no_cache,
            cache_status: config.cache_status,
            data_deadline: DATA_DEADLINE,
            telemetry_deadline: TELEMETRY_DEADLINE,
            admin_deadline: ADMIN_DEADLINE,
            allow_bypass: config.allow_bypass,
            tokens: Arc::new(LiveTokens::from_pointee(Tokens::of(config))),
            data_requires_token: config.data_requires_token(),
            admin_requires_token: config.admin_requires_token(),
            data_hosts: Hosts::for_listener(&config.listen, config),
            telemetry_hosts: Hosts::for_listener(&config.telemetry_listen, config),
            data_origins: (!is_socket).then(|| config.allowed_hosts.clone().into()),
        }
    }
}

impl HttpContext {
    /// Starts the uptime.
    #[must_use]
    pub fn new(keyspaces: BTreeMap<String, ServedKeyspace>, metrics: Arc<Metrics>, settings: HttpSettings) -> Self {
        let buffers = Buffers::new(settings.max_buffered_bytes, metrics.buffers.clone());
        Self {
            keyspaces,
            metrics,
            settings,
            buffers,
            config: None,
            draining: AtomicBool::new(false),
            started: Instant::now(),
        }
    }

    /// Adds the configuration that the admin listener shows.
    #[must_use]
    pub fn with_config(self, config: ReloadHandle) -> Self {
        Self { config: Some(config), ..self }
    }

    /// Uses a shared budget of buffered bytes.
    #[must_use]
    pub fn with_buffers(self, buffers: Arc<Buffers>) -> Self {
        Self { buffers, ..self }
    }

    /// Makes `/readyz` answer 503 from now on.
    pub fn begin_drain(&self) {
        // Relaxed: no other data is published through the flag.
        self.draining.store(true, Relaxed);
    }

    /// Whether the process is draining.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Time since the process started.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}
