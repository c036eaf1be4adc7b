//! MariaDB servers in temporary directories; under the same guardian as those of PostgreSQL.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::postgres::{GUARDIAN, unprivileged};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server of its own. Dropped, it is stopped and its files are removed.
pub struct Mariadb {
    directory: PathBuf,
    port: u16,
    settings: Vec<String>,
    guardian: Option<Child>,
}

impl Mariadb {
    /// Starts a server on a free port, with settings such as `--autocommit=OFF`.
    pub fn start_with(settings: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("bloomguard-mdb-").tempdir().unwrap().keep();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { directory, port: 0, settings, guardian: None };
        if let Some((user, group)) = unprivileged("mysql") {
            std::os::unix::fs::chown(&server.directory, Some(user), Some(group)).unwrap();
        }
        let output = server_command("mariadb-install-db")
            .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
            .arg(format!("--datadir={}", server.data().display()))
            // A server that starts removes the temporary tables of every other one from a directory that they share.
            .env("TMPDIR", &server.directory)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&said));
        // Another process may take a port between its being found free and its being used.
        for _ in 0..5 {
            server.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if server.launch() {
                return server;
            }
        }
        panic!("MariaDB did not start: {}", server.log());
    }

    /// Stops the server; its files stay.
    pub fn stop(&mut self) {
        use std::io::Write as _;
        let Some(mut guardian) = self.guardian.take() else { return };
        guardian.stdin.take().unwrap().write_all(b"stop\n").unwrap();
        guardian.wait().unwrap();
    }

    /// Starts it again after [`Mariadb::stop`], on the same port.
    pub fn start_again(&mut self) {
        assert!(self.guardian.is_none(), "it is running");
        assert!(self.launch(), "MariaDB did not start again: {}", self.log());
    }

    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// A new, empty database whose columns compare every byte, as those of the other databases do, unless they say otherwise.
    pub fn create_database(&self) -> Database<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.sql("", &format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"));
        Database { server: self, name }
    }

    /// What the server logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Runs SQL; returns its rows, columns between tabs.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(binary("mariadb"))
            .args(["--no-defaults", "--batch", "--raw", "--skip-column-names", "--default-character-set=utf8mb4", "--user=root"])
            .arg(format!("--socket={}", self.socket().display()))
            .args([database, "-e", sql])
            .output()
            .unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("s")
    }

    fn launch(&mut self) -> bool {
        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN, "guardian"]).arg(&self.directory);
        let server = server_command("mariadbd");
        command.arg(server.get_program()).args(server.get_args());
        command.arg("--no-defaults").arg(format!("--datadir={}", self.data().display()));
        command.arg(format!("--socket={}", self.socket().display())).arg(format!("--port={}", self.port));
        command.arg(format!("--tmpdir={}", self.directory.display()));
        command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=300"]);
        command.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-fast-shutdown=2", "--innodb-buffer-pool-size=64M"]);
        command.args(["--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"]).args(&self.settings);
        // A group of its own: an interrupt from the keyboard must not reach the shell before it has cleaned up.
        let logged = self.log().len();
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.guardian = Some(command.spawn().unwrap());
        let deadline = Instant::now() + START_TIMEOUT;
        while self.try_sql("", "SELECT 1").is_err() {
            if self.log()[logged..].contains("[ERROR]") || Instant::now() > deadline {
                self.stop();
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        if let Some(mut guardian) = self.guardian.take() {
            drop(guardian.stdin.take());
            let _ = guardian.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
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
        let listed = self.sql("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()");
        listed.lines().map(str::to_owned).collect()
    }

    /// Ends every session in this database, as an administrator would. How many there were.
    pub fn kill_sessions(&self) -> usize {
        let sessions = self.sessions();
        for session in &sessions {
            // It may have ended by itself.
            let _ = self.server.try_sql(&self.name, &format!("KILL CONNECTION {session}"));
        }
        sessions.len()
    }
}

/// A server's binary, found in `PATH` or where Debian puts it.
fn binary(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/bin".into()])
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed"))
}

/// MariaDB refuses to run as root.
fn server_command(name: &str) -> Command {
    let Some((user, group)) = unprivileged("mysql") else { return Command::new(binary(name)) };
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned(), "--".to_owned()]);
    command.arg(binary(name)).current_dir("/");
    command
}
