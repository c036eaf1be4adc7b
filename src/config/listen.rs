//! The address of a listener.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path that fits `sun_path` with its terminating zero.
const MAX_UNIX_PATH: usize = 107;

/// The address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// `host:port`; the host is an IP address or `localhost`.
    Tcp(SocketAddr),
    /// `unix:/path`.
    Unix(PathBuf),
}

impl Listen {
    /// Whether only processes of this host can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Whether both can't be bound at the same time.
    #[must_use]
    pub fn collides(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix(a), Self::Unix(b)) => a == b,
            // Port 0 is a new port each time.
            (Self::Tcp(a), Self::Tcp(b)) if a.port() != 0 && a.port() == b.port() => {
                a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified()
            }
            _ => false,
        }
    }
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = path.starts_with('/') && path.len() <= MAX_UNIX_PATH;
            return if fits { Ok(Self::Unix(path.into())) } else { Err(ListenError::UnixPath) };
        }
        let local_port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        match local_port {
            Some(port) => Ok(Self::Tcp((Ipv4Addr::LOCALHOST, port).into())),
            None => text.parse().map(Self::Tcp).map_err(|_| ListenError::Address),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Text that is not an address of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Neither an address with a port nor a Unix socket.
    #[error("must be an IP address and port such as 127.0.0.1:4040")]
    Address,
    /// A socket path that is relative or too long.
    #[error("must be unix: and an absolute path of at most {MAX_UNIX_PATH} bytes")]
    UnixPath,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn listen(text: &str) -> Listen {
        text.parse().unwrap()
    }

    #[test]
    fn loopback_is_told_from_the_rest() {
        for local in
            ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", "unix:/run/b.sock"]
        {
            assert!(listen(local).is_local(), "{local}");
        }
        for open in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1"] {
            assert!(!listen(open).is_local(), "{open}");
        }
    }

    #[test]
    fn an_unspecified_address_collides_with_every_address_of_its_port() {
        assert!(listen("0.0.0.0:4040").collides(&listen("127.0.0.1:4040")));
        assert!(!listen("127.0.0.2:4040").collides(&listen("127.0.0.1:4040")));
        assert!(!listen("127.0.0.1:0").collides(&listen("127.0.0.1:0")));
    }

    #[test]
    fn what_can_not_be_bound_is_refused() {
        for text in
            ["", "4040", ":4040", "127.0.0.1", "127.0.0.1:70000", "unix:", "unix:relative.sock", "db.example:80"]
        {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
