//! The admin listener: everything that changes the process.
//!
//! A web page in the operator's browser must not be able to use it. So requests that change something need
//! `content-type: application/json`, which neither forms nor simple cross-origin scripts can send. Every request also
//! needs a loopback `Host` or a token.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::admin_body::{read_body, read_object, require_json};
use super::context::{HttpContext, ServedKeyspace};
use super::middleware::{
    AccessPolicy, AdmissionLayer, BodyLimit, BufferedLayer, CatchPanicLayer, CountLayer, DeadlineLayer, OmitBodyLayer,
};
use super::problem::Problem;
use super::reload;
use crate::buffers::Share;
use crate::config::{Enforcement, EnforcementSetting};
use crate::keyspace::{EnforcementStatus, Mismatches};
use crate::metrics::Route;
use crate::rebuild::{AlreadyRunning, Progress, RebuildRequest};

/// `/admin/keyspaces/{ks}/rebuild`, `…/enforcement`, `…/mismatches`, `/admin/reload`, `/admin/config`.
pub fn admin_router(context: Arc<HttpContext>) -> Router {
    let settings = &context.settings;
    let count = CountLayer::new(Arc::clone(&context.metrics), classify);
    let access = AccessPolicy::for_admin(settings);
    let (deadline, body_limit) =
        (settings.admin_deadline, AdmissionLayer::new(BodyLimit::new(settings.max_body_bytes, &context.buffers)));
    let buffered = BufferedLayer::new(&context.buffers, Share::Single);
    Router::new()
        .route("/admin/keyspaces/{keyspace}/rebuild", get(rebuild_progress).post(start_rebuild))
        .route("/admin/keyspaces/{keyspace}/enforcement", get(enforcement).post(switch_enforcement))
        .route(
            "/admin/keyspaces/{keyspace}/mismatches",
            get(mismatches).fallback(async || Problem::wrong_method("GET, HEAD")),
        )
        .route("/admin/reload", post(reload::reload).fallback(async || Problem::wrong_method("POST")))
        .route("/admin/config", get(reload::config).fallback(async || Problem::wrong_method("GET, HEAD")))
        .fallback(async || Problem::unknown_route(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || Problem::wrong_method("GET, HEAD, POST"))
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
    if path.starts_with("/admin/") { Route::Admin } else { Route::Unknown }
}

/// The enforcement that the filter is switched to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EnforcementRequest {
    mode: SwitchMode,
    /// Used if the mode is `enforce`.
    #[serde(default = "all_keys")]
    percent: u8,
    #[serde(default)]
    scope: SwitchScope,
}

const fn all_keys() -> u8 {
    EnforcementSetting::ALL
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SwitchMode {
    Enforce,
    Shadow,
    /// The mode of the configuration.
    Config,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SwitchScope {
    #[default]
    Instance,
    Fleet,
}

impl EnforcementRequest {
    fn setting(&self) -> Result<Option<EnforcementSetting>, Problem> {
        if self.percent > EnforcementSetting::ALL {
            let detail = format!("percent must be from 0 to 100, is {}", self.percent);
            return Err(Problem::bad_request("bad-body", "Malformed request body", detail));
        }
        let setting = |mode| EnforcementSetting { mode, percent: self.percent };
        Ok(match self.mode {
            SwitchMode::Enforce => Some(setting(Enforcement::Enforce)),
            SwitchMode::Shadow => Some(setting(Enforcement::Shadow)),
            SwitchMode::Config => None,
        })
    }
}

/// The response to an accepted rebuild.
#[derive(Debug, Serialize)]
struct RebuildAccepted {
    job: u64,
}

async fn start_rebuild(
    State(context): State<Arc<HttpContext>>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Result<(StatusCode, Json<RebuildAccepted>), Problem> {
    let (head, body) = request.into_parts();
    require_json(&head.headers)?;
    let keyspace = keyspace(&context, &name)?;
    let body = read_body(body, &context).await?;
    let job = keyspace.rebuild.request(rebuild_request(&body)?).map_err(|AlreadyRunning(job)| {
        let detail = AlreadyRunning(job).to_string();
        Problem::new(StatusCode::CONFLICT, "rebuild-running", "Rebuild already running", detail).member("job", job)
    })?;
    Ok((StatusCode::ACCEPTED, Json(RebuildAccepted { job })))
}

async fn rebuild_progress(
    State(context): State<Arc<HttpContext>>,
    Path(name): Path<String>,
) -> Result<Json<Progress>, Problem> {
    Ok(Json(keyspace(&context, &name)?.rebuild.progress()))
}

async fn enforcement(
    State(context): State<Arc<HttpContext>>,
    Path(name): Path<String>,
) -> Result<Json<EnforcementStatus>, Problem> {
    Ok(Json(keyspace(&context, &name)?.keyspace.enforcement()))
}

async fn switch_enforcement(
    State(context): State<Arc<HttpContext>>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Result<Json<EnforcementStatus>, Problem> {
    let (head, body) = request.into_parts();
    require_json(&head.headers)?;
    let keyspace = &keyspace(&context, &name)?.keyspace;
    let body = read_body(body, &context).await?;
    let request: EnforcementRequest = read_object(&body)?;
    let setting = request.setting()?;
    match request.scope {
        SwitchScope::Instance => Ok(Json(keyspace.enforce_here(setting))),
        SwitchScope::Fleet => Ok(Json(keyspace.enforce_everywhere(setting).await?)),
    }
}

async fn mismatches(
    State(context): State<Arc<HttpContext>>,
    Path(name): Path<String>,
) -> Result<Json<Mismatches>, Problem> {
    Ok(Json(keyspace(&context, &name)?.keyspace.mismatches()))
}

fn keyspace<'a>(context: &'a HttpContext, name: &str) -> Result<&'a ServedKeyspace, Problem> {
    context.keyspaces.get(name).ok_or_else(|| Problem::unknown_keyspace(StatusCode::NOT_FOUND, name))
}

/// An empty body requests a rebuild with the configured rules.
fn rebuild_request(body: &Bytes) -> Result<RebuildRequest, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(RebuildRequest::default());
    }
    read_object(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_names_its_mode_and_nothing_strange() {
        let read = |body: &str| {
            read_object::<EnforcementRequest>(&Bytes::copy_from_slice(body.as_bytes())).and_then(|r| r.setting())
        };
        let enforce = |percent| EnforcementSetting { mode: Enforcement::Enforce, percent };
        for (body, expected) in [
            (r#"{"mode":"enforce"}"#, Some(enforce(100))),
            (r#"{"mode":"enforce","percent":0,"scope":"fleet"}"#, Some(enforce(0))),
            (r#"{"mode":"shadow","scope":"instance"}"#, Some(Enforcement::Shadow.into())),
            (r#"{"mode":"config","percent":5}"#, None),
        ] {
            assert_eq!(read(body).unwrap(), expected, "{body}");
        }
        for body in [
            "",
            "{}",
            "[]",
            r#"{"mode":"on"}"#,
            r#"{"mode":"enforce","percent":101}"#,
            r#"{"mode":"enforce","percent":-1}"#,
        ] {
            assert!(read(body).is_err(), "{body}");
        }
        for body in [
            r#"{"mode":"enforce","percent":300}"#,
            r#"{"mode":"enforce","scope":"pod"}"#,
            r#"{"mode":"enforce","colour":1}"#,
        ] {
            assert!(read(body).is_err(), "{body}");
        }
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
