//! `/livez` and `/readyz`. Neither depends on Redis or the database: an outage there must not restart or unlist the sidecar, which then
//! answers what it still can.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;

use super::context::HttpContext;

/// 200 as long as requests are answered at all.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// 200 once listening, which whoever reads this answer has seen; 503 while draining.
pub(super) async fn readyz(State(context): State<Arc<HttpContext>>) -> (StatusCode, &'static str) {
    if context.is_draining() { (StatusCode::SERVICE_UNAVAILABLE, "draining\n") } else { (StatusCode::OK, "ok\n") }
}
