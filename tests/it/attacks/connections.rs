//! Connections that cost more than they bring: too many of them, silent ones, floods of HTTP/2 control frames,
//! malformed heads.

mod descriptors;
mod evictions;
mod heads;
mod http2;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than anything here takes; only a hang reaches it.
const LONG: Duration = Duration::from_secs(60);

/// A connection of a test that blocks.
fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream
}

/// Sends this; returns what comes back until the server closes, and how that ended.
fn sent_until_closed(address: &str, pieces: &[&[u8]]) -> (String, std::io::Result<usize>) {
    let mut stream = connect(address);
    for piece in pieces {
        // A server that closes in the middle is no matter here: what it said before is.
        let _ = stream.write_all(piece);
    }
    let mut told = Vec::new();
    let ended = stream.read_to_end(&mut told);
    (String::from_utf8_lossy(&told).into_owned(), ended)
}
