//! Any input gets the same responses in the same order, in front of hyper and behind it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

use bloomguard::app::App;
use bloomguard::config;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// A server of a key set from 1 to 99 in memory. It ends with the process.
struct Server {
    address: String,
    _runtime: Runtime,
    _dir: TempDir,
}

static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// The first request of a connection. After the first kind hyper reads by itself; after the second the fast path reads
/// on.
const WAYS: [&str; 2] = ["connection: keep-alive, x", "connection: keep-alive"];
/// Ends any head, and closes the connection wherever a request begins.
const END: &str = "\r\n\r\nGET /v1/check/users/1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
/// A server that needs longer waits for input that does not arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

impl Server {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = runtime.block_on(serve(dir.path()));
        Self { address, _runtime: runtime, _dir: dir }
    }
}

async fn serve(dir: &Path) -> String {
    let (file, keys) = (dir.join("bloomguard.toml"), dir.join("keys"));
    std::fs::write(&keys, (1..100).map(|key| format!("{key}\n")).collect::<String>()).unwrap();
    let toml = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ntelemetry_listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\ndata_dir = {:?}\nheader_timeout = \"1s\"\n\
         [keyspaces.users]\nkey = \"integer\"\nfreshness = \"static\"\n[keyspaces.users.backend]\nkind = \"set\"\n\
         [keyspaces.users.source]\nkind = \"file\"\npath = {keys:?}\n",
        dir.join("data")
    );
    std::fs::write(&file, toml).unwrap();
    let app = App::build(&config::load(&[file], std::iter::empty()).unwrap()).await.unwrap();
    let (keyspace, address) = (app.keyspace("users").unwrap(), app.addresses()[0].to_string());
    tokio::spawn(app.run(CancellationToken::new()));
    while keyspace.state().as_str() != "enforcing" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    address
}

pub fn run(data: &[u8]) {
    // No longer than one read: a server that closes with unread bytes resets the connection and loses responses.
    let data = &data[..data.len().min(4096)];
    if !is_comparable(data) {
        return;
    }
    let [behind, before] = WAYS.map(|way| answers(way, data));
    if let (Some(behind), Some(before)) = (behind, before) {
        assert_eq!(behind, before, "{}", String::from_utf8_lossy(data));
    }
}

/// Whether no request affects the next one, and no body is longer than the rest.
fn is_comparable(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data).to_ascii_lowercase();
    let posts = text.matches("post").count() - text.matches("post /v1/check/users http").count();
    let lengths = text.split("content-length").skip(1);
    let is_short =
        |length: &str| length.bytes().skip_while(|b| !b.is_ascii_digit()).take_while(u8::is_ascii_digit).count() <= 2;
    posts == 0 && !text.contains("put") && !text.contains("delete") && lengths.into_iter().all(is_short)
}

/// Reads until the server closes: the lines of each response, sorted, without the date. `None` if the connection did
/// not end.
fn answers(way: &str, data: &[u8]) -> Option<Vec<Vec<String>>> {
    let mut stream = TcpStream::connect(&SERVER.address).ok()?;
    stream.set_read_timeout(Some(READ_TIMEOUT)).ok()?;
    let first = format!("GET /v1/check/users/1 HTTP/1.1\r\nhost: localhost\r\n{way}\r\n\r\n");
    // Several, because a body may consume the first.
    stream.write_all(&[first.as_bytes(), data, END.repeat(3).as_bytes()].concat()).ok()?;
    let mut bytes = vec![];
    stream.read_to_end(&mut bytes).ok()?;
    let lines = |answer: &str| {
        let mut lines: Vec<String> =
            answer.split("\r\n").filter(|line| !line.starts_with("date: ")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    Some(String::from_utf8_lossy(&bytes).split("HTTP/1.1 ").map(lines).collect())
}
