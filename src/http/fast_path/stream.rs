//! The stream in front of hyper that answers requests on the fast path.
//!
//! While hyper waits for a request, the bytes that arrive are parsed here first. A request that can be answered at once
//! is answered into the socket, and hyper never sees it. Any other request is handed over to hyper alone. What follows
//! is parsed here again once hyper's response has been sent completely.
//!
//! So responses keep the order of their requests. Both sides always agree where a request begins, because only requests
//! with an unambiguous end are handed over. When in doubt, hyper reads by itself from then on: after a request whose
//! end only hyper knows, after bytes that arrive before a response is sent, during a drain, and over HTTP/2.

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

/// Input buffer. A head must fit.
const BUFFER_BYTES: usize = 16 << 10;
/// Completes a malformed head, because hyper parses a head again only once it is complete.
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// The preface of an HTTP/2 connection. hyper closes the connection if it comes later, and answers 400 to a mere
/// resemblance.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Consecutive reads of one connection before others get their turn.
const MAX_READS_IN_A_ROW: usize = 4;

/// A stream that answers requests in front of its reader where possible.
#[derive(Debug)]
pub(in crate::http) struct FastPath {
    stream: TrackedStream,
    responder: Option<Arc<FastResponder>>,
    owner: Owner,
    /// Bytes that have arrived and were not given to hyper.
    buffered: BytesMut,
    /// Responses that the socket has not accepted.
    pending: PendingWrite,
}

/// Who reads the next bytes.
#[derive(Debug, Clone, Copy)]
enum Owner {
    /// Hyper waits for a request and has received nothing of it. `unparsed`: the buffered bytes have not been parsed
    /// yet.
    FastPath { unparsed: bool },
    /// Hyper handles one request.
    Hyper(HandedOver),
    /// Hyper reads by itself until the connection ends.
    HyperForGood,
    /// Hyper gets the buffered malformed head, completed, and nothing more. It answers 400 and closes.
    Malformed,
    /// Nothing more is read.
    Closed,
}

#[derive(Debug, Clone, Copy)]
struct HandedOver {
    /// Bytes of the request that hyper has not received yet.
    left: u64,
    /// Requests that had begun before.
    begun: u64,
    /// Whether hyper has written since.
    written: bool,
    /// Whether everything written has been flushed.
    flushed: bool,
}

#[derive(Debug, Default)]
struct PendingWrite {
    text: Bytes,
    value: Bytes,
}

/// Buffers that a thread's connections share, one at a time.
#[derive(Debug)]
struct Scratch {
    input: Box<[u8]>,
    response: ResponseBuffer,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl FastPath {
    /// Without a `responder` every request is handed over.
    pub(in crate::http) fn new(stream: TrackedStream, responder: Option<Arc<FastResponder>>) -> Self {
        Self {
            stream,
            responder,
            owner: Owner::FastPath { unparsed: false },
            buffered: BytesMut::new(),
            pending: PendingWrite::default(),
        }
    }

    /// Answers requests. Ready once hyper must read, or at the end of the stream.
    fn poll_answer(&mut self, cx: &mut Context<'_>, responder: Option<&FastResponder>) -> Poll<io::Result<()>> {
        for _ in 0..MAX_READS_IN_A_ROW {
            let Owner::FastPath { unparsed } = self.owner else { return Poll::Ready(Ok(())) };
            ready!(self.poll_pending(cx))?;
            if !unparsed && !self.buffered.is_empty() {
                // The header timeout starts here and not with the first bytes: a client that has to read responses
                // first is not late.
                self.stream.activity().expect_rest_of_head();
                // hyper waits for the rest of a head during a drain.
                if self.stream.activity().is_draining() {
                    self.owner = Owner::HyperForGood;
                    continue;
                }
            }
            let mut scratch = SCRATCH.take().unwrap_or_default();
            let answered = self.poll_once(cx, responder, &mut scratch, unparsed);
            // Bytes left in the buffer would go to the next connection.
            if scratch.response.is_empty() {
                SCRATCH.set(Some(scratch));
            }
            ready!(answered)?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, unless bytes are `unparsed`, and answers what has arrived.
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
            // A head that arrives in pieces is parsed again from its start. A malformed head is detected early, which
            // costs less than the pieces do.
            _ => self.answer(responder, bytes, response),
        };
        // An idle connection holds no memory.
        self.buffered = BytesMut::from(&bytes[taken..]);
        if matches!(owner, Owner::Malformed) {
            self.buffered.extend_from_slice(END_OF_HEAD);
        }
        self.owner = owner;
        self.poll_send(cx, responder, response)
    }

    /// Answers consecutive requests. Returns the bytes consumed and who reads next.
    fn answer(&self, responder: Option<&FastResponder>, bytes: &[u8], response: &mut ResponseBuffer) -> (usize, Owner) {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            // hyper would take a preface for the connection's first one.
            let is_later = self.stream.activity().begun() > 0;
            if is_later && rest.len() < PREFACE.len() && PREFACE.starts_with(rest) {
                break;
            }
            if is_later && rest.starts_with(PREFACE) {
                return (bytes.len(), Owner::Closed);
            }
            // While draining, hyper takes over: it sends `Connection: close`.
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

    /// Sends the response buffer and keeps what the socket does not accept. Fails if the budget has no room for that.
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

    /// Gives hyper the buffered bytes of its request, or lets it read.
    fn poll_hand_over(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let wanted = match self.owner {
            // Bytes before the response is sent: they belong to this request or to the next one, and hyper decides.
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
                // hyper has read more than its request.
                None => self.owner = Owner::HyperForGood,
            }
        }
        if self.buffered.is_empty() {
            // Most connections never buffer anything.
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
    /// Records that bytes were sent.
    fn advance(&mut self, sent: usize) {
        let of_text = sent.min(self.text.len());
        self.text.advance(of_text);
        self.value.advance(sent - of_text);
        if self.is_empty() {
            // An empty slice at the end keeps the whole allocation alive.
            *self = Self::default();
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.value.is_empty()
    }
}

impl HandedOver {
    /// Whether the response has been sent completely. hyper writes a body in one piece and flushes when it has written
    /// everything.
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
        // A response of hyper must not overtake one of the fast path.
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
            // Also if the socket accepts nothing now: hyper keeps the rest and writes it later.
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
