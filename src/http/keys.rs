//! `/v1/keys/{ks}/{key}`: guarded reads, announces, deletes.

use axum::http::{HeaderMap, StatusCode};

use super::answer::{self, AnswerOptions, DataResponse, emptied};
use super::key_request::KeyRequest;
use super::options::lookup_options;
use super::problem::Problem;
use crate::guard::LookupOptions;

pub(super) const ALLOW: &str = "GET, HEAD, PUT, DELETE";

/// Looks the key up. `HEAD` differs only in that its body is left out on the way.
pub(super) async fn get(request: KeyRequest<'_>, headers: &HeaderMap) -> DataResponse {
    let (options, answer_options) = options(&request, headers);
    answer::lookup(request.keyspace.guard.lookup(request.key, options).await, answer_options, HeaderMap::new())
}

/// [`get`] as far as nothing has to be waited for. The answer is written into the request's own headers.
pub(super) fn get_at_once(request: KeyRequest<'_>, headers: &mut HeaderMap) -> Option<DataResponse> {
    let (options, answer_options) = options(&request, headers);
    let lookup = request.keyspace.guard.lookup_at_once(request.key, options)?;
    Some(answer::lookup(lookup, answer_options, emptied(headers)))
}

fn options(request: &KeyRequest<'_>, headers: &HeaderMap) -> (LookupOptions, AnswerOptions) {
    let options = lookup_options(headers, |version| request.keyspace.guard.has_applied(version), request.honor_no_cache);
    let answer_options = AnswerOptions { bypass: options.bypass, ..request.answer };
    (options, answer_options)
}

/// Announces the key: 204 once it can't be lost.
pub(super) async fn put(request: KeyRequest<'_>) -> Result<DataResponse, Problem> {
    let version = request.keyspace.guard.announce(&[request.key]).await.map_err(|e| Problem::from(&e))?;
    Ok(answer::announced(version.as_ref()))
}

/// Drops the key of a removed row from every cache.
pub(super) async fn delete(request: KeyRequest<'_>) -> Result<DataResponse, Problem> {
    request.keyspace.guard.delete(&request.key).await.map_err(|e| Problem::from(&e))?;
    Ok(answer::empty(StatusCode::ACCEPTED))
}
