//! bloomguard as released: metrics, headers and limits on. Its keys come from a file, its values from a raw loop.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use super::{Running, Transport, raw};
use crate::connection::Place;
use crate::process::{Placement, Server, folder, free_address, until, write_keys};
use crate::requests::MEMBERS;

/// The measured program: `BLOOMGUARD_BIN`, or the one in this program's folder.
pub(crate) fn program() -> PathBuf {
    let beside = || std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("bloomguard")));
    let path = std::env::var_os("BLOOMGUARD_BIN").map(PathBuf::from).or_else(beside).unwrap_or_default();
    assert!(path.is_file(), "{} is not there: cargo build --release", path.display());
    path
}

/// `settings` are lines of the table `server`.
pub(super) fn start(
    placement: Placement,
    transport: Transport,
    settings: &str,
    directory: &Path,
) -> (Place, Server, Vec<Server>) {
    let (backend, backend_server) = raw::start_backend(placement, directory);
    let keys = directory.join("keys.txt");
    write_keys(&keys, MEMBERS);
    let keyspace = format!(
        "filter = {{ expected_keys = {MEMBERS} }}\n
backend = {{ kind = \"http\", url = \"http://{backend}/users/{{key}}\" }}\n
source = {{ kind = \"file\", path = \"{}\" }}\n",
        keys.display()
    );
    let (place, server, _) = launch(placement, transport, directory, settings, &keyspace);
    (place, server, vec![backend_server])
}

/// A guard in front of a database, on the same processors.
pub(crate) struct BeforeDatabase {
    pub(crate) running: Running,
    telemetry: SocketAddr,
}

impl BeforeDatabase {
    /// Calls of its backend so far.
    pub(crate) fn backend_calls(&self) -> f64 {
        metric(self.telemetry, "bloomguard_backend_requests_total")
    }
}

/// Starts a guard of the table `users` with `rows` rows.
pub(crate) fn start_before(url: &str, rows: u64) -> BeforeDatabase {
    let directory = folder();
    let keyspace = format!(
        "deadline = \"5s\"\nfilter = {{ expected_keys = {rows} }}\n
backend = {{ url = \"{url}\", query = \"SELECT name FROM users WHERE id = $1\", timeout = \"4s\" }}\n
source = {{ query = \"SELECT id FROM users\" }}\n"
    );
    let (place, server, telemetry) = launch(Placement::Sharing, Transport::Tcp, directory.path(), "", &keyspace);
    BeforeDatabase { running: Running { place, server, _others: Vec::new(), _directory: directory }, telemetry }
}

/// The figures of its first build.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Built {
    pub(crate) keys: u64,
    /// Seconds from the count of the source to the swap, and seconds of the scan.
    pub(crate) seconds: f64,
    pub(crate) scan_seconds: f64,
    /// Processor time of the whole process until the swap.
    pub(crate) processor_seconds: f64,
}

/// Restarts it with a source, waits for its build, and stops it.
pub(crate) fn build_from(source: &str, backend: &str, expected: u64) -> Built {
    let directory = folder();
    let keyspace = format!("filter = {{ expected_keys = {expected} }}\nbackend = {backend}\nsource = {source}\n");
    let (_, server, telemetry) = launch(Placement::Sharing, Transport::Tcp, directory.path(), "", &keyspace);
    let processor_seconds = server.processor_seconds();
    let status = document(&get(telemetry, "/status").unwrap_or_default());
    let last = &status["keyspaces"]["users"]["last_rebuild"];
    let seconds = |name: &str| last[name].as_f64().unwrap_or_else(|| panic!("no {name} in {last}"));
    Built {
        keys: last["keys"].as_u64().unwrap_or(0),
        seconds: seconds("duration_seconds"),
        scan_seconds: seconds("scan_seconds"),
        processor_seconds,
    }
}

/// Starts it with one keyspace, and waits until the keyspace enforces.
fn launch(
    placement: Placement,
    transport: Transport,
    directory: &Path,
    settings: &str,
    keyspace: &str,
) -> (Place, Server, SocketAddr) {
    let (data, telemetry, admin, socket) =
        (free_address(), free_address(), free_address(), directory.join("guard.sock"));
    let (place, listen) = match transport {
        Transport::Tcp => (Place::Tcp(data), data.to_string()),
        Transport::Unix => (Place::Unix(socket.clone()), format!("unix:{}", socket.display())),
    };
    let path = directory.join("bloomguard.toml");
    std::fs::write(&path, configuration(&listen, telemetry, admin, settings, keyspace))
        .unwrap_or_else(|error| panic!("no configuration: {error}"));
    let server = Server::start(placement, &program(), &["serve", "--config", &path.display().to_string()], directory);
    until_enforcing(telemetry);
    (place, server, telemetry)
}

/// The configuration: listeners, and one keyspace with the further lines `keyspace`.
pub(super) fn configuration(
    listen: &str,
    telemetry: SocketAddr,
    admin: SocketAddr,
    settings: &str,
    keyspace: &str,
) -> String {
    format!(
        "[server]\nlisten = \"{listen}\"\ntelemetry_listen = \"{telemetry}\"\nadmin_listen = \
         \"{admin}\"\nmax_batch_keys = 100000\n{settings}
[keyspaces.users]\nkey = \"integer\"\nfreshness = \"rebuilt\"\nmax_staleness = \"26h\"\n
cache = {{ hot_ttl = \"1h\", ttl = \"1h\" }}\ncanary.proof = 0\n{keyspace}"
    )
}

pub(super) fn until_enforcing(telemetry: SocketAddr) {
    let enforces = || {
        get(telemetry, "/status").is_some_and(|status| status.replace(": ", ":").contains("\"state\":\"enforcing\""))
    };
    until("bloomguard enforces", enforces);
}

/// The sum of the series whose names and labels begin with this prefix.
pub(super) fn metric(telemetry: SocketAddr, series: &str) -> f64 {
    let metrics = get(telemetry, "/metrics").unwrap_or_default();
    metrics
        .lines()
        .filter(|line| line.starts_with(series))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

fn get(telemetry: SocketAddr, path: &str) -> Option<String> {
    send(telemetry, "GET", path, "")
}

/// The JSON document of an answer.
pub(super) fn document(answer: &str) -> serde_json::Value {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{body}: {error}"))
}

/// The whole answer.
pub(super) fn send(to: SocketAddr, method: &str, path: &str, json: &str) -> Option<String> {
    let mut stream = TcpStream::connect(to).ok()?;
    let length = json.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\ncontent-type: \
         application/json\r\ncontent-length: {length}"
    );
    stream.write_all(format!("{head}\r\n\r\n{json}").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
