//! `/v1/check/{ks}/{key}`: asks the filter only.

use axum::http::HeaderMap;

use super::answer::{self, DataResponse};
use super::key_request::KeyRequest;
use super::options::unapplied_version;

pub(super) const ALLOW: &str = "GET, HEAD";

/// 204 maybe, 404 absent.
pub(super) fn get(request: &KeyRequest<'_>, headers: &HeaderMap) -> DataResponse {
    // In this order: what a page of the log brings is in the filter before its version is applied, so only a probe after that question sees it.
    let as_maybe = unapplied_version(headers, |version| request.served.keyspace.has_applied(version));
    let probe = request.served.keyspace.check(&request.key);
    answer::check(probe, as_maybe, request.answer)
}
