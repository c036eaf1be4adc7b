//! The way of a connection's bytes past hyper.
//!
//! As long as hyper waits for a request, the bytes that arrive are looked at here first. A request that can be answered at once is answered into the socket, and
//! hyper never sees it. Any other is lent to hyper, alone, and what follows is looked at here again once its answer has gone out whole. So answers keep the order
//! of their requests, and both sides always agree where a request begins, since only requests are lent that end where both must say they do. When in doubt, hyper
//! reads for itself from then on: on a request whose end only hyper can tell, on bytes that arrive before an answer is out, during a drain, and over HTTP/2.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::FastResponder;
use super::head::{self, Parsed};
use super::response::ResponseBuffer;
use crate::http::activity::Activity;
use crate::http::middleware::SMALL;
use crate::http::tracked_stream::TrackedStream;

/// A head must fit in.
const BUFFER_BYTES: usize = 16 << 10;
/// hyper looks at a head again once it is whole: it is told that a malformed one is.
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// What a connection over HTTP/2 begins with. hyper closes where it comes later, and answers 400 to what only resembles it.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Readings in a row of one connection, before others have their turn.
const MAX_READS_IN_A_ROW: usize = 4;

/// A stream whose requests are answered in front of who reads from it, where they can be.
#[derive(Debug)]
pub(in crate::http) struct FastPath {
    stream: TrackedStream,
    responder: Option<Arc<FastResponder>>,
    owner: Owner,
    /// Bytes that have arrived and that hyper has not been given.
    buffered: BytesMut,
    /// Answers that the socket has not taken.
    pending: PendingWrite,
}

/// Whose bytes come next.
#[derive(Debug, Clone, Copy)]
enum Owner {
    /// Hyper waits for a request, and has got nothing of it. `unparsed`: what is held has not been looked at.
    FastPath { unparsed: bool },
    /// Hyper has been given a request, or is being given it.
    Hyper(HandedOver),
    /// Hyper reads for itself.
    HyperForGood,
    /// Hyper is given what is held, a malformed head and its end, and then nothing more: it answers 400 and closes.
    Malformed,
    /// Nothing more is read.
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct HandedOver {
    /// Of its bytes, those that hyper has not been given.
    left: u64,
    /// Requests that had begun before.
    begun: u64,
    /// Something has been written since.
    written: bool,
    /// All that was written is in the socket.
    flushed: bool,
}

#[derive(Debug, Default)]
struct PendingWrite {
    text: Bytes,
    value: Bytes,
}

/// What a thread needs for any of its connections, one at a time.
#[derive(Debug)]
struct Scratch {
    input: Box<[u8]>,
    response: ResponseBuffer,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl FastPath {
    /// Without `responder` every request is lent.
    pub(in crate::http) fn new(stream: TrackedStream, responder: Option<Arc<FastResponder>>) -> Self {
        Self {
            stream,
            responder,
            owner: Owner::FastPath { unparsed: false },
            buffered: BytesMut::new(),
            pending: PendingWrite::default(),
        }
    }

    /// Answers what can be; ready once hyper is to be given something, or there is nothing more to come.
    fn poll_answer(&mut self, cx: &mut Context<'_>, responder: Option<&FastResponder>) -> Poll<io::Result<()>> {
        for _ in 0..MAX_READS_IN_A_ROW {
            let Owner::FastPath { unparsed } = self.owner else { return Poll::Ready(Ok(())) };
            ready!(self.poll_pending(cx))?;
            if !unparsed && !self.buffered.is_empty() {
                // Its time begins here and not when its first bytes came: who has to take answers first is not late.
                self.stream.activity().expect_rest_of_head();
                // hyper knows how to wait for the rest of a head during a drain.
                if self.stream.activity().is_draining() {
                    self.owner = Owner::HyperForGood;
                    continue;
                }
            }
            let mut scratch = SCRATCH.take().unwrap_or_default();
            let answered = self.poll_once(cx, responder, &mut scratch, unparsed);
            // What is left on it would be sent to the next connection.
            if scratch.response.is_empty() {
                SCRATCH.set(Some(scratch));
            }
            ready!(answered)?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, unless there is something to `unparsed` at, and answers what has come.
    fn poll_once(
        &mut self,
        cx: &mut Context<'_>,
        responder: Option<&FastResponder>,
        scratch: &mut Scratch,
        unparsed: bool,
    ) -> Poll<io::Result<()>> {
        let Scratch { input, response } = scratch;
        let buffered = self.buffered.len();
        input[..buffered].copy_from_slice(&self.buffered);
        let mut buf = ReadBuf::new(input);
        buf.set_filled(buffered);
        if !unparsed {
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        }
        let bytes = buf.filled();
        let (taken, owner) = match &bytes[buffered..] {
            [] if !unparsed => (0, Owner::HyperForGood),
            // Heads that arrive in pieces are read again from their beginning: that a malformed one is known at once costs less than the pieces do.
            _ => self.answer(responder, bytes, response),
        };
        // A connection that waits holds no memory.
        self.buffered = BytesMut::from(&bytes[taken..]);
        if matches!(owner, Owner::Malformed) {
            self.buffered.extend_from_slice(END_OF_HEAD);
        }
        self.owner = owner;
        self.poll_send(cx, responder, response)
    }

    /// Answers one request after another; how many bytes that were, and whose turn it is then.
    fn answer(&self, responder: Option<&FastResponder>, bytes: &[u8], response: &mut ResponseBuffer) -> (usize, Owner) {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            // hyper would take it for the connection's first.
            let is_later = self.stream.activity().begun() > 0;
            if is_later && rest.len() < PREFACE.len() && PREFACE.starts_with(rest) {
                break;
            }
            if is_later && rest.starts_with(PREFACE) {
                return (bytes.len(), Owner::Closed);
            }
            // hyper bids clients farewell.
            if self.stream.activity().is_draining() {
                return (taken, Owner::HyperForGood);
            }
            if response.is_long() {
                return (taken, Owner::FastPath { unparsed: true });
            }
            let length = match head::parse(rest) {
                Parsed::Simple(head) if responder.is_some_and(|responder| responder.answer(&head, response)) => {
                    self.stream.activity().record_fast_answer();
                    taken += head.length;
                    continue;
                }
                Parsed::Simple(head) => head.length as u64,
                Parsed::Delimited(length) => length,
                Parsed::Partial if rest.len() < BUFFER_BYTES => break,
                Parsed::Partial | Parsed::Other => return (taken, Owner::HyperForGood),
                Parsed::Malformed => return (taken, Owner::Malformed),
            };
            let begun = self.stream.activity().begun();
            return (taken, Owner::Hyper(HandedOver { left: length, begun, written: false, flushed: true }));
        }
        (taken, Owner::FastPath { unparsed: false })
    }

    /// Sends what has been written, and keeps what the socket does not take. An error: there is no room for that.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        responder: Option<&FastResponder>,
        response: &mut ResponseBuffer,
    ) -> Poll<io::Result<()>> {
        let (bytes, value) = response.take();
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let written = poll_write_both(&mut self.stream, cx, bytes, &value);
        let sent = if let Poll::Ready(Ok(sent)) = written { sent } else { 0 };
        let of_bytes = sent.min(bytes.len());
        let rest = Bytes::copy_from_slice(&bytes[of_bytes..]);
        let rest = match responder {
            Some(responder) if rest.len() > SMALL => responder.reserve_bytes(rest),
            _ => Ok(rest),
        };
        self.pending = PendingWrite { text: rest.map_err(io::Error::other)?, value };
        self.pending.advance(sent - of_bytes);
        bytes.clear();
        ready!(written)?;
        self.poll_pending(cx)
    }

    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            self.stream.activity().set_sending(true);
            match ready!(poll_write_both(&mut self.stream, cx, &self.pending.text, &self.pending.value))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.pending.advance(sent),
            }
            self.stream.activity().set_sending(!self.pending.is_empty());
        }
        Poll::Ready(Ok(()))
    }

    /// Gives hyper what is held of its request, or lets it read.
    fn poll_hand_over(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let wanted = match self.owner {
            // Bytes before the answer is out: nobody need know whether they belong to this request or begin the next.
            Owner::Hyper(HandedOver { left: 0, .. }) if !self.buffered.is_empty() => {
                self.owner = Owner::HyperForGood;
                usize::MAX
            }
            Owner::Hyper(HandedOver { left, .. }) => usize::try_from(left).unwrap_or(usize::MAX),
            Owner::Malformed | Owner::Closed if self.buffered.is_empty() => return Poll::Ready(Ok(())),
            Owner::FastPath { .. } | Owner::HyperForGood | Owner::Malformed | Owner::Closed => usize::MAX,
        };
        if self.buffered.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        } else {
            let given = self.buffered.len().min(buf.remaining()).min(wanted);
            buf.put_slice(&self.buffered[..given]);
            self.buffered.advance(given);
        }
        let given = (buf.filled().len() - before) as u64;
        if let Owner::Hyper(handed_over) = &mut self.owner {
            match handed_over.left.checked_sub(given) {
                Some(left) => handed_over.left = left,
                // It has got more than its request.
                None => self.owner = Owner::HyperForGood,
            }
        }
        if self.buffered.is_empty() {
            // Most connections never hold anything.
            self.buffered = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

fn poll_write_both(
    stream: &mut TrackedStream,
    cx: &mut Context<'_>,
    text: &[u8],
    value: &[u8],
) -> Poll<io::Result<usize>> {
    let stream = Pin::new(stream);
    if value.is_empty() {
        stream.poll_write(cx, text)
    } else {
        stream.poll_write_vectored(cx, &[IoSlice::new(text), IoSlice::new(value)])
    }
}

impl PendingWrite {
    /// So many bytes have been sent.
    fn advance(&mut self, sent: usize) {
        let of_text = sent.min(self.text.len());
        self.text.advance(of_text);
        self.value.advance(sent - of_text);
        if self.is_empty() {
            // What is at its end holds on to all that was there.
            *self = Self::default();
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.value.is_empty()
    }
}

impl HandedOver {
    /// Whether the request has been answered and its answer has gone out whole: hyper hands a body over in one piece, and flushes when it has written all.
    fn is_answered(&self, activity: &Activity) -> bool {
        self.left == 0 && self.written && self.flushed && activity.begun() == self.begun + 1 && !activity.has_requests()
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self { input: vec![0; BUFFER_BYTES].into(), response: ResponseBuffer::default() }
    }
}

impl AsyncRead for FastPath {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Owner::Hyper(handed_over) = &this.owner
            && handed_over.is_answered(this.stream.activity())
        {
            this.owner = Owner::FastPath { unparsed: !this.buffered.is_empty() };
        }
        if matches!(this.owner, Owner::FastPath { .. }) {
            let responder = this.responder.take();
            let answered = this.poll_answer(cx, responder.as_deref());
            this.responder = responder;
            ready!(answered)?;
        }
        // No answer of hyper's may overtake one of ours.
        ready!(this.poll_pending(cx))?;
        this.poll_hand_over(cx, buf)
    }
}

impl AsyncWrite for FastPath {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        debug_assert!(this.pending.is_empty(), "hyper would write between our answers");
        if let Owner::Hyper(handed_over) = &mut this.owner {
            // Also where the socket takes nothing now: hyper holds what it did not take.
            (handed_over.written, handed_over.flushed) = (true, false);
        }
        Pin::new(&mut this.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        if let Owner::Hyper(handed_over) = &mut this.owner {
            handed_over.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_pending(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
