//! The binary as a user runs it: signals, exit codes, the quickstart.

use std::process::Command;

use sqlx::{Connection, Executor};
use tempfile::TempDir;

use super::users::{config, site};
use crate::support::app::Http;
use crate::support::assert_eventually;
use crate::support::database::Site;
use crate::support::process::Process;

pub async fn enforces(http: &Http, telemetry: &str) {
    let mut status;
    assert_eventually!(
        {
            status = http.get(&format!("http://{telemetry}/status")).await.json();
            status["keyspaces"]["users"]["state"] == "enforcing"
        },
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_requests_in_flight_and_refuses_new_ones() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::postgres()).await);
    let patient = config(&site.url()).server("drain_timeout", "2m").users(|k| k.times("100s", "5s", "90s"));
    let mut process = Process::start(dir.path(), &["serve", "--config", &patient.write(dir.path())]);
    let (data, telemetry) = process.addresses();
    let http = Http::default();
    enforces(&http, &telemetry).await;
    assert_eq!(http.get(&format!("http://{telemetry}/readyz")).await.status, 200);
    // No row can be read while this is held.
    let mut lock = sqlx::PgConnection::connect(&site.url()).await.unwrap();
    lock.execute("BEGIN; LOCK TABLE users IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let in_flight = tokio::spawn({
        let (http, url) = (http.clone(), format!("http://{data}/v1/keys/users/42"));
        async move { http.get(&url).await }
    });
    let inflight = "bloomguard_backend_inflight_requests{keyspace=\"users\"}";
    assert_eventually!(
        crate::support::metric(http.get(&format!("http://{telemetry}/metrics")).await.text(), inflight) >= 1.0,
        "the request is not in flight"
    );
    process.signal("TERM");
    assert_eventually!(http.get(&format!("http://{telemetry}/readyz")).await.status == 503, "it stays ready");
    assert!(!in_flight.is_finished(), "probes see the drain while requests are finished");
    // Supervisors send it again at will.
    process.signal("TERM");
    process.logged("second SIGTERM ignored");
    assert_eq!(http.get(&format!("http://{telemetry}/livez")).await.status, 200);
    lock.close().await.unwrap();
    let answer = in_flight.await.unwrap();
    assert_eq!(answer.told(), "200 backend");
    assert!(process.ended().success(), "{}", process.log());
    assert!(process.log().contains("all requests answered"), "{}", process.log());
}

/// Invariant: announced-never-404
#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledged_announce_survives_sigkill() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::postgres()).await);
    let file = config(&site.url()).write(dir.path());
    let http = Http::default();
    for id in 5_000_000..5_000_003 {
        let mut process = Process::start(dir.path(), &["--config", &file]);
        let (data, telemetry) = process.addresses();
        enforces(&http, &telemetry).await;
        assert_eq!(http.send("PUT", &format!("http://{data}/v1/keys/users/{id}"), &[], "").await.status, 204);
        process.signal("KILL");
        process.ended();
        let mut process = Process::start(dir.path(), &["--config", &file]);
        let (data, telemetry) = process.addresses();
        enforces(&http, &telemetry).await;
        site.run(&format!("INSERT INTO users VALUES ({id}, 'new')")).await;
        assert_eq!(http.get(&format!("http://{data}/v1/keys/users/{id}")).await.told(), "200 backend");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_or_a_port_in_use_ends_the_start_with_the_reason() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::sqlite()).await);
    let file = config(&site.url()).write(dir.path());
    let mut first = Process::start(dir.path(), &["--config", &file]);
    let (data, _) = first.addresses();
    let mut second = Process::start(dir.path(), &["--config", &file]);
    assert_eq!(second.ended().code(), Some(1));
    assert!(second.log().contains("in use by another bloomguard"), "{}", second.log());
    let elsewhere = TempDir::new().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bloomguard"))
        .args(["--config", &file])
        .current_dir(elsewhere.path())
        .env("BLOOMGUARD__SERVER__LISTEN", &data)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(log.contains("server.listen") && log.contains(&data), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_three_curl_lines_of_the_quickstart_show_three_outcomes() {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("config")).unwrap();
    std::fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/config/quickstart.toml"),
        dir.path().join("config/quickstart.toml"),
    )
    .unwrap();
    let mut process = Process::start(dir.path(), &[]);
    process.printed("found again");
    let lines: Vec<String> =
        process.printed("found again").into_iter().filter(|l| l.trim_start().starts_with("curl ")).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, status, source) in
        [(&lines[0], "404", "filter"), (&lines[1], "200", "backend"), (&lines[2], "200", "hot")]
    {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout).to_lowercase();
        assert!(
            answer.starts_with(&format!("http/1.1 {status}"))
                && answer.contains(&format!("bloomguard-source: {source}")),
            "{line}\n{answer}"
        );
    }
    let (_, telemetry) = process.addresses();
    let http = Http::default();
    let metrics = http.get(&format!("http://{telemetry}/metrics")).await;
    for (source, result) in [("filter", "absent"), ("backend", "found"), ("hot", "found")] {
        let line = format!("bloomguard_lookups_total{{keyspace=\"users\",source=\"{source}\",result=\"{result}\"}}");
        assert_eq!(crate::support::metric(metrics.text(), &line), 1.0);
    }
    process.signal("INT");
    assert!(process.ended().success(), "{}", process.log());
    // A second start takes the database as it is.
    let mut process = Process::start(dir.path(), &[]);
    process.printed("found again");
    assert!(!process.log().contains("created demo database"), "{}", process.log());
}
