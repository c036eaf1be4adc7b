//! Reserves request heads and responses in the budget of buffered bytes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::{Request, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::BodyExt;
use hyper::body::Body;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::admission::AdmissionFuture;
use super::catch_panic::internal_error;
use crate::buffers::{Buffers, Overloaded, Reservation, Share};
use crate::http::pending_responses::PendingResponses;
use crate::http::problem::Problem;
use crate::labels::BufferRefusal;

/// Smaller HTTP/1 heads and responses are not reserved, because a connection has one of each at a time. HTTP/2 ones
/// always are.
pub(in crate::http) const SMALL: usize = 4 << 10;

/// Marks a response whose body is reserved already.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Reserved;

/// Reserves heads and responses. Must wrap every layer that makes responses.
#[derive(Debug, Clone)]
pub(in crate::http) struct BufferedLayer {
    buffers: Arc<Buffers>,
    share: Share,
}

impl BufferedLayer {
    pub(in crate::http) fn new(buffers: &Arc<Buffers>, share: Share) -> Self {
        Self { buffers: Arc::clone(buffers), share }
    }

    fn head<B>(&self, request: &Request<B>, http2: bool) -> Result<Option<Reservation>, Overloaded> {
        let headers = request.headers();
        let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
        let uri = request.uri();
        let target = uri.path_and_query().map_or(0, |target| target.as_str().len())
            + uri.authority().map_or(0, |host| host.as_str().len());
        // hyper's map needs about this much per field besides its text.
        let bytes = target + fields + headers.len() * 64;
        if bytes <= SMALL && !http2 {
            return Ok(None);
        }
        self.buffers.reserve(self.share, bytes as u64).map(Some)
    }

    /// The response with its body reserved until the client has read it, or the problem that there is no room.
    fn response<B: Body<Data = Bytes> + From<Bytes>>(
        &self,
        response: Response<B>,
        pending: Option<&PendingResponses>,
    ) -> Response<B> {
        let length = response.body().size_hint().exact().unwrap_or(0);
        if length == 0 || (pending.is_none() && length <= SMALL as u64) {
            return response;
        }
        let (mut head, body) = response.into_parts();
        // All our responses have their whole body from the start. One that does not fails here, because it would be
        // truncated.
        let Some(Ok(body)) = body.collect().now_or_never() else { return internal_error(None) };
        let body = body.to_bytes();
        let reserved = match head.extensions.remove::<Reserved>() {
            Some(Reserved) => Ok(body),
            None => self.buffers.reserve(self.share, body.len() as u64).map(|reservation| reservation.hold(body)),
        };
        let tracked = |body: Bytes| pending.map_or_else(|| body.clone(), |pending| pending.track(body.clone()));
        match reserved {
            Ok(body) => Response::from_parts(head, B::from(tracked(body))),
            Err(error) => {
                self.refusal(error, BufferRefusal::Response).response::<Bytes>().map(|body| B::from(tracked(body)))
            }
        }
    }

    fn refusal(&self, error: Overloaded, reason: BufferRefusal) -> Problem {
        self.buffers.refused(reason);
        Problem::from(&error)
    }
}

impl<S> Layer<S> for BufferedLayer {
    type Service = Buffered<S>;

    fn layer(&self, inner: S) -> Buffered<S> {
        Buffered { inner, layer: self.clone() }
    }
}

/// The service of [`BufferedLayer`].
#[derive(Debug, Clone)]
pub(in crate::http) struct Buffered<S> {
    inner: S,
    layer: BufferedLayer,
}

impl<S, B, R> Service<Request<B>> for Buffered<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: Body<Data = Bytes> + From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = BufferedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let pending = request.extensions().get::<PendingResponses>().cloned();
        let (inner, head) = match self.layer.head(&request, pending.is_some()) {
            Ok(head) => (AdmissionFuture::Passed { inner: self.inner.call(request) }, head),
            Err(error) => {
                (AdmissionFuture::Rejected { problem: Some(self.layer.refusal(error, BufferRefusal::Request)) }, None)
            }
        };
        BufferedFuture { inner, head, pending, layer: self.layer.clone() }
    }
}

pin_project! {
    /// The future of [`Buffered`].
    #[derive(Debug)]
    pub(in crate::http) struct BufferedFuture<F> {
        #[pin]
        inner: AdmissionFuture<F>,
        head: Option<Reservation>,
        pending: Option<PendingResponses>,
        layer: BufferedLayer,
    }
}

impl<F, R> Future for BufferedFuture<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
    R: Body<Data = Bytes> + From<Bytes>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(response) = ready!(this.inner.poll(cx));
        drop(this.head.take());
        Poll::Ready(Ok(this.layer.response(response, this.pending.as_ref())))
    }
}
