//! A folder in which instances of bloomguard start, one after another: their configuration, their keys, and the files
//! they leave behind.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::guard::{configuration, document, metric, program, send, until_enforcing};
use super::raw;
use crate::connection::{Place, Wire};
use crate::load::Target;
use crate::process::{Placement, Server, folder, free_address, until, until_every, write_keys};
use crate::requests::Requests;

pub(crate) struct Site {
    pub(crate) data: SocketAddr,
    telemetry: SocketAddr,
    admin: SocketAddr,
    placement: Placement,
    directory: TempDir,
    _backend: Server,
}

impl Site {
    /// One keyspace, of the even numbers below twice `keys`, which a file lists. Its backend is the raw loop.
    pub(crate) fn new(placement: Placement, keys: u64, redis: Option<SocketAddr>) -> Self {
        let directory = folder();
        let (backend, server) = raw::start_backend(placement, directory.path());
        let list = directory.path().join("keys.txt");
        write_keys(&list, keys);
        let mut keyspace = format!(
            "commit_window = \"1s\"\nfilter = {{ expected_keys = {keys} }}\n
backend = {{ kind = \"http\", url = \"http://{backend}/users/{{key}}\" }}\n
source = {{ kind = \"file\", path = \"{}\" }}\n",
            list.display()
        );
        if let Some(redis) = redis {
            let _ = write!(keyspace, "[redis]\nurl = \"redis://{redis}\"\n");
        }
        let [data, telemetry, admin] = [free_address(), free_address(), free_address()];
        std::fs::write(
            directory.path().join("bloomguard.toml"),
            configuration(&data.to_string(), telemetry, admin, "", &keyspace),
        )
        .unwrap_or_else(|error| panic!("no configuration: {error}"));
        Self { data, telemetry, admin, placement, directory, _backend: server }
    }

    /// Starts an instance and waits for nothing.
    pub(crate) fn start(&self) -> Server {
        Server::start(self.placement, &program(), &["serve", "--config", "bloomguard.toml"], self.directory.path())
    }

    pub(crate) fn enforces(&self) {
        until_enforcing(self.telemetry);
    }

    /// The sum of the series whose names and labels begin with this prefix.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        metric(self.telemetry, series)
    }

    /// As a target for all connections.
    pub(crate) fn target<'a>(&self, requests: &'a Requests, connections: usize) -> Target<'a> {
        Target { place: Place::Tcp(self.data), wire: Wire::Http, requests, connections }
    }

    /// Rebuilds the filter, and waits until the new one is active. Returns the seconds it took, as the instance reports
    /// them.
    pub(crate) fn rebuild(&self) -> f64 {
        const PLACE: &str = "/admin/keyspaces/users/rebuild";
        // Polls rarely, and not /metrics, which takes a worker a millisecond: lookups would wait for it.
        let pause = Duration::from_millis(50);
        let job = until_every(pause, "a rebuild begins", || {
            let answer = send(self.admin, "POST", PLACE, "{}").filter(|it| it.contains(" 202 "))?;
            document(&answer)["job"].as_u64()
        });
        let last = until_every(pause, "the rebuild has ended", || {
            let last = document(&send(self.admin, "GET", PLACE, "")?)["last"].take();
            (last["job"].as_u64() == Some(job)).then_some(last)
        });
        assert_eq!(last["outcome"], "swapped", "{last}");
        last["duration_seconds"].as_f64().unwrap_or(f64::NAN)
    }

    /// Waits until the active filter is on disk.
    pub(crate) fn is_saved(&self) {
        let place = self.directory.path().join("data/users.snapshot");
        until("a snapshot is written", || {
            place.is_file() && self.metric("bloomguard_snapshots_total{keyspace=\"users\",outcome=\"written\"}") > 0.0
        });
    }
}

/// Bytes of the program, and of a copy without symbols if `strip` is installed.
pub(crate) fn program_bytes() -> (u64, Option<u64>) {
    let size = |path: &Path| std::fs::metadata(path).map(|file| file.len());
    let stripped = tempfile::tempdir().and_then(|directory| {
        let copy = directory.path().join("stripped");
        std::process::Command::new("strip").arg("-o").arg(&copy).arg(program()).status()?;
        size(&copy)
    });
    (size(&program()).unwrap_or(0), stripped.ok())
}
