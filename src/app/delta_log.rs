//! What the instances of a fleet share about one keyspace through Redis.

use std::sync::Arc;

use super::links::RedisLinks;
use crate::config::{BackendKind, Config, Freshness, KeyspaceConfig};
use crate::fleet::{RedisDeltaLog, RedisScanPermit, Retention, RollCallTerms, ScanPermit, WriterId};
use crate::keyspace::LogParts;
use crate::redis::RedisLink;

/// The delta log of a keyspace, if instances share it.
pub(super) fn delta_log(
    name: &str,
    keyspace: &KeyspaceConfig,
    config: &Config,
    redis: Option<&RedisLinks>,
) -> Option<LogParts> {
    let (links, settings) = (redis?, config.redis.as_ref()?);
    if !keyspace.uses_delta_log(true) {
        return None;
    }
    let (links, replicas) = (links.of(name)?, links.replicas);
    let (writer, retention) =
        (WriterId::random(), Retention { time: settings.log.retention, bytes: settings.log.max_bytes });
    let log = RedisDeltaLog::new(Arc::clone(&links.main), name, writer, retention);
    let log = log.appending_over(Arc::clone(&links.announces), replicas);
    let roll_call = RollCallTerms::new(settings.roll_call, keyspace.commit_window, settings.max_lag)
        .filter(|_| keyspace.takes_announces() && keyspace.backend.kind != BackendKind::Set);
    let log = if roll_call.is_some() { log.enrolling() } else { log };
    // Other announcing namespaces only matter if freshness depends on announces.
    let is_announced = keyspace.freshness == Freshness::Announced;
    let log = Arc::new(if is_announced { log.looking_for_others_over(keyspace.place_fingerprint()) } else { log });
    Some(LogParts { log, writer, max_lag: settings.max_lag, roll_call, is_first_start: settings.first_start })
}

/// The permit that keeps instances from scanning at the same time, if they share Redis.
pub(super) fn scan_permit(name: &str, redis: Option<&Arc<RedisLink>>) -> Option<Arc<dyn ScanPermit>> {
    redis.map(|link| Arc::new(RedisScanPermit::new(Arc::clone(link), name)) as _)
}
