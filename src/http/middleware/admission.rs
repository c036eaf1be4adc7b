//! The layer for everything that inspects a request's head and then passes the request on or rejects it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::{Request, Response};
use bytes::Bytes;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::http::problem::Problem;

/// Decides whether a request may pass. It may change the request.
pub(in crate::http) trait Admission<B> {
    /// The body that the inner service receives.
    type Body;

    /// Returns the request for the inner service, or the problem that answers it.
    fn admit(&self, request: Request<B>) -> Result<Request<Self::Body>, Problem>;
}

/// Puts an [`Admission`] in front of a service.
#[derive(Debug)]
pub(in crate::http) struct AdmissionLayer<A>(Arc<A>);

impl<A> AdmissionLayer<A> {
    pub(in crate::http) fn new(admission: A) -> Self {
        Self(Arc::new(admission))
    }
}

// A derived `Clone` would require `A: Clone`.
impl<A> Clone for AdmissionLayer<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A, S> Layer<S> for AdmissionLayer<A> {
    type Service = AdmissionService<A, S>;

    fn layer(&self, inner: S) -> AdmissionService<A, S> {
        AdmissionService { inner, admission: Arc::clone(&self.0) }
    }
}

/// The service of [`AdmissionLayer`].
#[derive(Debug)]
pub(in crate::http) struct AdmissionService<A, S> {
    inner: S,
    admission: Arc<A>,
}

impl<A, S: Clone> Clone for AdmissionService<A, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), admission: Arc::clone(&self.admission) }
    }
}

impl<A, S, B, R> Service<Request<B>> for AdmissionService<A, S>
where
    A: Admission<B>,
    S: Service<Request<A::Body>, Response = Response<R>, Error = Infallible>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = AdmissionFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.admission.admit(request) {
            Ok(request) => AdmissionFuture::Passed { inner: self.inner.call(request) },
            Err(problem) => AdmissionFuture::Rejected { problem: Some(problem) },
        }
    }
}

pin_project! {
    /// The inner service's future, or the problem that answers without it.
    #[derive(Debug)]
    #[project = AdmissionProj]
    pub(in crate::http) enum AdmissionFuture<F> {
        /// The inner service was called.
        Passed { #[pin] inner: F },
        /// The inner service was not called.
        Rejected { problem: Option<Problem> },
    }
}

impl<F, B> Future for AdmissionFuture<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: From<Bytes>,
{
    type Output = F::Output;

    #[allow(clippy::expect_used, reason = "a future is not polled after it is ready")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            AdmissionProj::Passed { inner } => Poll::Ready(ready!(inner.poll(cx))),
            AdmissionProj::Rejected { problem } => {
                Poll::Ready(Ok(problem.take().expect("polled after it was ready").response()))
            }
        }
    }
}
