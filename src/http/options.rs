//! Reads lookup options from request headers. A bad value never fails the request.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CACHE_CONTROL, HeaderMap, HeaderName, HeaderValue};

use crate::backend::TraceContext;
use crate::fleet::Version;
use crate::keyspace::LookupOptions;

static BYPASS: HeaderName = HeaderName::from_static("bloomguard-bypass");
static MIN_VERSION: HeaderName = HeaderName::from_static("bloomguard-min-version");
static TIMEOUT: HeaderName = HeaderName::from_static("bloomguard-timeout");
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// Reads the headers of a guarded read. Most requests have none of them: one pass over their names is cheaper than five
/// searches.
pub(super) fn lookup_options(
    headers: &HeaderMap,
    has_applied: impl Fn(&Version) -> bool,
    honor_no_cache: bool,
) -> LookupOptions {
    if !headers.keys().any(|name| [&BYPASS, &MIN_VERSION, &TIMEOUT, &TRACE_PARENT, &CACHE_CONTROL].contains(&name)) {
        return LookupOptions::default();
    }
    LookupOptions {
        bypass: wants_bypass(headers) || (honor_no_cache && has_no_cache(headers)),
        unapplied_version: unapplied_version(headers, has_applied),
        timeout: timeout(headers),
        trace: TraceContext::from_headers(headers).map(Arc::new),
    }
}

/// Whether the caller has seen a version that this instance has not applied, or that it can't verify. Of several
/// versions all must be applied.
pub(super) fn unapplied_version(headers: &HeaderMap, has_applied: impl Fn(&Version) -> bool) -> bool {
    let is_applied =
        |token: &HeaderValue| token.to_str().is_ok_and(|text| text.parse().is_ok_and(|version| has_applied(&version)));
    headers.get_all(&MIN_VERSION).iter().any(|token| !is_applied(token))
}

/// A malformed or zero timeout is ignored: the keyspace's own deadline bounds the lookup.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(&TIMEOUT)?.to_str().ok()?;
    humantime::parse_duration(text).ok().filter(|d| !d.is_zero())
}

/// Whether a guarded read asks to skip filter and caches.
pub(super) fn wants_bypass(headers: &HeaderMap) -> bool {
    headers.get(&BYPASS).is_some_and(|value| value == "1")
}

/// Whether `Cache-Control` says `no-cache`.
pub(super) fn has_no_cache(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CACHE_CONTROL).into_iter().filter_map(|v| v.to_str().ok());
    values.flat_map(|v| v.split(',')).any(|directive| {
        // RFC 9111: directives are case-insensitive; `no-cache="field"` is about stored responses and is no bypass.
        directive.trim().eq_ignore_ascii_case("no-cache")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &'static str)], honor_no_cache: bool) -> LookupOptions {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        lookup_options(&map, |version| version.keyspace == "users", honor_no_cache)
    }

    #[test]
    fn only_a_one_bypasses() {
        assert!(read(&[("bloomguard-bypass", "1")], false).bypass);
        for value in ["0", "", "true", "11"] {
            assert!(!read(&[("bloomguard-bypass", value)], true).bypass, "{value:?}");
        }
    }

    #[test]
    fn no_cache_bypasses_only_where_it_is_honoured() {
        for value in ["no-cache", "No-Cache", "max-age=0, no-cache", "max-age=0,no-cache , x"] {
            assert!(read(&[("cache-control", value)], true).bypass, "{value:?}");
            assert!(!read(&[("cache-control", value)], false).bypass, "{value:?}");
        }
        assert!(read(&[("cache-control", "max-age=0"), ("cache-control", "no-cache")], true).bypass);
        for value in ["no-store", "max-age=0", "xno-cache", "no-cachex"] {
            assert!(!read(&[("cache-control", value)], true).bypass, "{value:?}");
        }
    }

    #[test]
    fn a_version_that_is_not_known_to_be_applied_is_not() {
        const APPLIED: &str = "v1.abababababababababababababababab.users.1-2";
        const OTHER: &str = "v1.abababababababababababababababab.orders.1-2";
        assert!(!read(&[], false).unapplied_version);
        assert!(!read(&[("bloomguard-min-version", APPLIED)], false).unapplied_version);
        for token in ["", "garbage", "a:b:1", OTHER] {
            assert!(read(&[("bloomguard-min-version", token)], false).unapplied_version, "{token:?}");
            assert!(
                read(&[("bloomguard-min-version", APPLIED), ("bloomguard-min-version", token)], false)
                    .unapplied_version,
                "{token:?}"
            );
        }
    }

    #[test]
    fn a_trace_is_taken_along() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(read(&[("traceparent", parent)], false).trace.is_some());
        assert!(read(&[("traceparent", "garbage"), ("tracestate", "a=1")], false).trace.is_none());
    }

    #[test]
    fn a_timeout_that_makes_no_sense_is_ignored() {
        assert_eq!(read(&[("bloomguard-timeout", "120ms")], false).timeout, Some(Duration::from_millis(120)));
        assert_eq!(read(&[("bloomguard-timeout", "1s 500ms")], false).timeout, Some(Duration::from_millis(1500)));
        for value in ["0ms", "0s", "-5ms", "120", "soon", "", "99999999999999999999s"] {
            assert_eq!(read(&[("bloomguard-timeout", value)], false).timeout, None, "{value:?}");
        }
    }
}
