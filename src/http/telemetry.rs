//! The telemetry listener: read-only and open to the cluster, so it never shows error texts of a database.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use super::context::HttpContext;
use super::middleware::{
    AccessPolicy, AdmissionLayer, BodyLimit, BufferedLayer, CatchPanicLayer, CountLayer, DeadlineLayer, OmitBodyLayer,
};
use super::problem::Problem;
use super::{health, status};
use crate::buffers::Share;
use crate::metrics::Route;

/// `/livez` `/readyz` `/startupz` `/status` `/metrics`.
pub fn telemetry_router(context: Arc<HttpContext>) -> Router {
    let count = CountLayer::new(Arc::clone(&context.metrics), classify);
    let access = AccessPolicy::for_telemetry(&context.settings);
    let (deadline, body_limit) = (
        context.settings.telemetry_deadline,
        AdmissionLayer::new(BodyLimit::new(context.settings.max_body_bytes, &context.buffers)),
    );
    let buffered = BufferedLayer::new(&context.buffers, Share::Telemetry);
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/startupz", get(health::startupz))
        .route("/status", get(status::status))
        .route("/metrics", get(status::metrics))
        .fallback(async || Problem::unknown_route(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || Problem::wrong_method("GET, HEAD"))
        .with_state(context)
        // Each later layer wraps the earlier ones.
        .layer(DeadlineLayer::new(deadline))
        .layer(body_limit)
        .layer(AdmissionLayer::new(access))
        .layer(CatchPanicLayer)
        .layer(OmitBodyLayer)
        .layer(buffered)
        .layer(count)
}

fn classify(path: &str) -> Route {
    match path {
        "/livez" => Route::Livez,
        "/readyz" => Route::Readyz,
        "/startupz" => Route::Startupz,
        "/status" => Route::Status,
        "/metrics" => Route::Metrics,
        _ => Route::Unknown,
    }
}
