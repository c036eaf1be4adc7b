//! Servers as separate processes, on one processor or on all.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use rustix::process::{Pid, Signal, kill_process};

const START_TIMEOUT: Duration = Duration::from_secs(120);

/// The processors of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// On the first one, the load generator on the second.
    Pinned,
    /// Placed by the kernel, beside the load generator, as a sidecar is.
    Sharing,
}

/// Nanoseconds that each thread has waited.
pub(crate) struct Waits(HashMap<OsString, u64>);

impl Waits {
    /// Seconds since `before`, of the threads that existed then.
    pub(crate) fn seconds_since(&self, before: &Self) -> f64 {
        let waited = |(thread, nanos): (_, &u64)| Some(nanos.saturating_sub(*before.0.get(thread)?));
        self.0.iter().filter_map(waited).sum::<u64>() as f64 / 1e9
    }
}

/// A process that is killed when dropped, and at the latest when this one ends.
pub(crate) struct Server(Child);

impl Server {
    pub(crate) fn start(placement: Placement, program: &Path, arguments: &[&str], directory: &Path) -> Self {
        let processors = if placement == Placement::Pinned { "0" } else { "0-1" };
        let log =
            fs::File::create(directory.join(format!("{}.log", program.file_name().unwrap_or_default().display())))
                .unwrap_or_else(|error| panic!("no log in {}: {error}", directory.display()));
        let errors = log.try_clone().unwrap_or_else(|error| panic!("no log: {error}"));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "taskset", "--cpu-list", processors])
            .arg(program)
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        Self(child)
    }

    /// Seconds of processor time so far.
    pub(crate) fn processor_seconds(&self) -> f64 {
        // Fields 14 and 15 of proc(5), counted from the name's closing parenthesis, in hundredths.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
    }

    /// How long each of its threads (except nice ones) has waited for a processor while it was runnable.
    pub(crate) fn waits(&self) -> Waits {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).into_iter().flatten().flatten();
        Waits(threads.filter_map(|thread| Some((thread.file_name(), waited_nanos(&thread.path())?))).collect())
    }

    /// Memory that it holds, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.status("VmRSS:") * 1024
    }

    /// The most memory that it has held since [`Server::forget_peak`], in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.status("VmHWM:") * 1024
    }

    pub(crate) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.0.id()), "5")
            .unwrap_or_else(|error| panic!("the peak can't be forgotten: {error}"));
    }

    pub(crate) fn threads(&self) -> u64 {
        self.status("Threads:")
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Terminates it, and waits for its end.
    pub(crate) fn stop(mut self) {
        let asked = Pid::from_child(&self.0);
        kill_process(asked, Signal::TERM).unwrap_or_else(|error| panic!("it can't be told to end: {error}"));
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that uses that share of one processor, from now on.
pub(crate) fn burner(placement: Placement, share: f64, logs: &Path) -> io::Result<Server> {
    let burner = Server::start(placement, &std::env::current_exe()?, &["burn", &share.to_string()], logs);
    // Its start is not part of the measurement.
    until("a loop takes processor time", || burner.processor_seconds() > 0.05);
    Ok(burner)
}

/// `None` if the thread is nice, or has ended.
fn waited_nanos(thread: &Path) -> Option<u64> {
    // Field 19 of proc(5), counted as above; and the second one of the kernel's sched-stats.
    let stat = fs::read_to_string(thread.join("stat")).ok()?;
    let nice: i32 = stat.rsplit(')').next()?.split_whitespace().nth(16)?.parse().ok()?;
    let waited = fs::read_to_string(thread.join("schedstat")).ok()?.split_whitespace().nth(1)?.parse().ok()?;
    (nice <= 0).then_some(waited)
}

/// A temporary folder for a server.
pub(crate) fn folder() -> TempDir {
    tempfile::Builder::new().prefix("bloomguard-bench-").tempdir().unwrap_or_else(|error| panic!("no folder: {error}"))
}

/// Writes the even numbers below twice `keys`, one per line.
pub(crate) fn write_keys(list: &Path, keys: u64) {
    let written = fs::File::create(list).and_then(|file| {
        let mut file = BufWriter::with_capacity(1 << 20, file);
        (0..keys).try_for_each(|n| writeln!(file, "{}", 2 * n))?;
        file.into_inner()?.sync_all()
    });
    written.unwrap_or_else(|error| panic!("no keys in {}: {error}", list.display()));
}

/// An unused port.
pub(crate) fn free_address() -> SocketAddr {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap_or_else(|error| panic!("no port is free: {error}"));
    listener.local_addr().unwrap_or_else(|error| panic!("a listener without address: {error}"))
}

/// Waits until a server listens.
pub(crate) fn listening(address: SocketAddr) {
    until(&format!("{address} is listened on"), || TcpStream::connect(address).is_ok());
}

/// Waits for a condition.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_every(Duration::from_millis(10), what, || condition().then_some(()));
}

/// Waits for a condition, with at least this pause between checks, and returns its value.
pub(crate) fn until_every<T>(pause: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(begin.elapsed() < START_TIMEOUT, "waited in vain until {what}");
        std::thread::sleep(pause);
    }
}
