//! SIGTERM while requests flow: each accepted request is answered, and what was acknowledged is there afterwards.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use super::process::enforces;
use crate::support::app::Http;
use crate::support::config::Config;
use crate::support::http_server::{HttpServer, Reply, ok, status};
use crate::support::process::Process;
use crate::support::redis::RedisServer;
use crate::support::{assert_eventually, eventually};

/// An API with the rows of the source, which are there at once, and others, for whom this is the reply.
async fn api(row: fn() -> Reply) -> HttpServer {
    HttpServer::start(move |request| match request.target().strip_prefix("/rows/") {
        Some("1" | "2" | "3") => ok("application/json", "{}"),
        Some(key) if key.starts_with("row") => row(),
        _ => status("404 Not Found", "", ""),
    })
    .await
}

/// Rows behind an HTTP API, which sees each request that was accepted. No announced key passes the filter by chance.
fn configuration(dir: &Path, api: &HttpServer, drain_timeout: &str) -> Config {
    let keys = dir.join("keys");
    std::fs::write(&keys, "1\n2\n3\n").unwrap();
    Config::new().server("drain_timeout", drain_timeout).users(|k| {
        k.set("key", "text")
            .set("freshness", "announced")
            .set("deadline", "100s")
            .set("filter.expected_keys", 100_000)
            .set("filter.false_positive_rate", 1e-9)
            .set("backend.kind", "http")
            .set("backend.url", api.url("/rows/{key}"))
            .set("backend.timeout", "90s")
            .source_file(&keys)
            .set("rebuild.min_keys_ratio", 0.0)
            .set("canary.sample_rate", 0)
    })
}

/// What clients were told, by the number in the key.
#[derive(Default)]
struct Told {
    next: AtomicU64,
    answered: AtomicUsize,
}

/// One request after another, until one has no answer; returns the numbers of those that were answered, with the
/// status, and that one.
async fn ask(http: Http, told: Arc<Told>, method: &'static str, base: String) -> (Vec<(u64, u16)>, u64) {
    let mut answers = Vec::new();
    loop {
        let number = told.next.fetch_add(1, Ordering::Relaxed);
        let kind = if method == "PUT" { "new" } else { "row" };
        let answer = http.try_send(method, &format!("{base}/{kind}{number}"), &[("bloomguard-bypass", "1")], "").await;
        let Some(answer) = answer else { return (answers, number) };
        answers.push((number, answer.status));
        told.answered.fetch_add(1, Ordering::Relaxed);
    }
}

async fn sigterm_under_load(redis: Option<&RedisServer>) {
    let dir = TempDir::new().unwrap();
    let api = api(|| ok("application/json", "{}")).await;
    let file = configuration(dir.path(), &api, "2m").maybe_redis(redis).write(dir.path());
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (data, telemetry) = process.addresses();
    let http = Http::default();
    enforces(&http, &telemetry).await;
    let (told, base) = (Arc::new(Told::default()), format!("http://{data}/v1/keys/users"));
    // Clients of a pool share it, those of HTTP/2 a connection.
    let (h1, h2) = (Http::default(), Http::h2c());
    let clients: Vec<_> = (0..24)
        .map(|client| {
            let (http, method) = (if client % 2 == 0 { &h1 } else { &h2 }, if client % 4 < 2 { "GET" } else { "PUT" });
            (method, tokio::spawn(ask(http.clone(), Arc::clone(&told), method, base.clone())))
        })
        .collect();
    eventually("requests flow", || told.answered.load(Ordering::Relaxed) > 500).await;
    process.signal("TERM");
    process.signal("TERM");
    let (mut read, mut announced, mut unanswered) = (Vec::new(), Vec::new(), HashSet::new());
    for (method, client) in clients {
        let (answers, last) = client.await.unwrap();
        unanswered.insert(last);
        if method == "GET" { &mut read } else { &mut announced }.extend(answers);
    }
    assert!(process.ended().success(), "{}", process.log());
    assert!(process.log().contains("all requests answered"), "{}", process.log());
    assert!(
        read.len() > 50 && announced.len() > 50,
        "too few to prove anything: {} and {}",
        read.len(),
        announced.len()
    );

    assert_eq!(read.iter().find(|(_, status)| *status != 200), None);
    let seen: HashSet<String> = api.seen().iter().map(|request| request.target().to_owned()).collect();
    let lost: Vec<_> = unanswered.iter().filter(|number| seen.contains(&format!("/rows/row{number}"))).collect();
    assert!(lost.is_empty(), "accepted, and not answered: {lost:?}");

    assert_eq!(announced.iter().find(|(_, status)| *status != 204), None, "an announce under way is finished");
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (data, telemetry) = process.addresses();
    enforces(&http, &telemetry).await;
    let known = async |number: u64| http.get(&format!("http://{data}/v1/check/users/new{number}")).await.status == 204;
    for (number, _) in announced {
        assert!(known(number).await, "{number} was acknowledged and is forgotten");
    }
    for number in unanswered {
        assert!(!known(number).await, "{number} was taken in without an answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_loses_no_accepted_request_and_no_announce() {
    sigterm_under_load(None).await;
    let redis = RedisServer::start();
    sigterm_under_load(Some(&redis)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_ends_at_its_timeout_though_the_backend_hangs() {
    let dir = TempDir::new().unwrap();
    let api = api(|| Reply::Hang).await;
    let file = configuration(dir.path(), &api, "1s").write(dir.path());
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (data, telemetry) = process.addresses();
    let http = Http::default();
    enforces(&http, &telemetry).await;
    // A backend that hangs, and clients that stop in the middle of a request, at both listeners.
    let hangs = tokio::spawn({
        let (http, url) = (http.clone(), format!("http://{data}/v1/keys/users/row"));
        async move { http.try_send("GET", &url, &[("bloomguard-bypass", "1")], "").await.map(|answer| answer.status) }
    });
    let mut halves = Vec::new();
    for listener in [&data, &telemetry] {
        let mut half = tokio::net::TcpStream::connect(listener).await.unwrap();
        half.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n").await.unwrap();
        halves.push(half);
    }
    eventually("the backend is asked", || api.seen().iter().any(|request| request.target() == "/rows/row")).await;
    let start = Instant::now();
    process.signal("TERM");
    assert!(process.ended().success(), "{}", process.log());
    assert!(start.elapsed() >= Duration::from_secs(1), "it was given its time: {:?}", start.elapsed());
    assert!(process.log().contains("drain timeout cut connections"), "{}", process.log());
    assert_eq!(hangs.await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_interrupt_does_not_wait_for_the_drain() {
    let dir = TempDir::new().unwrap();
    let api = api(|| Reply::Hang).await;
    let file = configuration(dir.path(), &api, "1h").write(dir.path());
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (data, telemetry) = process.addresses();
    let http = Http::default();
    enforces(&http, &telemetry).await;
    let hangs = tokio::spawn(async move {
        http.try_send("GET", &format!("http://{data}/v1/keys/users/row"), &[("bloomguard-bypass", "1")], "")
            .await
            .is_none()
    });
    eventually("the backend is asked", || api.seen().iter().any(|request| request.target() == "/rows/row")).await;
    process.signal("INT");
    process.logged("draining: finishing requests in flight");
    process.signal("INT");
    assert_eq!(process.ended().code(), Some(130), "{}", process.log());
    assert!(hangs.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_log_is_not_read_serves_on_and_can_be_stopped() {
    let dir = TempDir::new().unwrap();
    let api = api(|| ok("application/json", "{}")).await;
    let file = configuration(dir.path(), &api, "2m").write(dir.path());
    let mut process = Process::start(dir.path(), &["serve", "--config", &file]);
    let (_, telemetry) = process.addresses();
    let http = Http::default();
    enforces(&http, &telemetry).await;
    process.stop_reading_log();
    let rebuild = format!("http://{}/admin/keyspaces/users/rebuild", process.admin());
    // The end of each is logged.
    for job in 2..=4 {
        assert_eventually!(
            http.send("POST", &rebuild, &[("content-type", "application/json")], "").await.status == 202,
            "the running build does not end"
        );
        assert_eventually!(http.get(&rebuild).await.json()["last"]["job"] == job, "the thread that logs is dead");
    }
    process.signal("TERM");
    assert!(process.ended().success());
}
