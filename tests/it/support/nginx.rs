//! nginx on free ports in temporary directories, and certificates for it.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::wait::Wait;

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Ends nginx, workers included, when standard input closes: that happens whenever the test process ends.
const GUARDIAN: &str = r#"
"$@" </dev/null &
server=$!
read -r word
kill -TERM "$server" 2>/dev/null
wait "$server"
"#;

/// A server of its own, master and worker. Dropped, it is stopped.
pub struct Nginx {
    directory: TempDir,
    port: u16,
    options: String,
    generation: u32,
    guardian: Child,
}

impl Nginx {
    /// Starts with the directives of one `server`, `listen` left out; `options` are further words of it, such as `ssl`.
    pub fn start(options: &str, server: &str) -> Self {
        let mut log = String::new();
        // Another process may take a port between its being found free and its being used.
        for _ in 0..5 {
            let directory = tempfile::Builder::new().prefix("bloomguard-nginx-").tempdir().unwrap();
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            write_config(directory.path(), port, options, server, 1);
            let guardian = launch(directory.path());
            let nginx = Self { directory, port, options: options.to_owned(), generation: 1, guardian };
            if nginx.serves(1) {
                return nginx;
            }
            log = nginx.log();
        }
        panic!("nginx did not start: {log}");
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Loads other directives, as `nginx -s reload` does, and waits until they answer.
    pub fn reload(&mut self, server: &str) {
        self.generation += 1;
        write_config(self.directory.path(), self.port, &self.options, server, self.generation);
        let pid = std::fs::read_to_string(self.directory.path().join("pid")).unwrap();
        assert!(Command::new("kill").args(["-HUP", pid.trim()]).status().unwrap().success());
        assert!(self.serves(self.generation), "nginx did not reload: {}", self.log());
    }

    fn serves(&self, generation: u32) -> bool {
        let scheme = if self.options.contains("ssl") { "https" } else { "http" };
        let url = format!("{scheme}://{}/generation", self.address());
        let wait = Wait::within(START_TIMEOUT);
        // The worker of before takes connections until it says so.
        let retired = |log: &str| log.matches("gracefully shutting down").count() + 1 >= generation as usize;
        while !wait.is_over() {
            let answer = Command::new("curl").args(["-sk", "--noproxy", "*", &url]).output().unwrap();
            let log = self.log();
            if answer.stdout == generation.to_string().as_bytes() && retired(&log) {
                return true;
            }
            if log.contains("[emerg]") {
                return false;
            }
            wait.pause_blocking();
        }
        false
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ = self.guardian.wait();
    }
}

fn write_config(directory: &Path, port: u16, options: &str, server: &str, generation: u32) {
    let at = directory.display();
    // As root, workers would otherwise be a user who can't read the test's files.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let text = format!(
        "{user} daemon off; worker_processes 1; pid {at}/pid; error_log {at}/log notice;
events {{ worker_connections 512; }}
http {{
  access_log off; default_type application/octet-stream;
  client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path \
  {at}/uwsgi; scgi_temp_path {at}/scgi;
  server {{ listen 127.0.0.1:{port} {options}; location = /generation {{ return 200 '{generation}'; }}
{server}
  }}
}}
"
    );
    std::fs::write(directory.join("conf"), text).unwrap();
}

fn launch(directory: &Path) -> Child {
    let nginx = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .unwrap_or("nginx");
    let mut command = Command::new("sh");
    command
        .args(["-c", GUARDIAN, "guardian", nginx, "-e"])
        .arg(directory.join("log"))
        .arg("-c")
        .arg(directory.join("conf"));
    // A group of its own: an interrupt from the keyboard must not reach the shell before it has cleaned up.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().unwrap()
}

/// A certificate authority made for one test, and a certificate of it for `localhost`.
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    pub fn make() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("names"), "subjectAltName=DNS:localhost\n").unwrap();
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        for arguments in [
            &[&["req", "-x509", "-days", "30", "-subj", "/CN=Test \
                CA", "-keyout", "ca.key", "-out", "ca.pem"], &key[..]].concat()[..],
            &[&["req", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"], &key[..]].concat(),
            &"x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile names -out server.pem"
                .split(' ')
                .collect::<Vec<_>>(),
        ] {
            let output = Command::new("openssl").args(arguments).current_dir(directory.path()).output().unwrap();
            assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Self { directory }
    }

    /// The authority.
    pub fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// The directives that nginx needs.
    pub fn directives(&self) -> String {
        let at = self.directory.path().display();
        format!("ssl_certificate {at}/server.pem; ssl_certificate_key {at}/server.key;")
    }
}
