//! MariaDB servers.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::server::{Kind, Server, binary, printed};

/// A server of its own. Dropped, it is stopped and its files are removed.
pub struct Mariadb {
    server: Server,
    settings: Vec<String>,
}

impl Mariadb {
    /// Starts a server on a free port, with settings such as `--autocommit=OFF`.
    pub fn start_with(settings: &[&str]) -> Self {
        let server = Server::new(Kind { user: "mysql", folders, failure: "[ERROR]", signal: "QUIT" });
        let mut install = server.command("mariadb-install-db");
        install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        install.arg(format!("--datadir={}", server.data().display()));
        // A server that starts removes the temporary tables of every other one from a directory that they share.
        install.env("TMPDIR", server.directory());
        printed(&mut install).unwrap_or_else(|error| panic!("mariadb-install-db: {error}"));
        let mut mariadb = Self { server, settings: settings.iter().map(|setting| (*setting).to_owned()).collect() };
        mariadb.start_again();
        mariadb
    }

    /// Stops the server; its files stay.
    pub fn stop(&mut self) {
        self.server.stop();
    }

    /// Starts it again after [`Mariadb::stop`], on the same port.
    pub fn start_again(&mut self) {
        let command = |server: &Server| {
            let mut command = server.command("mariadbd");
            command.arg("--no-defaults").arg(format!("--datadir={}", server.data().display()));
            command.arg(format!("--socket={}", socket(server).display())).arg(format!("--port={}", server.port()));
            command.arg(format!("--tmpdir={}", server.directory().display()));
            command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=300"]);
            command.args([
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-fast-shutdown=2",
                "--innodb-buffer-pool-size=64M",
            ]);
            command
                .args(["--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"])
                .args(&self.settings);
            command
        };
        self.server.start(command, |server| run(server, "", "SELECT 1").is_ok());
    }

    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.server.port())
    }

    /// A new, empty database whose columns compare every byte, as those of the other databases do, unless they say
    /// otherwise.
    pub fn create_database(&self) -> Database<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.sql("", &format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"));
        Database { server: self, name }
    }

    /// Runs SQL; returns its rows, columns between tabs.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        run(&self.server, database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

fn run(server: &Server, database: &str, sql: &str) -> Result<String, String> {
    let mut client = Command::new(binary("mariadb", folders()));
    client.args([
        "--no-defaults",
        "--batch",
        "--raw",
        "--skip-column-names",
        "--default-character-set=utf8mb4",
        "--user=root",
    ]);
    client.arg(format!("--socket={}", socket(server).display())).args([database, "-e", sql]);
    printed(&mut client)
}

fn socket(server: &Server) -> PathBuf {
    server.directory().join("s")
}

fn folders() -> Vec<PathBuf> {
    vec!["/usr/sbin".into(), "/usr/bin".into()]
}

/// A database on a server.
pub struct Database<'a> {
    server: &'a Mariadb,
    name: String,
}

impl Database<'static> {
    /// A new, empty database on the server that all tests of this process share.
    pub fn create() -> Self {
        static SHARED: LazyLock<Mariadb> = LazyLock::new(|| Mariadb::start_with(&["--userstat=ON"]));
        SHARED.create_database()
    }
}

impl Database<'_> {
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs SQL; returns its rows, columns between tabs.
    pub fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql)
    }

    /// The sessions in this database but the one that asks.
    pub fn sessions(&self) -> Vec<String> {
        let listed =
            self.sql("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()");
        listed.lines().map(str::to_owned).collect()
    }

    /// Ends every session in this database, as an administrator would. How many there were.
    pub fn kill_sessions(&self) -> usize {
        let sessions = self.sessions();
        for session in &sessions {
            // It may have ended by itself.
            let _ = run(&self.server.server, &self.name, &format!("KILL CONNECTION {session}"));
        }
        sessions.len()
    }
}
