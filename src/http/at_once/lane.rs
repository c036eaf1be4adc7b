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

use super::AtOnce;
use super::head::{self, Read};
use super::text::Text;
use crate::http::activity::Activity;
use crate::http::middleware::SMALL;
use crate::http::observed::Observed;

/// A head must fit in.
const BUFFER: usize = 16 << 10;
/// hyper looks at a head again once it is whole: it is told that a malformed one is.
const END_OF_HEAD: &[u8] = b"\r\n\r\n";
/// What a connection over HTTP/2 begins with. hyper closes where it comes later, and answers 400 to what only resembles it.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Readings in a row of one connection, before others have their turn.
const MOST_ROUNDS: usize = 4;

/// A stream whose requests are answered in front of who reads from it, where they can be.
#[derive(Debug)]
pub(in crate::http) struct Lane {
    stream: Observed,
    at_once: Option<Arc<AtOnce>>,
    turn: Turn,
    /// Bytes that have arrived and that hyper has not been given.
    held: BytesMut,
    /// Answers that the socket has not taken.
    unsent: Unsent,
}

/// Whose bytes come next.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// Hyper waits for a request, and has got nothing of it. `look`: what is held has not been looked at.
    Ours { look: bool },
    /// Hyper has been given a request, or is being given it.
    Lent(Loan),
    /// Hyper reads for itself.
    Hypers,
    /// Hyper is given what is held, a malformed head and its end, and then nothing more: it answers 400 and closes.
    Refused,
    /// Nothing more is read.
    Ended,
}

#[derive(Debug, Clone, Copy)]
struct Loan {
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
struct Unsent {
    text: Bytes,
    value: Bytes,
}

/// What a thread needs for any of its connections, one at a time.
#[derive(Debug)]
struct Desk {
    input: Box<[u8]>,
    text: Text,
}

thread_local! {
    static DESK: Cell<Option<Box<Desk>>> = const { Cell::new(None) };
}

impl Lane {
    /// Without `at_once` every request is lent.
    pub(in crate::http) fn new(stream: Observed, at_once: Option<Arc<AtOnce>>) -> Self {
        Self { stream, at_once, turn: Turn::Ours { look: false }, held: BytesMut::new(), unsent: Unsent::default() }
    }

    /// Answers what can be; ready once hyper is to be given something, or there is nothing more to come.
    fn poll_answer(&mut self, cx: &mut Context<'_>, at_once: Option<&AtOnce>) -> Poll<io::Result<()>> {
        for _ in 0..MOST_ROUNDS {
            let Turn::Ours { look } = self.turn else { return Poll::Ready(Ok(())) };
            ready!(self.poll_unsent(cx))?;
            if !look && !self.held.is_empty() {
                // Its time begins here and not when its first bytes came: who has to take answers first is not late.
                self.stream.activity().expects_rest();
                // hyper knows how to wait for the rest of a head during a drain.
                if self.stream.activity().is_draining() {
                    self.turn = Turn::Hypers;
                    continue;
                }
            }
            let mut desk = DESK.take().unwrap_or_default();
            let answered = self.poll_round(cx, at_once, &mut desk, look);
            // What is left on it would be sent to the next connection.
            if desk.text.is_empty() {
                DESK.set(Some(desk));
            }
            ready!(answered)?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads once, unless there is something to `look` at, and answers what has come.
    fn poll_round(
        &mut self,
        cx: &mut Context<'_>,
        at_once: Option<&AtOnce>,
        desk: &mut Desk,
        look: bool,
    ) -> Poll<io::Result<()>> {
        let Desk { input, text } = desk;
        let held = self.held.len();
        input[..held].copy_from_slice(&self.held);
        let mut buf = ReadBuf::new(input);
        buf.set_filled(held);
        if !look {
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
        }
        let bytes = buf.filled();
        let (taken, turn) = match &bytes[held..] {
            [] if !look => (0, Turn::Hypers),
            // Heads that arrive in pieces are read again from their beginning: that a malformed one is known at once costs less than the pieces do.
            _ => self.answer(at_once, bytes, text),
        };
        // A connection that waits holds no memory.
        self.held = BytesMut::from(&bytes[taken..]);
        if matches!(turn, Turn::Refused) {
            self.held.extend_from_slice(END_OF_HEAD);
        }
        self.turn = turn;
        self.poll_send(cx, at_once, text)
    }

    /// Answers one request after another; how many bytes that were, and whose turn it is then.
    fn answer(&self, at_once: Option<&AtOnce>, bytes: &[u8], text: &mut Text) -> (usize, Turn) {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            // hyper would take it for the connection's first.
            let is_later = self.stream.activity().begun() > 0;
            if is_later && rest.len() < PREFACE.len() && PREFACE.starts_with(rest) {
                break;
            }
            if is_later && rest.starts_with(PREFACE) {
                return (bytes.len(), Turn::Ended);
            }
            // hyper bids clients farewell.
            if self.stream.activity().is_draining() {
                return (taken, Turn::Hypers);
            }
            if text.is_long() {
                return (taken, Turn::Ours { look: true });
            }
            let length = match head::read(rest) {
                Read::Plain(head) if at_once.is_some_and(|at_once| at_once.answer(&head, text)) => {
                    self.stream.activity().answered();
                    taken += head.length;
                    continue;
                }
                Read::Plain(head) => head.length as u64,
                Read::Whole(length) => length,
                Read::Partial if rest.len() < BUFFER => break,
                Read::Partial | Read::Other => return (taken, Turn::Hypers),
                Read::Malformed => return (taken, Turn::Refused),
            };
            let begun = self.stream.activity().begun();
            return (taken, Turn::Lent(Loan { left: length, begun, written: false, flushed: true }));
        }
        (taken, Turn::Ours { look: false })
    }

    /// Sends what has been written, and keeps what the socket does not take. An error: there is no room for that.
    fn poll_send(&mut self, cx: &mut Context<'_>, at_once: Option<&AtOnce>, text: &mut Text) -> Poll<io::Result<()>> {
        let (bytes, value) = text.take();
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let written = poll_write_both(&mut self.stream, cx, bytes, &value);
        let sent = if let Poll::Ready(Ok(sent)) = written { sent } else { 0 };
        let of_bytes = sent.min(bytes.len());
        let rest = Bytes::copy_from_slice(&bytes[of_bytes..]);
        let rest = match at_once {
            Some(at_once) if rest.len() > SMALL => at_once.hold(rest),
            _ => Ok(rest),
        };
        self.unsent = Unsent { text: rest.map_err(io::Error::other)?, value };
        self.unsent.advance(sent - of_bytes);
        bytes.clear();
        ready!(written)?;
        self.poll_unsent(cx)
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            self.stream.activity().sends(true);
            match ready!(poll_write_both(&mut self.stream, cx, &self.unsent.text, &self.unsent.value))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.unsent.advance(sent),
            }
            self.stream.activity().sends(!self.unsent.is_empty());
        }
        Poll::Ready(Ok(()))
    }

    /// Gives hyper what is held of its request, or lets it read.
    fn poll_hand_over(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let wanted = match self.turn {
            // Bytes before the answer is out: nobody need know whether they belong to this request or begin the next.
            Turn::Lent(Loan { left: 0, .. }) if !self.held.is_empty() => {
                self.turn = Turn::Hypers;
                usize::MAX
            }
            Turn::Lent(Loan { left, .. }) => usize::try_from(left).unwrap_or(usize::MAX),
            Turn::Refused | Turn::Ended if self.held.is_empty() => return Poll::Ready(Ok(())),
            Turn::Ours { .. } | Turn::Hypers | Turn::Refused | Turn::Ended => usize::MAX,
        };
        if self.held.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        } else {
            let given = self.held.len().min(buf.remaining()).min(wanted);
            buf.put_slice(&self.held[..given]);
            self.held.advance(given);
        }
        let given = (buf.filled().len() - before) as u64;
        if let Turn::Lent(loan) = &mut self.turn {
            match loan.left.checked_sub(given) {
                Some(left) => loan.left = left,
                // It has got more than its request.
                None => self.turn = Turn::Hypers,
            }
        }
        if self.held.is_empty() {
            // Most connections never hold anything.
            self.held = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

fn poll_write_both(stream: &mut Observed, cx: &mut Context<'_>, text: &[u8], value: &[u8]) -> Poll<io::Result<usize>> {
    let stream = Pin::new(stream);
    if value.is_empty() {
        stream.poll_write(cx, text)
    } else {
        stream.poll_write_vectored(cx, &[IoSlice::new(text), IoSlice::new(value)])
    }
}

impl Unsent {
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

impl Loan {
    /// Whether the request has been answered and its answer has gone out whole: hyper hands a body over in one piece, and flushes when it has written all.
    fn is_over(&self, activity: &Activity) -> bool {
        self.left == 0 && self.written && self.flushed && activity.begun() == self.begun + 1 && !activity.is_answering()
    }
}

impl Default for Desk {
    fn default() -> Self {
        Self { input: vec![0; BUFFER].into(), text: Text::default() }
    }
}

impl AsyncRead for Lane {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Turn::Lent(loan) = &this.turn
            && loan.is_over(this.stream.activity())
        {
            this.turn = Turn::Ours { look: !this.held.is_empty() };
        }
        if matches!(this.turn, Turn::Ours { .. }) {
            let at_once = this.at_once.take();
            let answered = this.poll_answer(cx, at_once.as_deref());
            this.at_once = at_once;
            ready!(answered)?;
        }
        // No answer of hyper's may overtake one of ours.
        ready!(this.poll_unsent(cx))?;
        this.poll_hand_over(cx, buf)
    }
}

impl AsyncWrite for Lane {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        debug_assert!(this.unsent.is_empty(), "hyper would write between our answers");
        if let Turn::Lent(loan) = &mut this.turn {
            // Also where the socket takes nothing now: hyper holds what it did not take.
            (loan.written, loan.flushed) = (true, false);
        }
        Pin::new(&mut this.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        if let Turn::Lent(loan) = &mut this.turn {
            loan.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_unsent(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
