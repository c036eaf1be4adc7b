//! redis-server without keys.

use std::os::unix::net::UnixStream;
use std::path::Path;

use super::Transport;
use crate::connection::Place;
use crate::process::{Placement, Server, free_address, listening, until};

pub(super) fn start(placement: Placement, transport: Transport, directory: &Path) -> (Place, Server, Vec<Server>) {
    let (address, socket) = (free_address(), directory.join("redis.sock"));
    let (port, path) = (address.port().to_string(), socket.display().to_string());
    let arguments = ["--port", &port, "--unixsocket", &path, "--save", "", "--bind", "127.0.0.1"];
    let server = Server::start(placement, Path::new("redis-server"), &arguments, directory);
    listening(address);
    until("redis-server has its socket", || UnixStream::connect(&socket).is_ok());
    let place = if transport == Transport::Tcp { Place::Tcp(address) } else { Place::Unix(socket) };
    (place, server, Vec::new())
}
