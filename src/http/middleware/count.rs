//! `http_requests_total`.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::{Method, Request, Response};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::metrics::{self, Metrics, Route};

/// Counts responses. The outermost layer, so that it also sees rejected requests.
#[derive(Debug, Clone)]
pub(in crate::http) struct CountLayer {
    metrics: Arc<Metrics>,
    classify: fn(&str) -> Route,
}

impl CountLayer {
    /// `classify` maps a path to its route.
    pub(in crate::http) fn new(metrics: Arc<Metrics>, classify: fn(&str) -> Route) -> Self {
        Self { metrics, classify }
    }
}

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count { inner, layer: self.clone() }
    }
}

/// The service of [`CountLayer`].
#[derive(Debug, Clone)]
pub(in crate::http) struct Count<S> {
    inner: S,
    layer: CountLayer,
}

impl<S, B, R> Service<Request<B>> for Count<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = CountFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let route = (self.layer.classify)(request.uri().path());
        let method = method(request.method());
        CountFuture { inner: self.inner.call(request), metrics: Arc::clone(&self.layer.metrics), route, method }
    }
}

fn method(method: &Method) -> metrics::Method {
    match *method {
        Method::GET => metrics::Method::Get,
        Method::HEAD => metrics::Method::Head,
        Method::PUT => metrics::Method::Put,
        Method::POST => metrics::Method::Post,
        Method::DELETE => metrics::Method::Delete,
        _ => metrics::Method::Other,
    }
}

pin_project! {
    /// The future of [`Count`]. Counts nothing if it is dropped before the response, as when the client disconnects.
    #[derive(Debug)]
    pub(in crate::http) struct CountFuture<F> {
        #[pin]
        inner: F,
        metrics: Arc<Metrics>,
        route: Route,
        method: metrics::Method,
    }
}

impl<F, R> Future for CountFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(response) = ready!(this.inner.poll(cx));
        this.metrics.http.request(*this.route, *this.method, response.status().as_u16());
        Poll::Ready(Ok(response))
    }
}
