//! Database servers in temporary directories.
//!
//! Each server runs under a small shell that waits for its standard input to close. That happens when the test process
//! ends, in whatever way; the shell then stops the server and removes the directory. Destructors alone would not do:
//! statics have none, and a killed process runs none.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A word on standard input stops the server and leaves its files; the end of input removes them as well.
const GUARDIAN: &str = r#"
directory=$1; signal=$2; shift 2
"$@" >>"$directory/log" 2>&1 </dev/null &
server=$!
read -r word
kill -"$signal" "$server" 2>/dev/null
wait "$server"
if [ -z "$word" ]; then rm -rf "$directory"; fi
"#;

/// What tells one kind of server from another.
pub struct Kind {
    /// The user to run it as, where this process is root: none of them runs as root.
    pub user: &'static str,
    /// Where Debian puts its binaries, beside `PATH`.
    pub folders: fn() -> Vec<PathBuf>,
    /// In its log, where it will never be ready.
    pub failure: &'static str,
    /// The signal that ends it at once.
    pub signal: &'static str,
}

/// A server of its own. Dropped, it is stopped and its files are removed.
pub struct Server {
    kind: Kind,
    directory: PathBuf,
    port: u16,
    guardian: Option<Child>,
}

impl Server {
    /// An empty directory, for a server that is still to be installed there.
    pub fn new(kind: Kind) -> Self {
        let directory = tempfile::Builder::new().prefix("bloomguard-db-").tempdir().unwrap().keep();
        if let Some((user, group)) = unprivileged(kind.user) {
            std::os::unix::fs::chown(&directory, Some(user), Some(group)).unwrap();
        }
        Self { kind, directory, port: 0, guardian: None }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What the server logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// One of its binaries, run by its user.
    pub fn command(&self, name: &str) -> Command {
        let program = binary(name, (self.kind.folders)());
        let Some((user, group)) = unprivileged(self.kind.user) else { return Command::new(program) };
        let mut command = Command::new("setpriv");
        command.args([
            format!("--reuid={user}"),
            format!("--regid={group}"),
            "--clear-groups".to_owned(),
            "--".to_owned(),
        ]);
        command.arg(program).current_dir("/");
        command
    }

    /// Starts it by `command` and waits until it is `ready`: on the port that it had, else on a free one.
    pub fn start(&mut self, command: impl Fn(&Self) -> Command, ready: impl Fn(&Self) -> bool) {
        assert!(self.guardian.is_none(), "it is running");
        let again = self.port != 0;
        // Another process may take a port between its being found free and its being used.
        for _ in 0..if again { 1 } else { 5 } {
            if !again {
                self.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            }
            if self.launch(&command(self), &ready) {
                return;
            }
        }
        panic!("it did not start: {}", self.log());
    }

    fn launch(&mut self, server: &Command, ready: impl Fn(&Self) -> bool) -> bool {
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARDIAN, "guardian"])
            .arg(&self.directory)
            .arg(self.kind.signal)
            .arg(server.get_program())
            .args(server.get_args());
        // A group of its own: an interrupt from the keyboard must not reach the shell before it has cleaned up.
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let logged = self.log().len();
        self.guardian = Some(command.spawn().unwrap());
        let deadline = Instant::now() + START_TIMEOUT;
        while !ready(self) {
            if self.log()[logged..].contains(self.kind.failure) || Instant::now() > deadline {
                self.stop();
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Stops the server at once; its files stay.
    pub fn stop(&mut self) {
        let Some(mut guardian) = self.guardian.take() else { return };
        guardian.stdin.take().unwrap().write_all(b"stop\n").unwrap();
        guardian.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut guardian) = self.guardian.take() {
            drop(guardian.stdin.take());
            let _ = guardian.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What a client printed.
pub fn printed(client: &mut Command) -> Result<String, String> {
    let output = client.output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A binary, found in `PATH` or one of these folders.
pub fn binary(name: &str, folders: Vec<PathBuf>) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(folders)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed"))
}

/// The user to run servers as, where this process is root.
fn unprivileged(name: &str) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let id = |flag: &str| {
        let output = Command::new("id").args([flag, name]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap_or_else(|_| panic!("no user named {name}"))
    };
    Some((id("-u"), id("-g")))
}
