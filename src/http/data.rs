//! The data listener: `/v1/keys`, `/v1/check`, `/v1/lookup` and `/v1/invalidate`.
//!
//! A plain tower service and not a router: keys are bytes that a router must not parse. HTTP/1.1 requests that need no
//! waiting are answered before they get here, see [`fast_path`](super::fast_path).

use std::convert::Infallible;
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use tower::{Layer, Service, service_fn};

use super::answer::DataResponse;
use super::batch::{self, BatchRequest};
use super::context::HttpContext;
use super::key_request::KeyRequest;
use super::middleware::{
    AccessPolicy, AdmissionLayer, BodyLimit, BufferedLayer, CatchPanicLayer, CountLayer, DeadlineLayer, OmitBodyLayer,
};
use super::path::{KeyPath, Resource};
use super::problem::Problem;
use super::{BoxError, check, keys};
use crate::buffers::Share;
use crate::metrics::Route;

/// The service of the data listener, with its middleware.
pub fn data_service(
    context: Arc<HttpContext>,
) -> impl Service<Request<Incoming>, Response = DataResponse, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ 'static {
    let settings = &context.settings;
    let access = AccessPolicy::for_data(settings);
    let buffers = &context.buffers;
    let (deadline, body_limit) = (
        DeadlineLayer::new(settings.data_deadline),
        AdmissionLayer::new(BodyLimit::new(settings.max_body_bytes, buffers)),
    );
    let buffered = BufferedLayer::new(buffers, Share::Single);
    let count = CountLayer::new(Arc::clone(&context.metrics), classify);
    let routes = service_fn(move |request| {
        let context = Arc::clone(&context);
        // Boxed, because the layers around it move the future.
        Box::pin(async move { Ok(route(&context, request).await.unwrap_or_else(Problem::response::<Full<Bytes>>)) })
    });
    // From the inside out.
    let limited = body_limit.layer(deadline.layer(routes));
    count.layer(buffered.layer(OmitBodyLayer.layer(CatchPanicLayer.layer(AdmissionLayer::new(access).layer(limited)))))
}

fn classify(path: &str) -> Route {
    Resource::split(path).map_or(Route::Unknown, |(resource, _)| resource.route())
}

async fn route<B>(context: &HttpContext, request: Request<B>) -> Result<DataResponse, Problem>
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    let (mut head, body) = request.into_parts();
    match Resource::split(head.uri.path()) {
        None | Some((_, "")) => Err(Problem::unknown_route(StatusCode::BAD_REQUEST)),
        // Without a slash after the keyspace there is no key in the path: the keys are in the body.
        Some((resource, keyspace)) if !keyspace.contains('/') => {
            batch_route(context, resource, keyspace, &head, body).await
        }
        Some((resource, _)) => key_route(context, resource, &mut head, body).await,
    }
}

async fn key_route<B>(
    context: &HttpContext,
    resource: Resource,
    head: &mut Parts,
    body: B,
) -> Result<DataResponse, Problem>
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    let allow = match resource {
        Resource::Keys => keys::ALLOW,
        Resource::Check => check::ALLOW,
        Resource::Lookup | Resource::Invalidate => return Err(Problem::unknown_route(StatusCode::BAD_REQUEST)),
    };
    require_method(head, allow)?;
    let Some(path) = KeyPath::parse(head.uri.path()) else {
        return Err(Problem::unknown_route(StatusCode::BAD_REQUEST));
    };
    let request = KeyRequest::new(context, &path)?;
    batch::discard(body, context.settings.max_body_bytes).await?;
    match (resource, &head.method) {
        (Resource::Check, _) => Ok(check::get(&request, &head.headers)),
        (_, &Method::PUT) => keys::put(request).await,
        (_, &Method::DELETE) => keys::delete(request).await,
        _ => Ok(keys::get(request, &head.headers).await),
    }
}

async fn batch_route<B>(
    context: &HttpContext,
    resource: Resource,
    keyspace: &str,
    head: &Parts,
    body: B,
) -> Result<DataResponse, Problem>
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    require_method(head, batch::ALLOW)?;
    let request = BatchRequest::new(context, resource, keyspace, &head.headers, body).await?;
    match resource {
        Resource::Keys => batch::announce(request).await,
        Resource::Check => batch::check(request, &head.headers).await,
        Resource::Lookup => batch::lookup(request, &head.headers).await,
        Resource::Invalidate => batch::invalidate(request).await,
    }
}

fn require_method(head: &Parts, allow: &'static str) -> Result<(), Problem> {
    if allow.split(", ").any(|m| m == head.method.as_str()) { Ok(()) } else { Err(Problem::wrong_method(allow)) }
}
