//! Requires that a request body keeps arriving.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use crate::buffers::Buffers;
use crate::http::BoxError;
use crate::labels::BufferRefusal;

/// Time over which the rate of a body is measured.
const WINDOW: Duration = Duration::from_secs(5);
/// Bytes that must arrive in each window: 16 KiB a second.
const MIN_BYTES_PER_WINDOW: u64 = 16 * 1024 * WINDOW.as_secs();

/// The client sends its body too slowly while memory is reserved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request body arrived too slowly: fewer than {MIN_BYTES_PER_WINDOW} bytes in {WINDOW:?}")]
pub(in crate::http) struct SlowBody;

pin_project! {
    /// A body that fails with [`SlowBody`] if it arrives too slowly.
    #[derive(Debug)]
    pub(in crate::http) struct PacedBody<B> {
        #[pin]
        inner: B,
        buffers: Arc<Buffers>,
        // Bytes since the window began.
        came: u64,
        // Created when the body first has to be awaited.
        window: Option<Pin<Box<Sleep>>>,
    }
}

impl<B> PacedBody<B> {
    pub(super) const fn new(inner: B, buffers: Arc<Buffers>) -> Self {
        Self { inner, buffers, came: 0, window: None }
    }
}

impl<B: Body<Data = Bytes, Error = BoxError>> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        // Bytes that have arrived count, even if they are read late.
        if let Poll::Ready(frame) = this.inner.poll_frame(cx) {
            if let Some(Ok(frame)) = &frame {
                *this.came += frame.data_ref().map_or(0, Bytes::len) as u64;
            }
            return Poll::Ready(frame);
        }
        let window = this.window.get_or_insert_with(|| Box::pin(sleep(WINDOW)));
        loop {
            ready!(window.as_mut().poll(cx));
            if *this.came < MIN_BYTES_PER_WINDOW {
                this.buffers.refused(BufferRefusal::SlowBody);
                return Poll::Ready(Some(Err(SlowBody.into())));
            }
            *this.came = 0;
            window.as_mut().reset(Instant::now() + WINDOW);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;
    use crate::metrics::Metrics;

    /// Reads a body that arrives in one piece of `bytes` bytes each second.
    async fn read(pieces: usize, bytes: usize) -> Result<usize, BoxError> {
        let pieces = stream::iter(0..pieces).then(move |_| async move {
            sleep(Duration::from_secs(1)).await;
            Ok::<_, BoxError>(Frame::data(vec![0; bytes].into()))
        });
        let body = PacedBody::new(StreamBody::new(pieces), Buffers::new(1, Metrics::new().buffers));
        Ok(Box::pin(body).collect().await?.to_bytes().len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_may_come_slowly_but_must_come() {
        assert_eq!(read(60, 17 << 10).await.unwrap(), 60 * (17 << 10));
        assert_eq!(read(4, 1).await.unwrap(), 4, "what is short enough may take the whole window");
        for (pieces, bytes) in [(60, 15 << 10), (6, 1)] {
            assert!(read(pieces, bytes).await.unwrap_err().is::<SlowBody>(), "{pieces} pieces of {bytes} bytes");
        }
    }
}
