//! Request bodies of the admin listener: small JSON objects.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::context::HttpContext;
use super::problem::Problem;

/// Longest request body. Admin requests have a handful of members.
const MAX_ADMIN_BODY_BYTES: u64 = 64 << 10;

/// Reads a whole body within [`MAX_ADMIN_BODY_BYTES`].
pub(super) async fn read_body(body: Body, context: &HttpContext) -> Result<Bytes, Problem> {
    let limit = context.settings.max_body_bytes.min(MAX_ADMIN_BODY_BYTES);
    let read = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).collect().await;
    Ok(read.map_err(|error| Problem::from_body_error(&*error, limit))?.to_bytes())
}

pub(super) fn read_object<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    // Parsed as an object first, because serde accepts an array for a struct, field by field.
    let request =
        serde_json::from_slice::<Map<String, Value>>(body).and_then(|object| T::deserialize(Value::Object(object)));
    request.map_err(|error| Problem::bad_request("bad-body", "Malformed request body", error.to_string()))
}

pub(super) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
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
        "JSON content type required",
        "requests that change something need content-type: application/json, even with an empty body",
    ))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_json_may_change_something() {
        let accepted = |value: Option<&'static str>| {
            let headers = value.map(|v| (CONTENT_TYPE, HeaderValue::from_static(v))).into_iter().collect();
            require_json(&headers).is_ok()
        };
        for value in ["application/json", "application/json; charset=utf-8", "Application/JSON ;x=y"] {
            assert!(accepted(Some(value)), "{value}");
        }
        for value in
            ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "text/plain; application/json", ""]
        {
            assert!(!accepted(Some(value)), "{value}");
        }
        assert!(!accepted(None));
    }
}
