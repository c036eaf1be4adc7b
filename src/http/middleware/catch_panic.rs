//! Turns a panic of a handler into a 500.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::{Request, Response, StatusCode};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::http::problem::Problem;

/// Turns panics into problems. tower-http's layer boxes each response body, which the data path avoids.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct CatchPanicLayer;

impl<S> Layer<S> for CatchPanicLayer {
    type Service = CatchPanic<S>;

    fn layer(&self, inner: S) -> CatchPanic<S> {
        CatchPanic { inner }
    }
}

/// The service of [`CatchPanicLayer`].
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct CatchPanic<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for CatchPanic<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = CatchPanicFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Unwind safe: the request's own state is dropped.
        match catch_unwind(AssertUnwindSafe(|| self.inner.call(request))) {
            Ok(inner) => CatchPanicFuture::Running { inner },
            Err(panic) => CatchPanicFuture::Panicked { panic: Some(panic) },
        }
    }
}

pin_project! {
    /// The future of [`CatchPanic`].
    #[project = CatchPanicProj]
    pub(in crate::http) enum CatchPanicFuture<F> {
        Running { #[pin] inner: F },
        Panicked { panic: Option<Box<dyn Any + Send>> },
    }
}

impl<F, R> Future for CatchPanicFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
    R: From<Bytes>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let panic = match self.project() {
            CatchPanicProj::Running { inner } => match catch_unwind(AssertUnwindSafe(|| inner.poll(cx))) {
                Ok(polled) => return polled,
                Err(panic) => Some(panic),
            },
            CatchPanicProj::Panicked { panic } => panic.take(),
        };
        Poll::Ready(Ok(internal_error(panic.as_deref())))
    }
}

pub(in crate::http) fn internal_error<R: From<Bytes>>(panic: Option<&(dyn Any + Send)>) -> Response<R> {
    let message = panic
        .and_then(|p| p.downcast_ref::<&str>().copied().or_else(|| p.downcast_ref::<String>().map(String::as_str)));
    tracing::error!(panic = message.unwrap_or("no message"), "request handler panicked");
    // The panic's text stays in the log, because it may contain anything.
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        "Internal error",
        "internal server error; the log has details",
    )
    .response()
}
