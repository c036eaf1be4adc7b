//! `/v1/keys/{ks}/{key}`: guarded reads, announces, deletes.

use axum::http::{HeaderMap, StatusCode};

use super::answer::{self, AnswerOptions, DataResponse};
use super::key_request::KeyRequest;
use super::options::lookup_options;
use super::problem::Problem;

pub(super) const ALLOW: &str = "GET, HEAD, PUT, DELETE";

/// Looks the key up. For `HEAD` a layer drops the body.
pub(super) async fn get(request: KeyRequest<'_>, headers: &HeaderMap) -> DataResponse {
    let options =
        lookup_options(headers, |version| request.served.keyspace.has_applied(version), request.honor_no_cache);
    let answer_options = AnswerOptions { bypass: options.bypass, ..request.answer };
    answer::lookup(request.served.keyspace.lookup(request.key, options).await, answer_options)
}

/// Announces the key: 204 once it can't be lost.
pub(super) async fn put(request: KeyRequest<'_>) -> Result<DataResponse, Problem> {
    let version = request.served.keyspace.announce(&[request.key]).await.map_err(|e| Problem::from(&e))?;
    Ok(answer::announced(version.as_ref()))
}

/// Drops the key of a removed row from every cache.
pub(super) async fn delete(request: KeyRequest<'_>) -> Result<DataResponse, Problem> {
    request.served.keyspace.delete(&request.key).await.map_err(|e| Problem::from(&e))?;
    Ok(answer::empty(StatusCode::ACCEPTED))
}
