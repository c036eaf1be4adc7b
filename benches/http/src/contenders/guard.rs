//! bloomguard as it is released: metrics, headers and limits on. Its keys come from a file, its values from the raw loop.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use super::{Transport, raw};
use crate::connection::Place;
use crate::process::{Placement, Server, free_address, until};
use crate::requests::MEMBERS;

/// The program that is measured: `BLOOMGUARD_BIN`, or the one that lies beside this one.
pub(crate) fn program() -> PathBuf {
    let beside = || std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("bloomguard")));
    let path = std::env::var_os("BLOOMGUARD_BIN").map(PathBuf::from).or_else(beside).unwrap_or_default();
    assert!(path.is_file(), "{} is not there: cargo build --release", path.display());
    path
}

pub(super) fn start(placement: Placement, transport: Transport, directory: &Path) -> (Place, Server, Vec<Server>) {
    let (backend, backend_server, _) = raw::start(placement, Transport::Tcp, directory);
    let Place::Tcp(backend) = backend else { unreachable!("asked for TCP") };
    let keys = directory.join("keys.txt");
    let mut lines = String::new();
    (0..MEMBERS).for_each(|n| _ = writeln!(lines, "{}", 2 * n));
    std::fs::write(&keys, lines).unwrap_or_else(|error| panic!("no keys: {error}"));
    let (data, telemetry, admin, socket) = (free_address(), free_address(), free_address(), directory.join("guard.sock"));
    let (place, listen) = match transport {
        Transport::Tcp => (Place::Tcp(data), data.to_string()),
        Transport::Unix => (Place::Unix(socket.clone()), format!("unix:{}", socket.display())),
    };
    let configuration = format!(
        "[server]\nlisten = \"{listen}\"\ntelemetry_listen = \"{telemetry}\"\nadmin_listen = \"{admin}\"\n
[keyspaces.users]\nkey = \"integer\"\nfreshness = \"rebuilt\"\nmax_staleness = \"24h\"\n
[keyspaces.users.filter]\nexpected_keys = {MEMBERS}\n
[keyspaces.users.cache]\nhot_ttl = \"1h\"\nttl = \"1h\"\n
[keyspaces.users.backend]\nkind = \"http\"\nurl = \"http://{backend}/users/{{key}}\"\n
[keyspaces.users.source]\nkind = \"file\"\npath = \"{}\"\n",
        keys.display()
    );
    let path = directory.join("bloomguard.toml");
    std::fs::write(&path, configuration).unwrap_or_else(|error| panic!("no configuration: {error}"));
    let server = Server::start(placement, &program(), &["serve", "--config", &path.display().to_string()], directory);
    until("bloomguard enforces", || status(telemetry).is_some_and(|status| status.contains("\"state\":\"enforcing\"")));
    (place, server, vec![backend_server])
}

fn status(telemetry: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(telemetry).ok()?;
    stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer.replace(": ", ":"))
}
