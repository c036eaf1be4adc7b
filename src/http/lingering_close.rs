//! Lingering close: waits for the client to close after all requests are answered.
//!
//! The kernel resets a connection that is closed with unread input. A reset destroys responses that the client has
//! received but not read. So input is read and discarded, within bounds.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::stream::Stream;

/// A client that is silent for this long has read its responses, or never will.
const QUIET_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_LINGER: Duration = Duration::from_secs(5);
/// Bytes: four times the default `server.max_body_bytes`, so that clients that send everything before they read still
/// see the 413.
const MAX_DISCARDED: usize = 64 << 20;
/// Bytes, for a client that floods the connection.
const MAX_DISCARDED_OF_FLOOD: usize = 1 << 20;
const CHUNK_BYTES: usize = 16 << 10;

/// A connection that only waits for the client's close.
#[derive(Debug)]
pub(super) struct LingeringClose {
    quiet: Pin<Box<Sleep>>,
    until: Instant,
    left: usize,
}

impl Default for LingeringClose {
    fn default() -> Self {
        Self { quiet: Box::pin(sleep(QUIET_TIMEOUT)), until: Instant::now() + MAX_LINGER, left: MAX_DISCARDED }
    }
}

impl LingeringClose {
    /// For a client that may never stop sending.
    pub(super) fn after_flood() -> Self {
        Self { left: MAX_DISCARDED_OF_FLOOD, ..Self::default() }
    }

    /// Ready once the connection may be closed.
    pub(super) fn poll_end(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<()> {
        let mut piece = [const { MaybeUninit::uninit() }; CHUNK_BYTES];
        loop {
            let mut discarded = ReadBuf::uninit(&mut piece);
            match Pin::new(&mut *stream).poll_read(cx, &mut discarded) {
                Poll::Ready(Ok(())) if !discarded.filled().is_empty() => {}
                // Closed by the client, or broken.
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    ready!(self.quiet.as_mut().poll(cx));
                    return Poll::Ready(());
                }
            }
            let Some(left) = self.left.checked_sub(discarded.filled().len()) else { return Poll::Ready(()) };
            self.left = left;
            let now = Instant::now();
            if now >= self.until {
                return Poll::Ready(());
            }
            self.quiet.as_mut().reset(self.until.min(now + QUIET_TIMEOUT));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;

    fn pair() -> (Stream, UnixStream) {
        let (ours, client) = UnixStream::pair().unwrap();
        (Stream::Unix(ours), client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_closes_is_waited_for_no_longer() {
        let (mut stream, client) = pair();
        let began = Instant::now();
        drop(client);
        let mut linger = LingeringClose::default();
        poll_fn(|cx| linger.poll_end(&mut stream, cx)).await;
        assert!(began.elapsed() < QUIET_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_waited_for_a_second() {
        let (mut stream, _client) = pair();
        let began = Instant::now();
        let mut linger = LingeringClose::default();
        poll_fn(|cx| linger.poll_end(&mut stream, cx)).await;
        assert_eq!(began.elapsed().as_secs(), QUIET_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_for_ever_is_cut_by_time() {
        let (mut stream, mut client) = pair();
        let began = Instant::now();
        let mut linger = LingeringClose::default();
        let sends = async {
            while client.write_all(b"more").await.is_ok() {
                tokio::time::sleep(QUIET_TIMEOUT / 2).await;
            }
        };
        tokio::select! {
            () = poll_fn(|cx| linger.poll_end(&mut stream, cx)) => {}
            () = sends => unreachable!("nobody closes"),
        }
        assert!((MAX_LINGER..MAX_LINGER + QUIET_TIMEOUT).contains(&began.elapsed()));
    }

    #[tokio::test]
    async fn a_client_that_sends_without_end_is_cut_by_bytes() {
        let (mut stream, mut client) = pair();
        let mut linger = LingeringClose::after_flood();
        let mut sent = 0;
        let sends = async {
            loop {
                sent += client.write(&[0; CHUNK_BYTES]).await.unwrap();
            }
        };
        tokio::select! {
            () = poll_fn(|cx| linger.poll_end(&mut stream, cx)) => {}
            () = sends => {}
        }
        assert!(sent > MAX_DISCARDED_OF_FLOOD, "{sent}");
    }
}
