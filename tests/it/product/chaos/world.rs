//! The instances, and what is asked of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use sqlx::postgres::PgPool;
use tempfile::TempDir;

use super::outages::{Outage, Watch};
use crate::support::app::Http;
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::metric;
use crate::support::process::Process;

pub const PROCESSES: usize = 3;

/// One instance: its folder, its process and where that listens.
pub struct Instance {
    dir: TempDir,
    config: String,
    process: Mutex<Option<Process>>,
    /// Data and telemetry.
    addresses: RwLock<(String, String)>,
}

impl Instance {
    pub fn start(config: &Config) -> Self {
        let dir = TempDir::new().unwrap();
        let instance =
            Self { config: config.write(dir.path()), dir, process: Mutex::default(), addresses: RwLock::default() };
        instance.launch();
        instance
    }

    /// Kills the process, if there is one, and starts another in its place.
    pub fn launch(&self) {
        // The old one is gone before the new one takes the folder.
        drop(self.process.lock().take());
        let mut process = Process::start(self.dir.path(), &["serve", "--config", &self.config]);
        let addresses = process.addresses();
        *self.addresses.write() = addresses;
        *self.process.lock() = Some(process);
    }

    pub fn signal(&self, name: &str) {
        self.process.lock().as_ref().unwrap().signal(name);
    }
}

/// What all take part in.
pub struct World {
    pub http: Http,
    pub database: PgPool,
    pub instances: Vec<Instance>,
    pub stop: AtomicBool,
    /// What was broken last.
    pub fault: Mutex<&'static str>,
    pub counts: Counts,
    pub wrong: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
pub struct Counts {
    pub committed: AtomicU64,
    pub late_commits: AtomicU64,
    pub refused_announces: AtomicU64,
    pub rejected_before_commit: AtomicU64,
    pub found_by_version: AtomicU64,
    pub found_by_time: AtomicU64,
    pub no_answer: AtomicU64,
    pub invalidated: AtomicU64,
    pub new_at_once: AtomicU64,
    pub old_elsewhere_within_hot_ttl: AtomicU64,
    pub new_everywhere: AtomicU64,
}

pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// An answer, as far as it matters.
pub struct Told {
    pub status: u16,
    pub source: String,
    pub version: String,
    pub body: String,
}

impl World {
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub fn wrong(&self, what: String) {
        self.wrong.lock().push(format!("[{}] {what}", self.fault.lock()));
    }

    /// `None`: no answer, as from a process that was killed.
    pub async fn ask(
        &self,
        method: &str,
        instance: usize,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Told> {
        let url = format!("http://{}{path}", self.instances[instance].addresses.read().0);
        let answer = self.http.try_send(method, &url, headers, body).await?;
        let header = |name: &str| answer.header(name).to_owned();
        let (source, version) = (header("bloomguard-source"), header("bloomguard-version"));
        Some(Told { status: answer.status, source, version, body: answer.text().to_owned() })
    }

    /// The same at every instance, at once.
    pub async fn ask_all(&self, path: &str, headers: &[(&str, &str)]) -> Vec<Option<Told>> {
        futures_util::future::join_all((0..PROCESSES).map(|instance| self.ask("GET", instance, path, headers, "")))
            .await
    }

    async fn telemetry(&self, instance: usize, path: &str) -> Option<crate::support::app::Answer> {
        let url = format!("http://{}{path}", self.instances[instance].addresses.read().1);
        self.http.try_send("GET", &url, &[], "").await
    }

    /// Why an instance does not reject; `None`: it does.
    pub async fn trouble(&self, instance: usize) -> Option<String> {
        let Some(status) = self.telemetry(instance, "/status").await else { return Some("the process is down".into()) };
        let users = &status.json()["keyspaces"]["users"];
        (users["state"] != "enforcing").then(|| users["reason"].as_str().unwrap_or_default().to_owned())
    }

    /// How often the instance has noticed that announces may have been lost, and has scanned or heard every report;
    /// `None` where it has not read the log yet, and so has nothing to notice.
    pub async fn noticed(&self, instance: usize) -> Option<f64> {
        let status = self.telemetry(instance, "/status").await?;
        if status.json()["keyspaces"]["users"]["delta_lag_seconds"].is_null() {
            return None;
        }
        let scrape = self.telemetry(instance, "/metrics").await?;
        let reasons = ["young", "replaced", "trimmed", "gap"];
        let series =
            reasons.map(|reason| format!("bloomguard_delta_resyncs_total{{keyspace=\"users\",reason=\"{reason}\"}}"));
        let reported = "bloomguard_delta_roll_calls_total{keyspace=\"users\",outcome=\"complete\"}";
        let of = |line: &str| metric(scrape.text(), line);
        Some(series.iter().map(|line| of(line)).sum::<f64>() + of(reported))
    }

    /// Rows that the instance found although its filter had said absent, and should not have.
    pub async fn false_negatives(&self, instance: usize) -> f64 {
        let scrape = self.telemetry(instance, "/metrics").await.unwrap();
        metric(scrape.text(), "bloomguard_filter_false_negatives_total{keyspace=\"users\"}")
    }

    /// Every outage of every instance until all is over.
    pub async fn watch(self: Arc<Self>) -> Vec<Outage> {
        let (mut outages, mut watches) =
            (Vec::new(), [const { None::<Watch> }; PROCESSES].map(Option::unwrap_or_default));
        while !self.is_over() {
            for (instance, watch) in watches.iter_mut().enumerate() {
                // A process that is paused does not answer.
                let asked = tokio::time::timeout(Duration::from_secs(1), self.trouble(instance)).await;
                let trouble = asked.unwrap_or_else(|_| Some("the process does not answer".into()));
                outages.extend(watch.note(*self.fault.lock(), trouble));
            }
            // How finely outages are measured.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        outages
    }

    pub async fn wait_until_all_enforce(&self) {
        for instance in 0..PROCESSES {
            let mut trouble;
            assert_eventually!(
                within Duration::from_secs(600) => {
                    trouble = self.trouble(instance).await;
                    trouble.is_none()
                },
                "instance {instance} never enforces: {trouble:?}"
            );
        }
    }
}
