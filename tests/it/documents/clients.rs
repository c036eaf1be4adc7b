//! The client of `docs/clients.md`, as it stands there.

use std::process::Command;

use crate::product::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::database::Site;

/// What a user of the page would write around it.
const SCRIPT: &str = r#"
import sys
import sqlite3

port, stranger, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
keyspace, asked = Bloomguard("users", port=port, timeout=5), []

def ask_database(key):
    asked.append(key)
    return {"id": key, "name": "from the database"}

assert keyspace.read(42, ask_database) == {"id": 42, "name": "User 42"}
assert keyspace.read(stranger, ask_database) is None
database = sqlite3.connect(file)
insert_user(database, keyspace, stranger, "new")
assert keyspace.read(stranger, ask_database) == {"id": stranger, "name": "new"}
assert asked == [], asked
try:
    keyspace.read("no integer", ask_database)
    raise AssertionError("a bad key is the caller's fault")
except ValueError as error:
    assert "bad-key" in str(error), error

# Nobody listens on a port that was just closed.
import socket
free = socket.socket()
free.bind(("127.0.0.1", 0))
down = Bloomguard("users", port=free.getsockname()[1])
free.close()
assert down.read(42, ask_database)["name"] == "from the database"
try:
    insert_user(database, down, stranger + 1, "lost")
    raise AssertionError("committed without an announce")
except Unavailable:
    assert database.execute("SELECT count(*) FROM users WHERE id = ?", (stranger + 1,)).fetchone() == (0,)

# Connections that the other side closes while they are idle, as it may.
import socketserver
import threading

class Closing(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 204 No Content\r\n\r\n")

closing = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Closing)
threading.Thread(target=closing.serve_forever, daemon=True).start()
idle = Bloomguard("users", port=closing.server_address[1], timeout=20)
for key in range(3):
    idle.announce(key)

# Something else on the port: its 404 is not ours.
import http.server
other = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=other.serve_forever, daemon=True).start()
assert Bloomguard("users", port=other.server_port).read(42, ask_database)["name"] == "from the database"
print("all of it held")
"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_of_the_page_reads_and_announces() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/clients.md")).unwrap();
    let blocks: Vec<&str> = page.split("```python\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2);
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let file = site.url().trim_start_matches("sqlite:").to_owned();
    let (port, stranger) = (app.data.port().to_string(), absent(&app).to_string());
    let script = format!("{}\n{}\n{SCRIPT}", blocks[0], blocks[1]);
    let run = tokio::task::spawn_blocking(move || {
        Command::new("python3").args(["-c", &script, &port, &stranger, &file]).output().unwrap()
    });
    let output = run.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("all of it held"));
}
