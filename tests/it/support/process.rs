//! The real binary in a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::wait::{PATIENCE, Wait};

/// A running `bloomguard`; killed when dropped.
pub struct Process {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    out: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    reads_log: Arc<AtomicBool>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program: of this build, or what `BLOOMGUARD_TEST_BINARY` names, such as a release build whose figures are
/// wanted.
fn program() -> String {
    super::long_run::given("BLOOMGUARD_TEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_bloomguard").to_owned())
}

impl Process {
    /// Starts in `dir` with these arguments and listeners on free ports.
    pub fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::start_with(dir, arguments, &[])
    }

    /// Starts with variables of the environment besides.
    pub fn start_with(dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_by(Command::new(program()), dir, arguments, variables)
    }

    /// Starts where no process may have more files open than this.
    pub fn start_limited(dir: &Path, arguments: &[&str], files: u32) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), &program()]);
        Self::start_by(shell, dir, arguments, &[])
    }

    /// Starts where this file is `/etc/hosts`, in a mount namespace of its own. A name of that file is resolved as any
    /// other, by the C library, which reads the file each time. Needs root or user namespaces.
    pub fn start_with_hosts(dir: &Path, arguments: &[&str], hosts: &Path) -> Self {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-c", "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"", "sh"]);
        command.arg(hosts).arg(program());
        Self::start_by(command, dir, arguments, &[])
    }

    fn start_by(mut command: Command, dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        command.args(arguments).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(variables.iter().copied());
        for listener in ["LISTEN", "TELEMETRY_LISTEN", "ADMIN_LISTEN"] {
            command.env(format!("BLOOMGUARD__SERVER__{listener}"), "127.0.0.1:0");
        }
        let mut child = command.spawn().unwrap();
        let reads_log = Arc::new(AtomicBool::new(true));
        let (log, log_reader) = collect(child.stderr.take().unwrap(), Arc::clone(&reads_log));
        let (out, out_reader) = collect(child.stdout.take().unwrap(), Arc::new(AtomicBool::new(true)));
        Self { child, log, out, readers: vec![log_reader, out_reader], reads_log }
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Waits for a line of standard output that contains `text`; returns all lines so far.
    pub fn printed(&mut self, text: &str) -> Vec<String> {
        self.wait(&format!("prints {text:?}"), |p| p.out.lock().unwrap().iter().any(|l| l.contains(text)));
        self.out.lock().unwrap().clone()
    }

    /// After the next line that it writes, its log is not read any more.
    pub fn stop_reading_log(&self) {
        self.reads_log.store(false, Ordering::Relaxed);
    }

    /// Waits for a line of the log that contains `text`.
    pub fn logged(&mut self, text: &str) {
        self.wait(&format!("logs {text:?}"), |p| p.log().contains(text));
    }

    /// The addresses of the data and the telemetry listener, once it serves.
    pub fn addresses(&mut self) -> (String, String) {
        self.wait("serves", |p| p.serving().is_some());
        let line = self.serving().unwrap();
        let address = |listener: &str| line[listener].as_str().unwrap().to_owned();
        (address("data"), address("telemetry"))
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The address of the admin listener, of a process that serves.
    pub fn admin(&self) -> String {
        self.serving().unwrap()["admin"].as_str().unwrap().to_owned()
    }

    fn serving(&self) -> Option<serde_json::Value> {
        let log = self.log.lock().unwrap();
        log.iter().filter_map(|l| serde_json::from_str(l).ok()).find(|l: &serde_json::Value| l["message"] == "serving")
    }

    fn wait(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let wait = Wait::within(PATIENCE);
        while !condition(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() || condition(self), "it ended ({ended:?}) before it {what}:\n{}", self.log());
            assert!(!wait.is_over(), "waited in vain until it {what}:\n{}", self.log());
            wait.pause_blocking();
        }
    }

    /// Bytes of memory that it occupies.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most that it has occupied since [`forget_peak`](Self::forget_peak), or its start.
    pub fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Begins the peak anew, see proc_pid_clear_refs(5).
    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end; all that it wrote is in the log then.
    pub fn ended(&mut self) -> ExitStatus {
        let wait = Wait::within(PATIENCE);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.readers.drain(..).for_each(|reader| reader.join().unwrap());
                return status;
            }
            assert!(!wait.is_over(), "it does not end:\n{}", self.log());
            wait.pause_blocking();
        }
    }
}

fn collect(
    from: impl std::io::Read + Send + 'static,
    reads: Arc<AtomicBool>,
) -> (Arc<Mutex<Vec<String>>>, JoinHandle<()>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&lines);
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            into.lock().unwrap().push(line);
            if !reads.load(Ordering::Relaxed) {
                return;
            }
        }
    });
    (lines, reader)
}
