//! nginx that answers 404 to everything, in one process.

use std::os::unix::net::UnixStream;
use std::path::Path;

use super::Transport;
use crate::connection::Place;
use crate::process::{Placement, Server, free_address, listening, until};

pub(super) fn start(placement: Placement, transport: Transport, directory: &Path) -> (Place, Server, Vec<Server>) {
    let address = free_address();
    let socket = directory.join("nginx.sock");
    let (place, listen) = match transport {
        Transport::Tcp => (Place::Tcp(address), address.to_string()),
        Transport::Unix => (Place::Unix(socket.clone()), format!("unix:{}", socket.display())),
    };
    let root = directory.display();
    let configuration = format!(
        "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root};
uwsgi_temp_path {root}; scgi_temp_path {root}; server {{ listen {listen}; location / {{ return 404; }} }} }}"
    );
    let path = directory.join("nginx.conf");
    std::fs::write(&path, configuration).unwrap_or_else(|error| panic!("no configuration: {error}"));
    let server = Server::start(placement, Path::new("nginx"), &["-c", &path.display().to_string()], directory);
    match transport {
        Transport::Tcp => listening(address),
        Transport::Unix => until("nginx listens", || UnixStream::connect(&socket).is_ok()),
    }
    (place, server, Vec::new())
}
