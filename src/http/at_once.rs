//! Answers that wait for nothing, given before the layers: what the filter calls absent, what it is asked alone, what the hot tier holds, and what a
//! set in memory answers.
//!
//! Such an answer takes less time than a request takes from layer to layer, a future in a future. So this path looks at the request where hyper has put it,
//! and answers from its head alone; whatever it does not answer goes through the layers as if it had not been looked at. What those do, it does too: it demands
//! the token, it counts the answer, a panic ends the request and nothing else. `HEAD`, bodies and requests that are refused are left to them.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::{self, HeaderMap, Request, Uri, Version};
use futures_util::future::Either;
use hyper::body::Body;
use tower::{Layer, Service};

use super::answer::DataResponse;
use super::context::HttpContext;
use super::data::classify;
use super::key_request::KeyRequest;
use super::middleware::{Access, internal_error};
use super::path::{KeyPath, Resource};
use super::{check, keys};
use crate::metrics::Method;

/// Puts [`AtOnce`] in front of a service.
#[derive(Debug, Clone)]
pub(super) struct AtOnceLayer {
    context: Arc<HttpContext>,
    access: Access,
}

impl AtOnceLayer {
    /// `access`: what the layers demand too.
    pub(super) const fn new(context: Arc<HttpContext>, access: Access) -> Self {
        Self { context, access }
    }

    fn may_answer<B: Body>(&self, request: &Request<B>) -> bool {
        request.method() == http::Method::GET && request.body().is_end_stream() && self.access.admits(request)
    }

    /// `None`: the layers are to be asked, with the headers as they are.
    fn answer(&self, uri: &Uri, version: Version, headers: &mut HeaderMap) -> Option<DataResponse> {
        let path = KeyPath::parse(uri.path())?;
        let mut request = KeyRequest::new(&self.context, &path).ok()?;
        request.answer.length_is_written = version != Version::HTTP_2;
        match path.resource {
            Resource::Keys => keys::get_at_once(request, headers),
            Resource::Check => Some(check::get(request, headers)),
            Resource::Lookup | Resource::Invalidate => None,
        }
    }
}

impl<S> Layer<S> for AtOnceLayer {
    type Service = AtOnce<S>;

    fn layer(&self, inner: S) -> AtOnce<S> {
        AtOnce { layer: self.clone(), inner }
    }
}

/// The service of [`AtOnceLayer`].
#[derive(Debug, Clone)]
pub(super) struct AtOnce<S> {
    layer: AtOnceLayer,
    inner: S,
}

impl<S, B> Service<Request<B>> for AtOnce<S>
where
    S: Service<Request<B>, Response = DataResponse, Error = Infallible>,
    B: Body,
{
    type Response = DataResponse;
    type Error = Infallible;
    type Future = Either<Ready<Result<DataResponse, Infallible>>, Pin<Box<S::Future>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if !self.layer.may_answer(&request) {
            return Either::Right(Box::pin(self.inner.call(request)));
        }
        let mut headers = std::mem::take(request.headers_mut());
        // Unwind safe: what a panic may have left half done is the request's own, and nobody looks at it again.
        let response = match catch_unwind(AssertUnwindSafe(|| self.layer.answer(request.uri(), request.version(), &mut headers))) {
            Ok(Some(response)) => response,
            Ok(None) => {
                *request.headers_mut() = headers;
                return Either::Right(Box::pin(self.inner.call(request)));
            }
            Err(panic) => internal_error(Some(&*panic)),
        };
        let metrics = &self.layer.context.metrics.http;
        metrics.request(classify(request.uri().path()), Method::Get, response.status().as_u16());
        Either::Left(ready(Ok(response)))
    }
}
