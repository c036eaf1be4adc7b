//! Pauses between attempts to accept, and the log of accept errors.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::listener::LocalAddr;

/// The connection failed before it was accepted; the listener itself works.
pub(super) fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Errors of the listener itself, such as too many open files. They last, so without pauses the loop would burn a core
/// and flood the log.
#[derive(Debug, Default)]
pub(super) struct AcceptBackoff {
    pause: Option<Duration>,
    last_logged: Option<Instant>,
    suppressed: u64,
}

impl AcceptBackoff {
    const FIRST_PAUSE: Duration = Duration::from_millis(10);
    const MAX_PAUSE: Duration = Duration::from_secs(1);
    const LOG_EVERY: Duration = Duration::from_secs(10);

    pub(super) fn reset(&mut self) {
        self.pause = None;
    }

    /// The pause before the next attempt; `None` to retry at once.
    pub(super) fn pause(&mut self, addr: &LocalAddr, error: &io::Error) -> Option<Duration> {
        if is_connection_error(error) {
            return None;
        }
        let pause = self.pause.map_or(Self::FIRST_PAUSE, |p| (p * 2).min(Self::MAX_PAUSE));
        self.pause = Some(pause);
        if self.last_logged.is_none_or(|at| at.elapsed() >= Self::LOG_EVERY) {
            tracing::error!(listener = %addr, %error, suppressed = self.suppressed, "accept failed: retrying");
            self.last_logged = Some(Instant::now());
            self.suppressed = 0;
        } else {
            self.suppressed += 1;
        }
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_accept_errors_are_waited_out_and_logged_now_and_then() {
        let addr = LocalAddr::Unix("/run/data.sock".into());
        let no_descriptors = io::Error::from(rustix::io::Errno::MFILE);
        let mut backoff = AcceptBackoff::default();
        let pauses: Vec<u128> = (0..9).map(|_| backoff.pause(&addr, &no_descriptors).unwrap().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(backoff.suppressed, 8, "all but the first");
        backoff.reset();
        assert_eq!(backoff.pause(&addr, &no_descriptors), Some(AcceptBackoff::FIRST_PAUSE));
    }

    #[test]
    fn a_connection_that_died_in_the_queue_delays_no_other() {
        let addr = LocalAddr::Unix("/run/data.sock".into());
        let mut backoff = AcceptBackoff::default();
        for error in [rustix::io::Errno::CONNABORTED, rustix::io::Errno::INTR] {
            assert_eq!(backoff.pause(&addr, &error.into()), None);
        }
    }
}
