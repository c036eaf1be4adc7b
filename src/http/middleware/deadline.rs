//! Limits the duration of requests.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Request, Response};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::{Layer, Service};

use crate::http::problem::Problem;

/// Answers 503 at the deadline.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct DeadlineLayer(Duration);

impl DeadlineLayer {
    pub(in crate::http) const fn new(limit: Duration) -> Self {
        Self(limit)
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner, limit: self.0 }
    }
}

/// The service of [`DeadlineLayer`].
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Deadline<S> {
    inner: S,
    limit: Duration,
}

impl<S, B, R> Service<Request<B>> for Deadline<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = DeadlineFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        DeadlineFuture { inner: self.inner.call(request), limit: self.limit, timer: None }
    }
}

pin_project! {
    /// The future of [`Deadline`].
    #[derive(Debug)]
    pub(in crate::http) struct DeadlineFuture<F> {
        #[pin]
        inner: F,
        limit: Duration,
        // Created when the handler first waits: answers of the filter never wait.
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<F, R> Future for DeadlineFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
    R: From<Bytes>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(response) = this.inner.poll(cx) {
            return Poll::Ready(response);
        }
        let limit = *this.limit;
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        timer.as_mut().poll(cx).map(|()| {
            let detail = format!("the request did not finish within this listener's {limit:?}");
            Ok(Problem::unavailable("request-deadline", "Deadline exceeded", detail).response())
        })
    }
}
