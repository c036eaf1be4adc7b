//! PgBouncer, which gives each transaction any free server connection.

use std::path::PathBuf;

use super::postgres;
use super::server::{Kind, Server};

/// A pooler in transaction mode before a PostgreSQL server. Dropped, it is stopped.
pub struct PgBouncer(Server);

impl PgBouncer {
    /// Starts before the server at `upstream`, with so many connections to it.
    pub fn start(upstream: &str, connections: u32) -> Self {
        // It refuses to run as root; the server's user is there.
        let mut server = Server::new(Kind { user: "postgres", folders, failure: "FATAL", signal: "TERM" });
        let (host, port) = upstream.split_once(':').unwrap();
        let file = server.directory().join("pgbouncer.ini");
        let users = server.directory().join("users.txt");
        std::fs::write(&users, "\"postgres\" \"\"\n").unwrap();
        let command = |server: &Server| {
            let settings = format!(
                "[databases]\n* = user=postgres host={host} port={port}\n[pgbouncer]\nlisten_addr = \
                    127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
                 auth_type = any\nauth_file = {}\npool_mode = transaction\ndefault_pool_size = \
                 {connections}\nmax_client_conn = 200\n",
                server.port(),
                users.display()
            );
            std::fs::write(&file, settings).unwrap();
            let mut command = server.command("pgbouncer");
            command.arg(&file);
            command
        };
        let ready = |server: &Server| std::net::TcpStream::connect(("127.0.0.1", server.port())).is_ok();
        server.start(command, ready);
        Self(server)
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.0.port())
    }
}

fn folders() -> Vec<PathBuf> {
    vec!["/usr/sbin".into()]
}

#[test]
fn transactions_share_its_connections() {
    let database = postgres::Database::create();
    let pooler = PgBouncer::start(&database.address(), 1);
    let url = pooler.url(database.url().rsplit('/').next().unwrap());
    let told = |_| {
        let mut client = std::process::Command::new(postgres::binary("psql"));
        super::server::printed(client.args(["-X", "-q", "-A", "-t", "-d", &url, "-c", "SELECT pg_backend_pid()"]))
            .unwrap()
    };
    let pids: Vec<String> = (0..3).map(told).collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
}
