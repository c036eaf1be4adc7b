//! Connects the admin listener with the reloader.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::config::Config;
use crate::http::{ActiveConfig, LiveTokens, ReloadHandle, ServedKeyspace};
use crate::metrics::Metrics;
use crate::reload::{LiveKeyspace, ReloadParts};

/// Reload requests that may be queued; further ones wait for room.
const MAX_WAITING_REQUESTS: usize = 4;

/// Creates both ends of the channel between the admin listener and the reloader.
pub(super) fn connect(
    config: &Config,
    keyspaces: &BTreeMap<String, ServedKeyspace>,
    metrics: &Arc<Metrics>,
    tokens: &Arc<LiveTokens>,
) -> (ReloadParts, ReloadHandle) {
    let (asking, requests) = mpsc::channel(MAX_WAITING_REQUESTS);
    let (active, shown) = watch::channel(Arc::new(ActiveConfig::at_start(config)));
    let parts = |served: &ServedKeyspace| LiveKeyspace {
        keyspace: Arc::clone(&served.keyspace),
        rebuild: served.rebuild.clone(),
    };
    let keyspaces = keyspaces.iter().map(|(name, served)| (name.clone(), parts(served))).collect();
    let parts = ReloadParts { keyspaces, metrics: Arc::clone(metrics), tokens: Arc::clone(tokens), requests, active };
    (parts, ReloadHandle { requests: asking, active: shown })
}
