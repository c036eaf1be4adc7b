//! PostgreSQL servers.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::server::{self, Kind, Server, printed};

/// A server of its own. Dropped, it is stopped and its files are removed.
pub struct Postgres {
    server: Server,
    settings: Vec<String>,
}

impl Postgres {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with settings such as `log_statement=all`.
    pub fn start_with(settings: &[&str]) -> Self {
        // "FATAL: the database system is starting up" is only impatience of ours.
        let server = Server::new(Kind { user: "postgres", folders, failure: "FATAL:  could not", signal: "QUIT" });
        let mut initdb = server.command("initdb");
        initdb
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--no-locale", "--username=postgres", "-D"])
            .arg(server.data());
        printed(&mut initdb).unwrap_or_else(|error| panic!("initdb: {error}"));
        let mut postgres = Self { server, settings: settings.iter().map(|setting| (*setting).to_owned()).collect() };
        postgres.start_again();
        postgres
    }

    /// Stops the server at once, as a crash would; its files stay.
    pub fn stop(&mut self) {
        self.server.stop();
    }

    /// Starts it again after [`Postgres::stop`], on the same port.
    pub fn start_again(&mut self) {
        let command = |server: &Server| {
            let mut command = server.command("postgres");
            command.arg("-D").arg(server.data()).arg("-k").arg(server.directory()).args(["-h", "127.0.0.1", "-p"]);
            command.arg(server.port().to_string());
            for setting in ["fsync=off", "full_page_writes=off", "max_connections=300", "max_prepared_transactions=20"]
            {
                command.args(["-c", setting]);
            }
            for setting in &self.settings {
                command.args(["-c", setting]);
            }
            command
        };
        self.server.start(command, |server| psql(server, "postgres", "SELECT 1").is_ok());
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address())
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    /// A new, empty database.
    pub fn create_database(&self) -> Database<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name}"));
        Database { server: self, name }
    }

    /// Runs SQL; returns its rows as `psql -At` prints them.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        psql(&self.server, database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

fn psql(server: &Server, database: &str, sql: &str) -> Result<String, String> {
    let mut client = Command::new(binary("psql"));
    client.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database]);
    client.args(["-p", &server.port().to_string(), "-h"]).arg(server.directory()).args(["-c", sql]);
    printed(&mut client)
}

/// A binary of PostgreSQL.
pub fn binary(name: &str) -> PathBuf {
    server::binary(name, folders())
}

/// The latest version first.
fn folders() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders
}

/// A database on a server.
pub struct Database<'a> {
    server: &'a Postgres,
    name: String,
}

impl Database<'static> {
    /// A new, empty database on the server that all tests of this process share.
    pub fn create() -> Self {
        static SHARED: LazyLock<Postgres> = LazyLock::new(Postgres::start);
        SHARED.create_database()
    }
}

impl Database<'_> {
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Host and port of the server.
    pub fn address(&self) -> String {
        self.server.address()
    }

    /// Runs SQL; returns its rows as `psql -At` prints them.
    pub fn psql(&self, sql: &str) -> String {
        self.server.psql(&self.name, sql)
    }

    /// The same in another database of the server.
    pub fn psql_in(&self, database: &str, sql: &str) -> String {
        self.server.psql(database, sql)
    }

    /// Ends every session in this database but the one that does it, as an administrator or a failover would.
    pub fn terminate_sessions(&self) -> usize {
        let ended = self.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid \
                <> pg_backend_pid()",
        );
        ended.parse().unwrap()
    }
}
