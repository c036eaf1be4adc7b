//! An epoll loop that finds the key in a request, probes the filter, and answers: the floor.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use bloomguard::filter::SplitBlock;
use memchr::{memmem, memrchr};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::Transport;
use crate::connection::Place;
use crate::process::{Placement, Server, free_address, listening, until};
use crate::requests::MEMBERS;

const ABSENT: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
const ROW: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: \
     38\r\n\r\n{\"name\":\"User\",\"email\":\"user@example\"}";
const LISTENER: u64 = u64::MAX;

pub(super) fn start(placement: Placement, transport: Transport, directory: &Path) -> (Place, Server, Vec<Server>) {
    let (place, server) = launch("serve-raw", placement, transport, directory);
    (place, server, Vec::new())
}

/// The same loop as a backend, which must know its rows: a backend that answered a row for a false positive would make
/// bloomguard report a false negative, and send it every key from then on.
pub(super) fn start_backend(placement: Placement, directory: &Path) -> (SocketAddr, Server) {
    let (place, server) = launch("serve-rows", placement, Transport::Tcp, directory);
    let Place::Tcp(address) = place else { unreachable!("asked for TCP") };
    (address, server)
}

fn launch(command: &str, placement: Placement, transport: Transport, directory: &Path) -> (Place, Server) {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("this program has no path: {error}"));
    let (place, listen) = match transport {
        Transport::Tcp => {
            let address = free_address();
            (Place::Tcp(address), address.to_string())
        }
        Transport::Unix => {
            let path = directory.join("raw.sock");
            (Place::Unix(path.clone()), path.display().to_string())
        }
    };
    let server = Server::start(placement, &program, &[command, &listen], directory);
    match &place {
        Place::Tcp(address) => listening(*address),
        Place::Unix(path) => until("the raw loop listens", || UnixStream::connect(path).is_ok()),
    }
    (place, server)
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Client {
    stream: Stream,
    buffer: Vec<u8>,
    filled: usize,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Tcp(stream))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Serves the filter's answers, for ever. If `listen` is a path, it is a Unix socket.
pub(crate) fn serve(listen: &str) -> io::Result<()> {
    let filter = SplitBlock::new(MEMBERS, 0.001).map_err(io::Error::other)?;
    (0..MEMBERS).for_each(|n| filter.insert(hash((2 * n).to_string().as_bytes())));
    serve_keys(listen, |key| filter.contains(hash(key)))
}

/// Serves a row for every even number.
pub(crate) fn serve_rows(listen: &str) -> io::Result<()> {
    serve_keys(listen, |key| key.last().is_some_and(|digit| digit % 2 == 0))
}

fn serve_keys(listen: &str, is_there: impl Fn(&[u8]) -> bool) -> io::Result<()> {
    let listener = match listen.parse::<SocketAddr>() {
        Ok(address) => Listener::Tcp(TcpListener::bind(address)?),
        Err(_) => Listener::Unix(UnixListener::bind(listen)?),
    };
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener.as_fd(), EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut clients: Vec<Option<Client>> = Vec::new();
    let (mut events, mut answers) = (Vec::with_capacity(256), Vec::new());
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            if event.data.u64() == LISTENER {
                let stream = listener.accept()?;
                epoll::add(&epoll, stream.as_fd(), EventData::new_u64(clients.len() as u64), EventFlags::IN)?;
                clients.push(Some(Client { stream, buffer: vec![0; 64 << 10], filled: 0 }));
                continue;
            }
            let slot = &mut clients[event.data.u64() as usize];
            let gone = slot.as_mut().is_some_and(|client| !client.answer(&is_there, &mut answers));
            if gone {
                *slot = None;
            }
        }
    }
}

/// Hashes as keyspaces do: 128 bits under a secret.
fn hash(key: &[u8]) -> u128 {
    const SECRET: [u8; 192] = [0x5A; 192];
    xxhash_rust::xxh3::xxh3_128_with_secret(key, &SECRET)
}

impl Client {
    /// Returns false if the client has disconnected.
    fn answer(&mut self, is_there: &impl Fn(&[u8]) -> bool, answers: &mut Vec<u8>) -> bool {
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut self.buffer[self.filled..]),
            Stream::Unix(stream) => stream.read(&mut self.buffer[self.filled..]),
        };
        match read {
            Ok(0) => return false,
            Ok(read) => self.filled += read,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
        answers.clear();
        let mut at = 0;
        while let Some(end) = memmem::find(&self.buffer[at..self.filled], b"\r\n\r\n") {
            answers.extend_from_slice(answer_to(&self.buffer[at..at + end], is_there));
            at += end + 4;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        let written = match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(answers),
            Stream::Unix(stream) => stream.write_all(answers),
        };
        written.is_ok()
    }
}

fn answer_to(head: &[u8], is_there: &impl Fn(&[u8]) -> bool) -> &'static [u8] {
    let target = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let key = memrchr(b'/', target).map_or(target, |slash| &target[slash + 1..]);
    if is_there(key) { ROW } else { ABSENT }
}
