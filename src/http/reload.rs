//! `/admin/reload` and `/admin/config`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::oneshot;

use super::admin_body::require_json;
use super::context::HttpContext;
use super::problem::Problem;
use super::reload_handle::{ActiveConfig, ReloadReport};
use crate::config::ConfigErrors;

pub(super) async fn reload(
    State(context): State<Arc<HttpContext>>,
    headers: HeaderMap,
) -> Result<Json<ReloadReport>, Problem> {
    require_json(&headers)?;
    let (answer, result) = oneshot::channel();
    let not_reloadable = || {
        Problem::unavailable("not-reloadable", "Reload not available", "this process does not reload its configuration")
    };
    let handle = context.config.as_ref().ok_or_else(not_reloadable)?;
    handle.requests.send(answer).await.map_err(|_| not_reloadable())?;
    result.await.map_err(|_| not_reloadable())?.map(Json).map_err(|errors| bad_configuration(&errors))
}

pub(super) async fn config(State(context): State<Arc<HttpContext>>) -> Result<Json<Arc<ActiveConfig>>, Problem> {
    let handle = context.config.as_ref().ok_or_else(|| Problem::unknown_route(StatusCode::NOT_FOUND))?;
    let active = Arc::clone(&handle.active.borrow());
    Ok(Json(active))
}

/// 422: the files are invalid, and the active configuration stays.
fn bad_configuration(errors: &ConfigErrors) -> Problem {
    let mistakes: Vec<String> = errors.errors().iter().map(ToString::to_string).collect();
    let detail = "the configuration files are invalid: the active configuration stays";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad-configuration", "Invalid configuration", detail)
        .member("mistakes", mistakes)
}
