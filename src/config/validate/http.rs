//! Settings of HTTP backends and key sources, and keys that only those have.

use super::section::Section;
use super::url;
use crate::client::header_map;
use crate::config::{BackendConfig, Headers, SourceConfig};

/// Validates an HTTP backend.
pub(super) fn backend(backend: &BackendConfig, section: &mut Section<'_>) {
    let secure = url::template(&backend.url, backend.url_file.is_some(), section);
    let defaults = BackendConfig::default();
    reject_if_set("query", !backend.query.is_empty(), "http", section);
    reject_if_set("min_connections", backend.min_connections != defaults.min_connections, "http", section);
    reject_if_set("statement_cache", backend.statement_cache != defaults.statement_cache, "http", section);
    if backend.absent_status.is_empty() {
        section.add("absent_status", "must name at least one status: without one no key is ever absent");
    }
    for status in &backend.absent_status {
        let rule = "be 204 or a 4xx that is not a failure (not 401, 407, 408, 425, 429)";
        section.must(may_mean_absent(*status), "absent_status", rule, status);
    }
    request(&backend.headers, &backend.secret_headers, section);
    authorities(backend.ca_file.is_some(), secure, section);
}

/// Validates an HTTP key source.
pub(super) fn source(source: &SourceConfig, section: &mut Section<'_>) {
    let secure = url::list(&source.url, source.url_file.is_some(), section);
    request(&source.headers, &source.secret_headers, section);
    authorities(source.ca_file.is_some(), secure, section);
}

/// Rejects keys that a SQL backend would ignore.
pub(super) fn reject_http_keys(backend: &BackendConfig, section: &mut Section<'_>) {
    reject_if_set("absent_status", backend.absent_status != BackendConfig::default().absent_status, "sql", section);
    reject_if_set("absent_header", backend.absent_header.is_some(), "sql", section);
    reject_if_set("headers", !backend.headers.is_empty(), "sql", section);
    reject_if_set("headers_file", backend.headers_file.is_some(), "sql", section);
    reject_if_set("ca_file", backend.ca_file.is_some(), "sql", section);
}

/// Rejects a key of another kind. If the kind itself was rejected, its keys are unknown.
fn reject_if_set(key: &str, set: bool, kind: &str, section: &mut Section<'_>) {
    if set && !section.was_rejected("kind") {
        section.add(key, format!("is not used by a backend of kind {kind:?}"));
    }
}

/// A status that blames the caller, a proxy or the load never means that there is no row.
const fn may_mean_absent(status: u16) -> bool {
    status == 204 || (status >= 400 && status <= 499 && !matches!(status, 401 | 407 | 408 | 425 | 429))
}

fn request(headers: &Headers, secret: &Headers, section: &mut Section<'_>) {
    if let Err(error) = header_map(headers.iter()) {
        section.add("headers", error.to_string());
    } else if let Err(error) = header_map(headers.iter().chain(secret.iter())) {
        section.add("headers_file", error.to_string());
    }
}

fn authorities(given: bool, secure: Option<bool>, section: &mut Section<'_>) {
    if given && secure == Some(false) {
        section.add("ca_file", "is for https:// URLs, and the url is http://");
    }
}
