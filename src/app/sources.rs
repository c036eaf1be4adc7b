//! The key sources of a keyspace, and what polls them.

use std::sync::Arc;

use anyhow::Context;

use crate::config::{Config, IncrementalConfig, KeyspaceConfig, SourceConfig, SourceKind};
use crate::keyspace::Keyspace;
use crate::metrics::KeyspaceMetrics;
use crate::poll::Poller;
use crate::source::{
    FileSource, HttpSource, Incremental, KeySource, Member, RedisSource, SourceError, SqlPolls, SqlSource, Union,
};

/// The keyspace's source, or the union of several.
pub(crate) fn source(keyspace: &KeyspaceConfig, config: &Config) -> anyhow::Result<Arc<dyn KeySource>> {
    let build = |source: &SourceConfig| -> Result<Arc<dyn KeySource>, SourceError> {
        Ok(match source.kind {
            SourceKind::Sql => Arc::new(SqlSource::new(source, &keyspace.backend.url)?),
            SourceKind::Http => Arc::new(HttpSource::new(source, config.server.max_key_bytes)?),
            SourceKind::File => Arc::new(FileSource::new(source, config.server.max_key_bytes)),
            SourceKind::Redis => Arc::new(RedisSource::new(source, config.redis.as_ref())?),
        })
    };
    let mut members = Vec::new();
    for (index, table) in keyspace.source.iter().enumerate() {
        let source = build(table).with_context(|| keyspace.source.key(index))?;
        members.push(Member { source, allow_empty: table.allow_empty });
    }
    // A source that is not in a list has no number in error messages.
    match members.pop_if(|_| !keyspace.source.is_list()) {
        Some(only) => Ok(only.source),
        None => Ok(Arc::new(Union::new(members))),
    }
}

/// Polls the keyspace's sources, if polling is configured.
pub(super) fn poller(
    keyspace: &Arc<Keyspace>,
    config: &KeyspaceConfig,
    metrics: &Arc<KeyspaceMetrics>,
) -> anyhow::Result<Option<Poller>> {
    let mut sources: Vec<(Arc<dyn Incremental>, IncrementalConfig)> = Vec::new();
    for (index, table) in config.source.iter().enumerate() {
        let polls = SqlPolls::new(table, &config.backend.url).with_context(|| config.source.key(index))?;
        if let (Some(polls), Some(settings)) = (polls, &table.incremental) {
            sources.push((Arc::new(polls), settings.clone()));
        }
    }
    Ok((!sources.is_empty()).then(|| Poller::new(Arc::clone(keyspace), sources, config, Arc::clone(metrics))))
}
