//! What a listener grants its connections.

use std::time::Duration;

use crate::config::ServerConfig;

/// Longer than the idle timeout of common client pools (at most 90 s): the client closes first, so no request meets a
/// closing socket.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Upper bound of connections that wait for their clients to close. The bound is otherwise one per eight open
/// connections.
const MAX_CLOSING: usize = 64;

/// Limits of one listener's connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Open connections. Beyond it the longest-idle connection is closed; if none is idle, the new connection waits.
    pub max_connections: usize,
    /// Time for a request head to arrive, from its first byte; for a connection's first head from the connect.
    pub header_timeout: Duration,
    /// Time for a client to receive a response.
    pub send_timeout: Duration,
    /// Time that a connection is kept alive without a request.
    pub idle_timeout: Duration,
    /// Time for requests in flight to finish after the shutdown signal.
    pub drain_timeout: Duration,
}

impl From<&ServerConfig> for ConnectionLimits {
    fn from(config: &ServerConfig) -> Self {
        Self {
            max_connections: config.max_connections,
            header_timeout: config.header_timeout,
            send_timeout: config.send_timeout,
            idle_timeout: IDLE_TIMEOUT,
            drain_timeout: config.drain_timeout,
        }
    }
}

impl ConnectionLimits {
    /// Upper bound of what [`descriptors`](Self::descriptors) adds to `max_connections`.
    pub const MAX_EXTRA_DESCRIPTORS: usize = MAX_CLOSING + 1;

    /// File descriptors that a listener needs beside its own socket: open connections, closing ones, and one that waits
    /// for a slot.
    #[must_use]
    pub fn descriptors(max_connections: usize) -> usize {
        max_connections + max_closing(max_connections) + 1
    }
}

/// Connections that may be closing beside `max_connections` open ones.
pub(super) fn max_closing(max_connections: usize) -> usize {
    max_connections.div_ceil(8).min(MAX_CLOSING)
}
