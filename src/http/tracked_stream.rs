//! A connection's stream as hyper and the fast path see it. It records and meters what is read, and lingers on close so
//! that responses are not lost.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::activity::Activity;
use super::http2_frames::ControlFrameMeter;
use super::lingering_close::LingeringClose;
use super::stream::Stream;

/// A stream that records what passes.
#[derive(Debug)]
pub(super) struct TrackedStream {
    stream: Stream,
    activity: Arc<Activity>,
    frames: ControlFrameMeter,
    closing: Closing,
}

#[derive(Debug)]
enum Closing {
    Open,
    /// Writes are shut down. `Some`: waiting for the client to close.
    ShutDown(Option<LingeringClose>),
}

impl TrackedStream {
    pub(super) fn new(stream: Stream, activity: Arc<Activity>) -> Self {
        Self { stream, activity, frames: ControlFrameMeter::default(), closing: Closing::Open }
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    fn record_write(&mut self, offered: usize, written: &Poll<io::Result<usize>>) {
        let taken = if let Poll::Ready(Ok(taken)) = written { *taken } else { 0 };
        if taken < offered {
            self.activity.mark_blocked();
        }
        self.frames.record_sent(taken);
    }

    /// Sends GOAWAY, unless a write is still pending.
    fn cut_flood(&mut self, cx: &mut Context<'_>) {
        self.activity.mark_flooded();
        tracing::debug!("closing connection: HTTP/2 control frame flood");
        if !self.activity.is_blocked() {
            // Best effort: if the socket takes only part of it, the connection closes anyway.
            let _ = Pin::new(&mut self.stream).poll_write(cx, &self.frames.goaway());
        }
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.activity.was_flooded() {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            let now = Instant::now();
            this.activity.record_read(now);
            if this.frames.read(&buf.filled()[before..], now).is_err() {
                this.cut_flood(cx);
                // Looks to hyper like a close by the client: hyper finishes what it has and closes.
                buf.set_filled(before);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.record_write(buf.len(), &written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.record_write(bufs.iter().map(|buf| buf.len()).sum(), &written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes once it has written its own output. That says nothing about responses of the fast path.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if !self.activity.is_sending() {
            self.activity.mark_flushed();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if matches!(this.closing, Closing::Open) {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            let linger =
                if this.activity.was_flooded() { LingeringClose::after_flood } else { LingeringClose::default };
            this.closing = Closing::ShutDown(this.activity.try_linger().then(linger));
        }
        if let Closing::ShutDown(Some(linger)) = &mut this.closing {
            ready!(linger.poll_end(&mut this.stream, cx));
            this.closing = Closing::ShutDown(None);
        }
        Poll::Ready(Ok(()))
    }
}
