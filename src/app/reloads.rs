//! Who is told when the configuration is read again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::config::Config;
use crate::http::{ActiveConfig, LiveTokens, ReloadHandle, ServedKeyspace};
use crate::metrics::Metrics;
use crate::reload::{LiveKeyspace, ReloadParts};

/// Requests for a reload that may wait for their turn before those who ask wait to be let in.
const MAX_WAITING_REQUESTS: usize = 4;

/// Both ends of what the admin listener and whoever reads the configuration again have to tell each other.
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
