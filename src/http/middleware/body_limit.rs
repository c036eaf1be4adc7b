//! No request body is longer than `server.max_body_bytes`.

use std::convert::Infallible;
use std::task::{Context, Poll};

use axum::http::header::CONTENT_LENGTH;
use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Limited;
use tower::{Layer, Service};

use super::RefusableFuture;
use crate::http::problem::Problem;

/// Refuses by 413 what says that it is too long; whoever reads a body that did not say gets an error at the limit, which
/// [`Problem::of_body`] knows.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct BodyLimitLayer(u64);

impl BodyLimitLayer {
    pub(in crate::http) const fn new(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl<S> Layer<S> for BodyLimitLayer {
    type Service = BodyLimit<S>;

    fn layer(&self, inner: S) -> BodyLimit<S> {
        BodyLimit { inner, bytes: self.0 }
    }
}

/// The service of [`BodyLimitLayer`].
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct BodyLimit<S> {
    inner: S,
    bytes: u64,
}

impl<S, B, R> Service<Request<B>> for BodyLimit<S>
where
    S: Service<Request<Limited<B>>, Response = Response<R>, Error = Infallible>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = RefusableFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let length = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.bytes) {
            return RefusableFuture::Refused { problem: Some(Problem::body_too_large(self.bytes)) };
        }
        let limit = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        RefusableFuture::Passed { inner: self.inner.call(request.map(|body| Limited::new(body, limit))) }
    }
}
