//! HTTP/1.1 requests name their host once (RFC 9112, section 3.2).

use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::http::header::HOST;
use axum::http::{Request, Response, Version};
use bytes::Bytes;
use tower::{Layer, Service};

use super::RefusableFuture;
use crate::http::problem::Problem;

/// Refuses requests over HTTP/1.1 that have no `Host`, or several: proxies in front may have read another one.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct HostLayer;

impl<S> Layer<S> for HostLayer {
    type Service = OneHost<S>;

    fn layer(&self, inner: S) -> OneHost<S> {
        OneHost { inner }
    }
}

/// The service of [`HostLayer`].
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct OneHost<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for OneHost<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = RefusableFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.version() == Version::HTTP_11 && request.headers().get_all(HOST).iter().count() != 1 {
            let detail = "an HTTP/1.1 request must have exactly one Host header";
            return RefusableFuture::Refused { problem: Some(Problem::bad_request("host", "Not one Host", detail)) };
        }
        RefusableFuture::Passed { inner: self.inner.call(request) }
    }
}
