//! The admin listener: everything that changes something.
//!
//! A web page in the operator's browser must not be able to use it: requests that change something need
//! `content-type: application/json`, which no form sends and no script sends across origins unasked, and every request needs a
//! loopback `Host` or the token.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::context::{HttpContext, Keyspace};
use super::middleware::{Access, BodyLimitLayer, CatchPanicLayer, CountLayer, DeadlineLayer, HeadLayer, RequireLayer};
use super::problem::Problem;
use crate::metrics::Route;
use crate::rebuild::{AlreadyRunning, Progress, RebuildRequest};

/// `/admin/keyspaces/{ks}/rebuild`.
pub fn admin_router(context: Arc<HttpContext>) -> Router {
    let settings = &context.settings;
    let count = CountLayer::new(Arc::clone(&context.metrics), classify);
    let access = settings.admin_token.clone().map_or(Access::LoopbackHost, Access::Token);
    let (deadline, body_limit) = (settings.admin_deadline, settings.max_body_bytes);
    Router::new()
        .route("/admin/keyspaces/{keyspace}/rebuild", get(rebuild_progress).post(start_rebuild))
        .fallback(async || Problem::unknown_route(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || Problem::wrong_method("GET, HEAD, POST"))
        .with_state(context)
        // Each further one is outside of those before.
        .layer(DeadlineLayer::new(deadline))
        .layer(BodyLimitLayer::new(body_limit))
        .layer(RequireLayer::new(access))
        .layer(CatchPanicLayer)
        .layer(HeadLayer)
        .layer(count)
}

fn classify(path: &str) -> Route {
    if path.starts_with("/admin/") { Route::Admin } else { Route::Unknown }
}

/// The answer to an accepted rebuild.
#[derive(Debug, Serialize)]
struct Job {
    job: u64,
}

async fn start_rebuild(
    State(context): State<Arc<HttpContext>>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let (head, body) = request.into_parts();
    require_json(&head.headers)?;
    let keyspace = keyspace(&context, &name)?;
    let limit = context.settings.max_body_bytes;
    let body = body.collect().await.map_err(|error| Problem::of_body(&error, limit))?.to_bytes();
    let job = keyspace.rebuild.request(rebuild_request(&body)?).map_err(|AlreadyRunning(job)| {
        let detail = AlreadyRunning(job).to_string();
        Problem::new(StatusCode::CONFLICT, "rebuild-running", "A rebuild is running", detail).member("job", job)
    })?;
    Ok((StatusCode::ACCEPTED, Json(Job { job })))
}

async fn rebuild_progress(State(context): State<Arc<HttpContext>>, Path(name): Path<String>) -> Result<Json<Progress>, Problem> {
    Ok(Json(keyspace(&context, &name)?.rebuild.progress()))
}

fn keyspace<'a>(context: &'a HttpContext, name: &str) -> Result<&'a Keyspace, Problem> {
    context.keyspaces.get(name).ok_or_else(|| Problem::unknown_keyspace(StatusCode::NOT_FOUND, name))
}

/// No body asks for a rebuild as it is configured.
fn rebuild_request(body: &Bytes) -> Result<RebuildRequest, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(RebuildRequest::default());
    }
    // An object first: serde would take a bare array for the fields in order.
    let request = serde_json::from_slice::<Map<String, Value>>(body).and_then(|object| RebuildRequest::deserialize(Value::Object(object)));
    request.map_err(|error| Problem::bad_request("bad-body", "Request body does not fit", error.to_string()))
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let is_json = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).is_some_and(|value| {
        let media_type = value.split_once(';').map_or(value, |(media_type, _)| media_type);
        media_type.trim().eq_ignore_ascii_case("application/json")
    });
    if is_json {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "not-json",
        "Content type is not JSON",
        "requests that change something need content-type: application/json, also where their body is empty",
    ))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_json_may_change_something() {
        let judge = |value: Option<&'static str>| {
            let headers = value.map(|v| (CONTENT_TYPE, HeaderValue::from_static(v))).into_iter().collect();
            require_json(&headers).is_ok()
        };
        for value in ["application/json", "application/json; charset=utf-8", "Application/JSON ;x=y"] {
            assert!(judge(Some(value)), "{value}");
        }
        for value in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "text/plain; application/json", ""] {
            assert!(!judge(Some(value)), "{value}");
        }
        assert!(!judge(None));
    }

    #[test]
    fn an_empty_body_asks_for_nothing_special() {
        let read = |body: &'static str| rebuild_request(&Bytes::from_static(body.as_bytes())).map(|r| r.accept_fewer);
        assert!(matches!(read(""), Ok(false)));
        assert!(matches!(read(" \n"), Ok(false)));
        assert!(matches!(read("{}"), Ok(false)));
        assert!(matches!(read(r#"{"accept_fewer":true}"#), Ok(true)));
        for body in ["null", "[]", r#"{"accept_fewer":1}"#, "[true]", r#"{"acceptfewer":true}"#, "{", "true"] {
            assert!(read(body).is_err(), "{body}");
        }
    }
}
