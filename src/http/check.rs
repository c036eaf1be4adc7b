//! `/v1/check/{ks}/{key}`: asks the filter only.

use axum::http::HeaderMap;

use super::answer::{self, DataResponse};
use super::key_request::KeyRequest;
use super::options::unapplied_version;

pub(super) const ALLOW: &str = "GET, HEAD";

/// 204 maybe, 404 absent.
pub(super) fn get(request: KeyRequest<'_>, headers: &HeaderMap) -> DataResponse {
    let probe = request.keyspace.guard.check(&request.key);
    answer::check(probe, unapplied_version(headers, |version| request.keyspace.guard.has_applied(version)), request.answer)
}
