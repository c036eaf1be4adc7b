//! No request body is longer than `server.max_body_bytes`.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::header::CONTENT_LENGTH;
use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::Limited;
use tower::{Layer, Service};

use super::RefusableFuture;
use super::body_rate::PacedBody;
use crate::buffers::Buffers;
use crate::http::problem::Problem;

/// Nor does it come too slowly, see [`PacedBody`].
///
/// Refuses by 413 what says that it is too long; whoever reads a body that did not say gets an error at the limit, which
/// [`Problem::from_body_error`] knows.
#[derive(Debug, Clone)]
pub(in crate::http) struct BodyLimitLayer {
    bytes: u64,
    buffers: Arc<Buffers>,
}

impl BodyLimitLayer {
    pub(in crate::http) fn new(bytes: u64, buffers: &Arc<Buffers>) -> Self {
        Self { bytes, buffers: Arc::clone(buffers) }
    }
}

impl<S> Layer<S> for BodyLimitLayer {
    type Service = BodyLimit<S>;

    fn layer(&self, inner: S) -> BodyLimit<S> {
        BodyLimit { inner, layer: self.clone() }
    }
}

/// The service of [`BodyLimitLayer`].
#[derive(Debug, Clone)]
pub(in crate::http) struct BodyLimit<S> {
    inner: S,
    layer: BodyLimitLayer,
}

impl<S, B, R> Service<Request<B>> for BodyLimit<S>
where
    S: Service<Request<PacedBody<Limited<B>>>, Response = Response<R>, Error = Infallible>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = RefusableFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let BodyLimitLayer { bytes, buffers } = &self.layer;
        let length = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > *bytes) {
            return RefusableFuture::Refused { problem: Some(Problem::body_too_large(*bytes)) };
        }
        let limit = usize::try_from(*bytes).unwrap_or(usize::MAX);
        let limited = |body| PacedBody::new(Limited::new(body, limit), Arc::clone(buffers));
        RefusableFuture::Passed { inner: self.inner.call(request.map(limited)) }
    }
}
