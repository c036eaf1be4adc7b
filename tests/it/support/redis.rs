//! Redis servers on free ports in temporary directories.
//!
//! A server dies with the test process, however that ends: `setpriv --pdeathsig KILL` ties it to the thread that
//! started it, which is one thread of its own that lives as long as the process. (Tied to a test's thread it would die
//! with that test, to one of Tokio's blocking threads even while the test runs.)

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::wait::Wait;

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Below the ports that the kernel gives to outgoing connections, so that none of them takes a server's port while it
/// is down.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// A server of its own. Dropped, it is killed and its files are removed.
pub struct RedisServer {
    program: String,
    directory: TempDir,
    address: &'static str,
    port: u16,
    password: Option<String>,
    arguments: Vec<String>,
    process: Option<Child>,
    /// Its log is as old as its process, and not one that has been there for long.
    young: bool,
}

impl RedisServer {
    /// Starts a server that persists nothing by itself.
    pub fn start() -> Self {
        Self::launched(&[], false)
    }

    /// Starts another program that speaks as Redis does.
    pub fn start_program(program: &str, arguments: &[&str]) -> Self {
        Self::prepared(program, arguments, false).begun()
    }

    /// Starts at another address of this machine and on this port.
    pub fn start_at(address: &'static str, port: u16, arguments: &[&str]) -> Self {
        let mut server = Self::prepared(&program(), arguments, true);
        (server.address, server.port) = (address, port);
        assert!(server.launch(), "redis-server did not start: {}", server.log());
        server
    }

    /// Starts a server whose log was made just now: what had been announced before is unknown.
    pub fn start_young() -> Self {
        Self::launched(&[], true)
    }

    /// Starts a server with further arguments, such as `["--requirepass", "secret"]`.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::launched(arguments, true)
    }

    fn launched(arguments: &[&str], young: bool) -> Self {
        Self::prepared(&program(), arguments, young).begun()
    }

    fn prepared(program: &str, arguments: &[&str], young: bool) -> Self {
        let password = arguments.windows(2).find(|pair| pair[0] == "--requirepass").map(|pair| pair[1].to_owned());
        let arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        let directory = tempfile::Builder::new().prefix("bloomguard-redis-").tempdir().unwrap();
        let (program, address) = (program.to_owned(), "127.0.0.1");
        Self { program, directory, address, port: 0, password, arguments, process: None, young }
    }

    fn begun(mut self) -> Self {
        // Another process may take a port between its being found free and its being used.
        for _ in 0..5 {
            self.port = free_port();
            if self.launch() {
                return self;
            }
        }
        panic!("{} did not start: {}", self.program, self.log());
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        self.url_with_password(self.password.as_deref())
    }

    pub fn url_with_password(&self, password: Option<&str>) -> String {
        let user = password.map(|p| format!(":{p}@")).unwrap_or_default();
        format!("redis://{user}{}:{}", self.address, self.port)
    }

    /// A connection of the test's own, to look at what is really stored.
    pub fn connection(&self) -> redis::Connection {
        self.try_connection().unwrap()
    }

    pub const fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// Kills the server, as a crash would.
    pub fn kill(&mut self) {
        let mut process = self.process.take().expect("it is running");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts it again after [`RedisServer::kill`], on the same port, with what it had saved.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "it is running");
        assert!(self.launch(), "redis-server did not start again: {}", self.log());
    }

    /// From the next start on the log is as old as the process.
    pub const fn stay_young(&mut self) {
        self.young = true;
    }

    /// Stops the process without closing its connections: it hangs.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after [`RedisServer::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it is running");
        kill_process(Pid::from_child(process), signal).unwrap();
    }

    fn try_connection(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))
    }

    /// Starts the process; `false` where it ended at once, as it does when its port was taken.
    fn launch(&mut self) -> bool {
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            &self.program,
            "--bind",
            self.address,
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.arg("--port").arg(self.port.to_string()).arg("--dir").arg(self.directory.path()).args(&self.arguments);
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.directory.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut process = spawn(command);
        let wait = Wait::within(START_TIMEOUT);
        while !wait.is_over() {
            if process.try_wait().unwrap().is_some() {
                return false;
            }
            let answers = self.try_connection().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c)).is_ok();
            if answers {
                self.process = Some(process);
                if !self.young {
                    self.age_log();
                }
                return true;
            }
            wait.pause_blocking();
        }
        process.kill().unwrap();
        process.wait().unwrap();
        false
    }

    /// Gives the log an identity that was made long ago: as at a server that has been up for a while.
    fn age_log(&self) {
        let mut connection = self.connection();
        let info: String = redis::cmd("INFO").query(&mut connection).unwrap();
        let fact = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        let (run_id, replid) = (fact("run_id:"), fact("master_replid:"));
        let identity = format!("{:032x}:1000000000.000000", rand::random::<u128>());
        let _: Option<String> = redis::cmd("SET")
            .arg(format!("bloomguard:log:{run_id}:{replid}"))
            .arg(&identity)
            .arg("NX")
            .query(&mut connection)
            .unwrap();
        // So is its roster, which nobody is in any more.
        let _: () = redis::cmd("HSET")
            .arg("bloomguard:roster:users")
            .arg(&[("log", identity.split(':').next().unwrap()), ("view", "0"), ("version", "0"), ("born", "1")])
            .query(&mut connection)
            .unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The server of all tests that name no other: `redis-server`, or what `BLOOMGUARD_TEST_REDIS` names, such as
/// `valkey-server`.
fn program() -> String {
    super::long_run::given("BLOOMGUARD_TEST_REDIS").unwrap_or_else(|| "redis-server".to_owned())
}

/// Starts a process from the thread that it is to die with.
pub(super) fn spawn(command: Command) -> Child {
    type Job = (Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, reply) in inbox {
                let _ = reply.send(command.spawn());
            }
        });
        jobs
    });
    let (reply, child) = mpsc::channel();
    SPAWNER.send((command, reply)).unwrap();
    child.recv().unwrap().expect("setpriv (util-linux) is installed")
}

/// A free port, which no outgoing connection takes.
pub fn free_port() -> u16 {
    loop {
        let port = rand::random_range(PORTS);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
