//! `/v1/check/{ks}/{key}`: asks the filter only.

use axum::http::HeaderMap;

use super::answer::{self, DataResponse};
use super::key_request::KeyRequest;
use super::options::unapplied_version;

pub(super) const ALLOW: &str = "GET, HEAD";

/// 204 for maybe, 404 for absent.
pub(super) fn get(request: &KeyRequest<'_>, headers: &HeaderMap) -> DataResponse {
    // In this order: a page of the log is in the filter before its version counts as applied, so the probe must come
    // after the check of the version.
    let as_maybe = unapplied_version(headers, |version| request.served.keyspace.has_applied(version));
    let probe = request.served.keyspace.check(&request.key);
    answer::check(probe, as_maybe, request.answer)
}
