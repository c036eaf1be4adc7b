//! Error responses: `application/problem+json` (RFC 9457).

use std::error::Error;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use http_body_util::LengthLimitError;
use serde_json::{Map, Value};

use super::middleware::SlowBody;
use crate::buffers::Overloaded;

/// An error response. Its `type` is `/problems/<name>`, relative to this server, and never changes; `detail` is for
/// people and may change.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    members: Map<String, Value>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, name: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        let mut members = Map::new();
        members.insert("type".into(), format!("/problems/{name}").into());
        members.insert("title".into(), title.into());
        members.insert("status".into(), status.as_u16().into());
        members.insert("detail".into(), detail.into().into());
        Self { status, members, header: None }
    }

    /// A 503 that a retry may pass.
    pub(super) fn unavailable(name: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, name, title, detail)
            .header(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    pub(super) fn bad_request(name: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, name, title, detail)
    }

    pub(super) fn unknown_route(status: StatusCode) -> Self {
        Self::new(status, "unknown-route", "Unknown route", "this listener has no such route")
    }

    pub(super) fn unknown_keyspace(status: StatusCode, keyspace: &str) -> Self {
        // The name comes from the request, so it is truncated.
        let shown: String = keyspace.chars().take(64).collect();
        Self::new(status, "unknown-keyspace", "Unknown keyspace", format!("no keyspace {shown:?} is configured"))
    }

    pub(super) fn wrong_method(allow: &'static str) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "wrong-method",
            "Method not allowed",
            format!("this route serves {allow}"),
        )
        .header(ALLOW, HeaderValue::from_static(allow))
    }

    pub(super) fn body_too_large(limit: u64) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body-too-large",
            "Request body too large",
            format!("the request body is longer than server.max_body_bytes = {limit}"),
        )
        .member("limit", limit)
    }

    /// The problem of a body that passed the body limit but could not be read.
    pub(super) fn from_body_error(error: &(dyn Error + 'static), limit: u64) -> Self {
        // The routers in between wrap the error.
        let mut cause = Some(error);
        while let Some(error) = cause {
            if error.is::<LengthLimitError>() {
                return Self::body_too_large(limit);
            }
            if let Some(slow) = error.downcast_ref::<SlowBody>() {
                return Self::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "body-too-slow",
                    "Request body too slow",
                    slow.to_string(),
                );
            }
            if let Some(overloaded) = error.downcast_ref::<Overloaded>() {
                return Self::from(overloaded);
            }
            cause = error.source();
        }
        Self::bad_request("body-unreadable", "Unreadable request body", "the request body ended early or is malformed")
    }

    /// Adds a member to the document.
    pub(super) fn member(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.members.insert(name.into(), value.into());
        self
    }

    /// Sets Retry-After, in whole seconds and at least one.
    pub(super) fn retry_after(self, time: Duration) -> Self {
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        self.header(RETRY_AFTER, HeaderValue::from(seconds.max(1)))
    }

    /// Sets the header that belongs to the status.
    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }

    /// An internal error that no request causes.
    pub(super) fn internal(error: &dyn Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error", error.to_string())
    }

    /// Longer than `server.max_key_bytes`.
    pub(super) fn key_too_long(limit: usize) -> Self {
        let detail = format!("the key is longer than server.max_key_bytes = {limit}");
        Self::new(StatusCode::URI_TOO_LONG, "key-too-long", "Key too long", detail).member("limit", limit as u64)
    }

    /// Status, type and detail, for a document with several problems.
    pub(super) fn summary(&self) -> (u16, String, String) {
        let member = |name: &str| self.members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        (self.status.as_u16(), member("type"), member("detail"))
    }

    pub(super) fn response<B: From<Bytes>>(self) -> Response<B> {
        let mut response = Response::new(B::from(Bytes::from(Value::Object(self.members).to_string())));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        self.response()
    }
}
