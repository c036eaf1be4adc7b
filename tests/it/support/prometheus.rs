//! A Prometheus server of its own, on a free port in a temporary directory, that scrapes what the test names.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::app::Http;
use super::wait::Wait;

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Dropped, it is killed and its files are removed.
pub struct Prometheus {
    // Removed after the process that writes into it has ended.
    process: Child,
    address: String,
    http: Http,
    _directory: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// Scrapes each target several times a second, under this job's name and with these labels, which targets' own
    /// labels override.
    pub async fn scraping(targets: &[(&str, SocketAddr, &str)]) -> Self {
        let directory = tempfile::Builder::new().prefix("bloomguard-prometheus-").tempdir().unwrap();
        let jobs: Vec<String> = targets
            .iter()
            .map(|(job, address, labels)| {
                format!(
                    "- job_name: {job}\n  honor_labels: true\n  static_configs: [{{targets: [\"{address}\"], \
                    labels: {{{labels}}}}}]\n"
                )
            })
            .collect();
        let config =
            format!("global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n{}", jobs.concat());
        std::fs::write(directory.path().join("prometheus.yml"), config).unwrap();
        // Another process may take a port between its being found free and its being used.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let address = format!("127.0.0.1:{port}");
            let log = std::fs::File::create(directory.path().join("log")).unwrap();
            let mut command = Command::new("setpriv");
            command.args([
                "--pdeathsig",
                "KILL",
                "prometheus",
                "--config.file",
                "prometheus.yml",
                "--storage.tsdb.path",
                "data",
            ]);
            command.args(["--web.listen-address", &address, "--log.level", "warn"]).current_dir(directory.path());
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
            let mut process = super::redis::spawn(command);
            let (http, wait) = (Http::default(), Wait::within(START_TIMEOUT));
            while process.try_wait().unwrap().is_none() {
                if http
                    .try_send("GET", &format!("http://{address}/-/ready"), &[], "")
                    .await
                    .is_some_and(|a| a.status == 200)
                {
                    return Self { process, address, http, _directory: directory };
                }
                assert!(!wait.is_over(), "prometheus does not become ready");
                wait.pause().await;
            }
        }
        panic!("prometheus did not start: {}", std::fs::read_to_string(directory.path().join("log")).unwrap());
    }

    /// The values that a query has now, without those that are no numbers.
    pub async fn query(&self, query: &str) -> Vec<f64> {
        let encoded = percent_encoding::utf8_percent_encode(query, percent_encoding::NON_ALPHANUMERIC);
        let answer = self.http.get(&format!("http://{}/api/v1/query?query={encoded}", self.address)).await;
        let body: Value = answer.json();
        assert_eq!(body["status"], "success", "{query}: {body}");
        let result = body["data"]["result"].as_array().unwrap();
        result
            .iter()
            .map(|series| series["value"][1].as_str().unwrap().parse().unwrap())
            .filter(|value: &f64| !value.is_nan())
            .collect()
    }
}
