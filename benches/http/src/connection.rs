//! One connection of the load generator: sends whole requests, and only counts answers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use memchr::memmem;

/// Longer than most answers to sixteen requests.
const BUFFER: usize = 64 << 10;

/// Where a server listens.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(std::path::PathBuf),
}

/// What answers look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Http,
    /// Redis' own protocol, of which only the answer to `GET` of a missing key is known.
    Resp,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub(crate) struct Connection {
    stream: Stream,
    wire: Wire,
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes that could not be written yet.
    unsent: Vec<u8>,
}

/// Number of received answers, and of those with the expected status.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answered {
    pub(crate) all: usize,
    pub(crate) as_wanted: usize,
}

impl Connection {
    pub(crate) fn open(place: &Place, wire: Wire) -> io::Result<Self> {
        let stream = match place {
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Stream::Tcp(stream)
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Stream::Unix(stream)
            }
        };
        Ok(Self { stream, wire, buffer: vec![0; BUFFER], filled: 0, unsent: Vec::new() })
    }

    /// Resets the connection when it is closed, which leaves no port in use.
    pub(crate) fn reset_at_end(&self) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => {
                Ok(rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO))?)
            }
            Stream::Unix(_) => Ok(()),
        }
    }

    pub(crate) fn send(&mut self, requests: &[u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(requests);
            return self.send_rest();
        }
        let sent = self.write(requests)?;
        self.unsent.extend_from_slice(&requests[sent..]);
        Ok(())
    }

    /// Sends the rest of earlier requests, as far as possible without waiting.
    pub(crate) fn send_rest(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let unsent = std::mem::take(&mut self.unsent);
        let sent = self.write(&unsent)?;
        self.unsent.extend_from_slice(&unsent[sent..]);
        Ok(())
    }

    /// Returns true if unsent requests wait for the server to read.
    pub(crate) const fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.stream {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        };
        match written {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Reads the available bytes and counts the complete answers. `wanted`: the beginning of a correct answer.
    pub(crate) fn receive(&mut self, wanted: &[u8]) -> io::Result<Answered> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(2 * self.filled, 0);
        }
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut self.buffer[self.filled..]),
            Stream::Unix(stream) => stream.read(&mut self.buffer[self.filled..]),
        };
        match read {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => self.filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let (mut answered, mut at) = (Answered::default(), 0);
        while let Some(length) = answer_length(self.wire, &self.buffer[at..self.filled]) {
            answered.all += 1;
            answered.as_wanted += usize::from(self.buffer[at..].starts_with(wanted));
            at += length;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(answered)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Length of the first answer in `bytes`; `None` if it is not complete.
fn answer_length(wire: Wire, bytes: &[u8]) -> Option<usize> {
    match wire {
        Wire::Resp => memmem::find(bytes, b"\r\n").map(|end| end + 2),
        Wire::Http => {
            let head = memmem::find(bytes, b"\r\n\r\n")? + 4;
            let length = head + content_length(&bytes[..head]);
            (bytes.len() >= length).then_some(length)
        }
    }
}

/// Servers use one of two spellings.
fn content_length(head: &[u8]) -> usize {
    const NAME: &[u8] = b"ontent-";
    let mut rest = head;
    while let Some(at) = memmem::find(rest, NAME) {
        rest = &rest[at + NAME.len()..];
        let value = rest.strip_prefix(b"length: ").or_else(|| rest.strip_prefix(b"Length: "));
        if let Some(value) = value {
            return value
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let two = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: \
            a\r\nContent-Length: 3\r\n\r\nabc";
        let first = answer_length(Wire::Http, two).unwrap();
        assert!(two[first..].starts_with(b"HTTP/1.1 200"));
        assert_eq!(answer_length(Wire::Http, &two[first..]), Some(two.len() - first));
        assert_eq!(answer_length(Wire::Http, &two[first..two.len() - 1]), None);
        assert_eq!(answer_length(Wire::Resp, b"$-1\r\n$-1\r\n"), Some(5));
    }
}
