//! PostgreSQL servers in temporary directories.
//!
//! Each server runs under a small shell that waits for its standard input to close. That happens when the test process ends, in
//! whatever way; the shell then stops the server and removes the directory. Destructors alone would not do: statics have none,
//! and a killed process runs none.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A word on standard input stops the server and leaves its files; the end of input removes them as well.
pub(super) const GUARDIAN: &str = r#"
directory=$1; shift
"$@" >>"$directory/log" 2>&1 </dev/null &
server=$!
read -r word
kill -QUIT "$server" 2>/dev/null
wait "$server"
if [ -z "$word" ]; then rm -rf "$directory"; fi
"#;

/// A server of its own. Dropped, it is stopped and its files are removed.
pub struct Postgres {
    directory: PathBuf,
    port: u16,
    settings: Vec<String>,
    guardian: Option<Child>,
}

impl Postgres {
    /// Starts a server on a free port.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with settings such as `log_statement=all`.
    pub fn start_with(settings: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("bloomguard-pg-").tempdir().unwrap().keep();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { directory, port: 0, settings, guardian: None };
        if let Some((user, group)) = unprivileged("postgres") {
            std::os::unix::fs::chown(&server.directory, Some(user), Some(group)).unwrap();
        }
        let output = server_command("initdb")
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--no-locale", "--username=postgres", "-D"])
            .arg(server.data())
            .output()
            .unwrap();
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        // Another process may take a port between its being found free and its being used.
        for _ in 0..5 {
            server.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if server.launch() {
                return server;
            }
        }
        panic!("PostgreSQL did not start: {}", server.log());
    }

    /// Stops the server at once, as a crash would; its files stay.
    pub fn stop(&mut self) {
        let Some(mut guardian) = self.guardian.take() else { return };
        guardian.stdin.take().unwrap().write_all(b"stop\n").unwrap();
        guardian.wait().unwrap();
    }

    /// Starts it again after [`Postgres::stop`], on the same port.
    pub fn start_again(&mut self) {
        assert!(self.guardian.is_none(), "it is running");
        assert!(self.launch(), "PostgreSQL did not start again: {}", self.log());
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// A new, empty database.
    pub fn create_database(&self) -> Database<'_> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name}"));
        Database { server: self, name }
    }

    /// What the server logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Runs SQL; returns its rows as `psql -At` prints them.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        self.try_psql(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn try_psql(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(binary("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-p", &self.port.to_string()])
            .arg("-h")
            .arg(&self.directory)
            .args(["-c", sql])
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

    fn launch(&mut self) -> bool {
        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN, "guardian"]).arg(&self.directory);
        let server = server_command("postgres");
        command.arg(server.get_program()).args(server.get_args());
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.directory);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        for setting in ["fsync=off", "full_page_writes=off", "max_connections=300"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        // A group of its own: an interrupt from the keyboard must not reach the shell before it has cleaned up.
        let logged = self.log().len();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.guardian = Some(command.spawn().unwrap());
        let deadline = Instant::now() + START_TIMEOUT;
        while self.try_psql("postgres", "SELECT 1").is_err() {
            // "FATAL: the database system is starting up" is only impatience of ours.
            let failed = self.log()[logged..].lines().any(|line| line.contains("FATAL:  could not"));
            if failed || Instant::now() > deadline {
                self.stop();
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

impl Drop for Postgres {
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
        format!("127.0.0.1:{}", self.server.port)
    }

    /// Runs SQL; returns its rows as `psql -At` prints them.
    pub fn psql(&self, sql: &str) -> String {
        self.server.psql(&self.name, sql)
    }

    /// Ends every session in this database but the one that does it, as an administrator or a failover would.
    pub fn terminate_sessions(&self) -> usize {
        let ended = self.psql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        ended.parse().unwrap()
    }
}

/// A server's binary, found in `PATH` or where Debian puts it.
pub fn binary(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    std::env::split_paths(&path)
        .chain(versions.into_iter().rev())
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed"))
}

/// PostgreSQL refuses to run as root.
fn server_command(name: &str) -> Command {
    let Some((user, group)) = unprivileged("postgres") else { return Command::new(binary(name)) };
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned(), "--".to_owned()]);
    command.arg(binary(name)).current_dir("/");
    command
}

/// The user to run servers as, where this process is root.
pub(super) fn unprivileged(name: &str) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let id = |flag: &str| {
        let output = Command::new("id").args([flag, name]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap_or_else(|_| panic!("no user named {name}"))
    };
    Some((id("-u"), id("-g")))
}
