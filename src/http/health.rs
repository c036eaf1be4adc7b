//! `/livez`, `/readyz` and `/startupz`.
//!
//! The first two never depend on Redis or the database: an outage there must not restart or unlist the sidecar, which
//! still answers what it can. `/startupz` is for operators who want a start to wait for the filters.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::context::HttpContext;

/// 200 as long as requests are answered.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// 200 once listening; 503 while draining.
pub(super) async fn readyz(State(context): State<Arc<HttpContext>>) -> (StatusCode, &'static str) {
    if context.is_draining() { (StatusCode::SERVICE_UNAVAILABLE, "draining\n") } else { (StatusCode::OK, "ok\n") }
}

/// 200 once every keyspace has had a filter, and from then on. 503 with the names of keyspaces without one.
pub(super) async fn startupz(State(context): State<Arc<HttpContext>>) -> (StatusCode, String) {
    let cold: Vec<&str> = context
        .keyspaces
        .iter()
        .filter(|(_, served)| served.keyspace.generation() == 0)
        .map(|(name, _)| name.as_str())
        .collect();
    if cold.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("cold: {}\n", cold.join(", ")))
    }
}
