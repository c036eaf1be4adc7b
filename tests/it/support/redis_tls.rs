//! A Redis server, a sentinel and a cluster of one node that speak TLS, on ports beside the plain one of the test.

use std::path::Path;

use redis::FromRedisValue;
use tempfile::TempDir;

use super::certificates::{Authority, Certificate, text};
use super::redis::{RedisServer, free_port};

/// The names of a server's certificate, where a test says nothing else.
pub const HERE: &str = "DNS:localhost,IP:127.0.0.1";

pub struct TlsRedis {
    pub server: RedisServer,
    pub authority: Authority,
    port: u16,
}

/// Settings of a server with this certificate.
fn settings(port: u16, certificate: &Certificate, ca: &Path) -> Vec<String> {
    let (chain, key) = (text(&certificate.chain), text(&certificate.key));
    let port = port.to_string();
    ["--tls-port", &port, "--tls-cert-file", chain, "--tls-key-file", key, "--tls-ca-cert-file", text(ca)]
        .map(str::to_owned)
        .to_vec()
}

impl TlsRedis {
    /// A server with a certificate for this machine, which asks clients for none.
    pub fn start() -> Self {
        Self::start_with(HERE, &["--tls-auth-clients", "no"])
    }

    /// A server with a certificate for these names.
    pub fn start_with(names: &str, arguments: &[&str]) -> Self {
        Self::start_program(None, names, arguments)
    }

    pub fn start_program(program: Option<&str>, names: &str, arguments: &[&str]) -> Self {
        let (authority, port) = (Authority::new(), free_port());
        let mut all = settings(port, &authority.issue(names), &authority.pem());
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let server = match program {
            Some(program) => RedisServer::start_program(program, &all),
            None => RedisServer::start_with(&all),
        };
        Self { server, authority, port }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    /// By its address, without a login.
    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    /// Shows clients another certificate from now on.
    pub fn present(&self, certificate: &Certificate) {
        self.command::<String>(&[
            "CONFIG",
            "SET",
            "tls-cert-file",
            text(&certificate.chain),
            "tls-key-file",
            text(&certificate.key),
        ]);
    }

    /// Closes the connections of all others.
    pub fn drop_clients(&self) {
        self.command::<u32>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }

    pub fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.server.connection()).unwrap()
    }

    /// Connections of the product: the test's own are plain, and a sentinel's have names.
    pub fn secure_clients(&self) -> usize {
        let port = format!(":{} ", self.port);
        self.command::<String>(&["CLIENT", "LIST"])
            .lines()
            .filter(|line| line.contains(&port) && line.contains(" name= "))
            .count()
    }
}

/// A sentinel that knows a server by its TLS port.
pub struct TlsSentinel {
    process: std::process::Child,
    port: u16,
    _directory: TempDir,
}

impl TlsSentinel {
    /// `[server, own]`: the passwords of the server and of the sentinel itself.
    pub fn start(redis: &TlsRedis, [server, own]: [&str; 2]) -> Self {
        let directory = tempfile::Builder::new().prefix("bloomguard-sentinel-").tempdir().unwrap();
        let (port, file) = (free_port(), directory.path().join("sentinel.conf"));
        let certificate = redis.authority.issue(HERE);
        let conf = format!(
            "port 0\ntls-port {port}\nbind 127.0.0.1\ndir {}\nrequirepass {own}\ntls-auth-clients no\n\
             tls-replication yes\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n\
             sentinel monitor main 127.0.0.1 {} 1\nsentinel auth-pass main {server}\n",
            directory.path().display(),
            text(&certificate.chain),
            text(&certificate.key),
            text(&redis.authority.pem()),
            redis.port
        );
        std::fs::write(&file, conf).unwrap();
        let mut command = std::process::Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "redis-server"]).arg(&file).arg("--sentinel");
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        Self { process: super::redis::spawn(command), port, _directory: directory }
    }

    pub fn url(&self) -> String {
        format!("rediss+sentinel://127.0.0.1:{}/main", self.port)
    }
}

impl Drop for TlsSentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
