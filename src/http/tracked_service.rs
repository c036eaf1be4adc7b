//! Reports each request and its end to [`Activity`].

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::header::{CONNECTION, HeaderValue};
use axum::http::{Request, Response, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use tower::Service;

use super::activity::{Activity, InFlight};

/// Reports requests to [`Activity`]. While draining it sends `Connection: close` to HTTP/1 clients.
///
/// hyper calls by shared reference: the cell saves a clone of the service for each request. Only services that are
/// always ready may be served, as all of ours are: each of them sheds inside `call`.
pub(super) struct TrackedService<S> {
    service: RefCell<S>,
    activity: Arc<Activity>,
}

impl<S> TrackedService<S> {
    pub(super) fn new(service: S, activity: Arc<Activity>) -> Self {
        Self { service: RefCell::new(service), activity }
    }
}

impl<S, B> hyper::service::Service<Request<Incoming>> for TrackedService<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body,
{
    type Response = Response<TrackedBody<B>>;
    type Error = Infallible;
    type Future = TrackedFuture<S::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let http2 = request.version() == Version::HTTP_2;
        if http2 {
            request.extensions_mut().insert(self.activity.pending_responses().clone());
        }
        let in_flight = self.activity.begin_request(http2);
        TrackedFuture { inner: self.service.borrow_mut().call(request), in_flight: Some(in_flight), http2 }
    }
}

pin_project! {
    /// The future of [`TrackedService`].
    pub(super) struct TrackedFuture<F> {
        #[pin]
        inner: F,
        in_flight: Option<InFlight>,
        http2: bool,
    }
}

impl<F, B> Future for TrackedFuture<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<TrackedBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.inner.poll(cx));
        let in_flight = this.in_flight.take();
        // HTTP/2 forbids the header and sends GOAWAY instead.
        if in_flight.as_ref().is_some_and(InFlight::is_last) && !*this.http2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response.map(|body| TrackedBody { body, in_flight })))
    }
}

pin_project! {
    /// Keeps the request in flight until hyper has taken the whole body.
    pub(super) struct TrackedBody<B> {
        #[pin]
        body: B,
        in_flight: Option<InFlight>,
    }
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
