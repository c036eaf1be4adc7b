//! Divides the file descriptors: first what the process itself needs, then the telemetry and admin listeners; the data
//! listener gets the rest.

use rustix::process::{Resource, getrlimit};

use crate::config::{BackendKind, Config, KeyspaceConfig, RedisPlace, SourceConfig, SourceKind};
use crate::http::ConnectionLimits;

/// Standard streams, the runtime, listeners, signals, the lock file, configuration files, name resolution, and `/proc`
/// during a scrape.
const PROCESS_DESCRIPTORS: usize = 40;
/// Journal and snapshot of a keyspace, each beside its replacement.
const KEYSPACE_DESCRIPTORS: usize = 4;
/// The database, its journal or WAL, and the WAL index.
const SQLITE_DESCRIPTORS: usize = 3;
/// Connections of a pool beyond those in use: old ones close while new ones open.
const REPLACED_CONNECTIONS: usize = 2;
/// A scan, a count and a poll each open a connection of their own and close it at the end.
const SOURCE_DESCRIPTORS: usize = 3;
/// A connection to Redis and its replacement.
const REDIS_LINK_DESCRIPTORS: usize = 2;
/// Sentinels or cluster nodes that are asked where to connect.
const REDIS_DESCRIPTORS: usize = 8;

/// Probes and Prometheus keep a few connections; more would only take descriptors from lookups.
const MAX_TELEMETRY: usize = 64;
/// Operators need few connections.
const MAX_ADMIN: usize = 16;
/// Minimum per listener, even if the limit does not allow it.
const MIN_CONNECTIONS: usize = 8;

/// Connection caps of the listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionCaps {
    pub(super) data: usize,
    pub(super) telemetry: usize,
    pub(super) admin: usize,
}

impl ConnectionCaps {
    /// Computes the caps from the open file limit. Logs if the limit is lower than the configuration needs.
    pub(super) fn within_limit(config: &Config) -> Self {
        // `None` means no limit.
        let limit = getrlimit(Resource::Nofile)
            .current
            .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let (reserved, configured) = (reserved(config), config.server.max_connections);
        let all = Self::divide(limit, reserved, configured);
        let needed = reserved
            .saturating_add(Self { data: configured, telemetry: MAX_TELEMETRY, admin: MAX_ADMIN }.descriptors());
        if reserved.saturating_add(all.descriptors()) > limit {
            tracing::error!(limit, reserved, needed, "open file limit too low: raise LimitNOFILE");
        }
        if all.data < configured {
            let clamped = all.data;
            tracing::warn!(
                configured,
                clamped,
                limit,
                reserved,
                needed,
                "server.max_connections clamped: raise LimitNOFILE"
            );
        }
        all
    }

    fn divide(limit: usize, reserved: usize, configured: usize) -> Self {
        let left = limit.saturating_sub(reserved);
        let (telemetry, admin) =
            (MAX_TELEMETRY.min(left / 8).max(MIN_CONNECTIONS), MAX_ADMIN.min(left / 16).max(MIN_CONNECTIONS));
        let taken = ConnectionLimits::descriptors(telemetry) + ConnectionLimits::descriptors(admin);
        let left = left.saturating_sub(taken);
        // One of nine is for closing connections, up to a bound.
        let open = left.saturating_sub(1);
        let fits = (open - open.div_ceil(9)).max(left.saturating_sub(ConnectionLimits::MAX_EXTRA_DESCRIPTORS));
        Self { data: configured.min(fits.max(MIN_CONNECTIONS)), telemetry, admin }
    }

    fn descriptors(self) -> usize {
        [self.data, self.telemetry, self.admin].map(ConnectionLimits::descriptors).iter().sum()
    }
}

/// Descriptors for everything but client connections, if all pools are full and everything happens at once.
fn reserved(config: &Config) -> usize {
    let redis = config.redis.as_ref().map_or(0, |redis| {
        let each = config.keyspaces.len();
        let (main, announces) = (
            if RedisPlace::is_cluster(&redis.url) { each } else { 1 },
            if redis.min_replicas_acked > 0 { each } else { 0 },
        );
        REDIS_DESCRIPTORS + (main + announces) * REDIS_LINK_DESCRIPTORS
    });
    config.keyspaces.values().map(keyspace_descriptors).fold(PROCESS_DESCRIPTORS + redis, usize::saturating_add)
}

fn keyspace_descriptors(keyspace: &KeyspaceConfig) -> usize {
    let backend = &keyspace.backend;
    let calls = backend.max_concurrency.saturating_add(REPLACED_CONNECTIONS);
    let calls = match backend.kind {
        BackendKind::Sql => calls.saturating_mul(database_descriptors(backend.url.expose())),
        BackendKind::Http => calls,
        BackendKind::Set => 0,
    };
    let sources = keyspace.source.iter().map(|source| source_descriptors(source, backend.url.expose()));
    sources.fold(KEYSPACE_DESCRIPTORS.saturating_add(calls), usize::saturating_add)
}

fn source_descriptors(source: &SourceConfig, backend_url: &str) -> usize {
    let own = source.url.expose();
    match source.kind {
        SourceKind::Sql => SOURCE_DESCRIPTORS * database_descriptors(if own.is_empty() { backend_url } else { own }),
        SourceKind::Http | SourceKind::File | SourceKind::Redis => SOURCE_DESCRIPTORS,
    }
}

fn database_descriptors(url: &str) -> usize {
    if url.starts_with("sqlite:") { SQLITE_DESCRIPTORS } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_out_is_there() {
        for limit in (200..3000).chain([65_536, 1 << 20, 1 << 30]) {
            for reserved in [40, 75, 120] {
                let all = ConnectionCaps::divide(limit, reserved, 10_000);
                let spare = (limit - reserved).checked_sub(all.descriptors());
                assert!(
                    spare.is_some_and(|spare| all.data == 10_000 || spare <= 3),
                    "{limit} {reserved}: {all:?} {spare:?}"
                );
            }
        }
    }

    #[test]
    fn as_much_as_configured_is_enough_and_the_small_listeners_stay_small() {
        let all = ConnectionCaps::divide(1 << 20, 100, 10_000);
        assert_eq!(all, ConnectionCaps { data: 10_000, telemetry: MAX_TELEMETRY, admin: MAX_ADMIN });
        assert_eq!(ConnectionCaps::divide(usize::MAX, 100, 2).data, 2);
    }

    #[test]
    fn a_limit_that_is_too_low_leaves_each_listener_a_few() {
        let all = ConnectionCaps::divide(64, 100, 10_000);
        assert_eq!(all, ConnectionCaps { data: MIN_CONNECTIONS, telemetry: MIN_CONNECTIONS, admin: MIN_CONNECTIONS });
    }

    #[test]
    fn every_pool_counts() {
        let config = |toml: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), toml).unwrap();
            reserved(&crate::config::load(&[file.path().to_owned()], std::iter::empty()).unwrap())
        };
        let keyspace = |name: &str, url: &str, calls: usize| {
            format!(
                "[keyspaces.{name}]\nfreshness = \"static\"\nbackend.url = \"{url}\"\nbackend.query = \"SELECT v FROM t WHERE k = $1\"\n\
                 backend.max_concurrency = {calls}\nsource.query = \"SELECT k FROM t\"\n"
            )
        };
        let one = config(&keyspace("a", "postgres://db/x", 16));
        assert_eq!(one, PROCESS_DESCRIPTORS + KEYSPACE_DESCRIPTORS + 16 + REPLACED_CONNECTIONS + SOURCE_DESCRIPTORS);
        let both = config(&(keyspace("a", "postgres://db/x", 16) + &keyspace("b", "sqlite:///x.db", 100)));
        assert_eq!(
            both,
            one + KEYSPACE_DESCRIPTORS + (100 + REPLACED_CONNECTIONS + SOURCE_DESCRIPTORS) * SQLITE_DESCRIPTORS
        );
        let redis = "[redis]\nurl = \"redis://cache\"\n";
        assert_eq!(
            config(&(redis.to_owned() + &keyspace("a", "postgres://db/x", 16))),
            one + REDIS_DESCRIPTORS + REDIS_LINK_DESCRIPTORS
        );
        let replicated = redis.to_owned() + "min_replicas_acked = 1\n";
        assert_eq!(
            config(&(replicated + &keyspace("a", "postgres://db/x", 16))),
            one + REDIS_DESCRIPTORS + 2 * REDIS_LINK_DESCRIPTORS
        );
    }
}
