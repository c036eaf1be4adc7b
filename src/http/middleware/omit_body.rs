//! Answers `HEAD` with the headers of `GET` and no body.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::http::header::{CONTENT_LENGTH, HeaderValue};
use axum::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use hyper::body::Body;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

/// Drops bodies and keeps Content-Length. hyper does so for HTTP/1 only; over HTTP/2 it would send the body.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct OmitBodyLayer;

impl<S> Layer<S> for OmitBodyLayer {
    type Service = OmitBody<S>;

    fn layer(&self, inner: S) -> OmitBody<S> {
        OmitBody { inner }
    }
}

/// The service of [`OmitBodyLayer`].
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct OmitBody<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for OmitBody<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: Body + From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = OmitBodyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let is_head = request.method() == Method::HEAD;
        OmitBodyFuture { inner: self.inner.call(request), is_head }
    }
}

pin_project! {
    /// The future of [`OmitBody`].
    #[derive(Debug)]
    pub(in crate::http) struct OmitBodyFuture<F> {
        #[pin]
        inner: F,
        is_head: bool,
    }
}

impl<F, R> Future for OmitBodyFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
    R: Body + From<Bytes>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(response) = ready!(this.inner.poll(cx));
        Poll::Ready(Ok(if *this.is_head { without_body(response) } else { response }))
    }
}

fn without_body<R: Body + From<Bytes>>(response: Response<R>) -> Response<R> {
    let (mut head, body) = response.into_parts();
    // RFC 9110: a 204 has no Content-Length.
    if let Some(length) = body.size_hint().exact().filter(|_| head.status != StatusCode::NO_CONTENT) {
        head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    Response::from_parts(head, R::from(Bytes::new()))
}
