//! Settings of a keyspace whose backend is the source's key set.

use super::section::Section;
use crate::config::{BackendConfig, CacheConfig, KeyspaceConfig};

/// Rejects settings that would be ignored: there is no server to call and nothing to cache.
pub(super) fn check(keyspace: &KeyspaceConfig, section: &mut Section<'_>) {
    let (backend, default) = (&keyspace.backend, BackendConfig::default());
    let mut inner = section.inner("backend");
    for (key, is_set) in [
        ("url", !backend.url.is_empty() && backend.url_file.is_none()),
        ("url_file", backend.url_file.is_some()),
        ("query", !backend.query.is_empty()),
        ("timeout", backend.timeout != default.timeout),
        ("max_concurrency", backend.max_concurrency != default.max_concurrency),
        ("max_queue", backend.max_queue != default.max_queue),
        ("min_connections", backend.min_connections != default.min_connections),
        ("statement_cache", backend.statement_cache != default.statement_cache),
        ("absent_status", backend.absent_status != default.absent_status),
        ("absent_header", backend.absent_header.is_some()),
        ("headers", !backend.headers.is_empty()),
        ("headers_file", backend.headers_file.is_some()),
        ("ca_file", backend.ca_file.is_some()),
    ] {
        if is_set {
            inner.add(
                key,
                "is not used by a backend of kind \"set\": the keys are in memory, and source says where \
                            they come from",
            );
        }
    }
    if keyspace.cache != CacheConfig::default() {
        section.add("cache", "is not used by a backend of kind \"set\": the keys are in memory, so nothing is cached");
    }
}
