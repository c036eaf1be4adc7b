//! Requests and responses that hold memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::support::app::{Answer, Http};
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;
use crate::support::metric;
use crate::support::process::Process;
use crate::support::wait::PATIENCE;

const BUDGET: u64 = 64 << 20;
/// What the process may take beyond its budget: what the kernel has handed over and the process has not read, rows of a
/// megabyte that sixteen calls are reading, in the driver's form and in ours, fragments, and the code that runs.
const SLACK: u64 = 80 << 20;
const ROWS: usize = 64;
const ROW_BYTES: usize = 1 << 20;

/// A process with a budget of 64 MiB before a table of large rows, which holds next to nothing in its caches.
struct Victim {
    process: Process,
    http: Http,
    data: String,
    telemetry: String,
    before: u64,
    _site: Site,
    _dir: TempDir,
}

impl Victim {
    async fn start() -> Self {
        Self::start_with(|config| config).await
    }

    async fn start_with(edit: impl FnOnce(Config) -> Config) -> Self {
        let (dir, site) = (TempDir::new().unwrap(), Site::sqlite());
        let rows = site.series(ROWS);
        site.run(&format!(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO users SELECT i, \
                printf('%.{ROW_BYTES}c', 'n') FROM ({rows}) AS n; \
             INSERT INTO users VALUES (1000, 'small')"
        ))
        .await;
        let config = edit(Config::new().server("max_buffered_bytes", BUDGET as i64)).users(|k| {
            k.set("key", "integer")
                .set("freshness", "announced")
                // Beside other tests all rows together may take a minute: no answer is to fail for its time.
                .set("deadline", "4m")
                .set("cache.hot_capacity", "1MiB")
                .set("cache.max_value_bytes", "2MiB")
                .backend(&site.url(), "SELECT name FROM users WHERE id = $1")
                .set("backend.timeout", "2m")
                .source_sql("SELECT id FROM users")
        });
        let mut process = Process::start(dir.path(), &["serve", "--config", &config.write(dir.path())]);
        let (data, telemetry) = process.addresses();
        let http = Http::default();
        assert_eventually!(
            http.get(&format!("http://{telemetry}/status")).await.json()["keyspaces"]["users"]["state"] == "enforcing",
            "it does not enforce"
        );
        process.forget_peak();
        let before = process.resident_bytes();
        Self { process, http, data, telemetry, before, _site: site, _dir: dir }
    }

    async fn metric(&self, series: &str) -> f64 {
        metric(
            self.http.get(&format!("http://{}/metrics", self.telemetry)).await.text(),
            &format!("bloomguard_{series}"),
        )
    }

    async fn refused(&self, reason: &str) -> f64 {
        self.metric(&format!("buffer_refusals_total{{reason=\"{reason}\"}}")).await
    }

    /// Waits until nothing is held any more.
    async fn holds_nothing(&self) {
        assert_eventually!(self.metric("buffered_bytes").await <= 0.0, "bytes stay buffered");
    }

    /// Requests other than lists of keys are answered beside any load.
    async fn still_serves(&self) {
        let key = |id: &str| format!("http://{}/v1/keys/users/{id}", self.data);
        assert_eq!(self.http.get(&key("1000")).await.status, 200);
        assert_eq!(self.http.get(&key("777777777")).await.status, 404);
        assert_eq!(self.http.send("PUT", &key("777777778"), &[], "").await.status, 204);
        for path in ["/livez", "/readyz", "/status", "/metrics"] {
            assert_eq!(self.http.get(&format!("http://{}{path}", self.telemetry)).await.status, 200, "{path}");
        }
    }

    async fn batch(&self, keys: &str) -> Answer {
        self.http
            .send(
                "POST",
                &format!("http://{}/v1/lookup/users", self.data),
                &[("content-type", "application/json")],
                keys,
            )
            .await
    }

    fn took_no_more_than_the_budget(&self) {
        let grown = self.process.peak_bytes().saturating_sub(self.before);
        assert!(grown < BUDGET + SLACK, "{grown} bytes beyond {}", self.before);
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.data).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// A client whose kernel takes next to nothing from the process.
    fn connect_narrow(&self) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&self.data.parse::<SocketAddr>().unwrap().into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }
}

/// All that comes until the process closes the connection.
fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    // A connection that is closed with unread input may break.
    while let Ok(length @ 1..) = stream.read(&mut part) {
        text.extend_from_slice(&part[..length]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn head(length: &str) -> String {
    format!("POST /v1/lookup/users HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_bodies_are_refused_unread_or_cut() {
    let victim = Victim::start().await;
    let body = format!("[{}", "1234567,".repeat(1 << 17));
    let mut clients: Vec<TcpStream> = (0..64).map(|_| victim.connect()).collect();
    // A head alone holds nothing, and keeps no client out.
    clients.iter_mut().for_each(|client| client.write_all(head("content-length: 16777216").as_bytes()).unwrap());
    assert_eq!(victim.batch(&format!("[{}1]", "1000,".repeat(9_999))).await.status, 200);
    // A refused connection may be closed before all is sent.
    clients.iter_mut().for_each(|client| drop(client.write_all(body.as_bytes())));
    assert_eventually!(victim.refused("request").await >= 60.0, "too few requests are refused");
    victim.still_serves().await;
    let refused = victim.batch(&format!("[{}1]", "1,".repeat(9_999))).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"), "{}", refused.text());
    assert_eq!((&refused.json()["type"], &refused.json()["limit"]), (&"/problems/overloaded".into(), &BUDGET.into()));
    let answers = tokio::task::spawn_blocking(|| clients.into_iter().map(rest).collect::<Vec<_>>()).await.unwrap();
    let told =
        |status: &str| answers.iter().filter(|answer| answer.starts_with(&format!("HTTP/1.1 {status} "))).count();
    assert!((1..=4).contains(&told("408")), "{} were read, {} refused", told("408"), told("503"));
    victim.holds_nothing().await;
    assert_eq!(victim.refused("slow_body").await, told("408") as f64);
    assert_eq!(victim.batch("[1000,777777777]").await.json()["results"][0]["status"], 200);
    victim.took_no_more_than_the_budget();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunked_bodies_reserve_as_they_grow() {
    let victim = Victim::start().await;
    let chunk = format!("100000\r\n[{}\r\n", "1".repeat((1 << 20) - 1));
    let mut clients: Vec<TcpStream> = (0..32).map(|_| victim.connect()).collect();
    for client in &mut clients {
        let sent = client
            .write_all(head("transfer-encoding: chunked").as_bytes())
            .and_then(|()| client.write_all(chunk.as_bytes()));
        sent.and_then(|()| client.write_all(chunk.as_bytes())).ok();
    }
    assert_eventually!(victim.refused("request").await >= 25.0, "too few requests are refused");
    victim.still_serves().await;
    drop(clients);
    victim.holds_nothing().await;
    victim.took_no_more_than_the_budget();
}

/// Invariant: bounded-memory
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_at_once_are_refused_rather_than_held() {
    // This test is the client, and may be slow to read.
    let victim = Victim::start_with(|config| config.server("send_timeout", "2m")).await;
    let keys = format!("[{}1]", "777,".repeat(9_999));
    let lookups = (0..64).map(|_| victim.batch(&keys));
    let answers = futures_util::future::join_all(lookups).await;
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 503)));
    assert!(answers.iter().any(|answer| answer.status == 200));
    // Of the values of all rows the budget has no room for any two answers. Where all of them grow at the same pace,
    // none may have room for its response: then they ask again.
    let all = serde_json::to_string(&(1..=ROWS).collect::<Vec<_>>()).unwrap();
    let (mut found, mut overloaded) = (0, 0);
    assert_eventually!(
        {
            for answer in futures_util::future::join_all((0..8).map(|_| victim.batch(&all))).await {
                assert!(matches!(answer.status, 200 | 503), "{}", answer.status);
                let results = answer.json()["results"].as_array().cloned().unwrap_or_default();
                let (values, failed): (Vec<_>, Vec<_>) = results.iter().partition(|result| result["status"] == 200);
                assert!(failed.iter().all(|result| result["status"] == 503), "a failure is never an absence");
                found += values.len();
                overloaded += failed.iter().filter(|result| result["type"] == "/problems/overloaded").count();
            }
            found > 0 && overloaded > 0
        },
        "{found} found, {overloaded} overloaded"
    );
    victim.holds_nothing().await;
    victim.still_serves().await;
    victim.took_no_more_than_the_budget();
}

/// Opens an HTTP/2 connection with a window of this size for each stream, and asks over it for large rows.
async fn hoard(data: &str, window: u32, rows: std::ops::Range<usize>) -> (Vec<u16>, tokio::task::JoinHandle<()>) {
    let stream = tokio::net::TcpStream::connect(data).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    // It answers pings.
    let driven = tokio::spawn(async move { drop(connection.await) });
    let mut told = Vec::new();
    for row in rows {
        let request = Request::get(format!("http://{data}/v1/keys/users/{}", row % ROWS + 1))
            .body(Empty::<Bytes>::new())
            .unwrap();
        if sender.ready().await.is_err() {
            break;
        }
        let Ok(response) = sender.send_request(request).await else { break };
        told.push(response.status().as_u16());
        // A response that is dropped ends its stream.
        std::mem::forget(response);
    }
    std::mem::forget(sender);
    (told, driven)
}

/// Hoards until a response is refused. Returns what was answered, and the connections. On a busy machine the process
/// may close connections before the budget is full: then others come.
async fn hoard_all(data: &str, window: u32) -> (Vec<u16>, Vec<tokio::task::JoinHandle<()>>) {
    let (mut told, mut connections) = (Vec::new(), Vec::new());
    assert_eventually!(
        {
            let hoards = (0..20).map(|n| hoard(data, window, n * 13..n * 13 + 27));
            for (answers, driven) in futures_util::future::join_all(hoards).await {
                told.extend(answers);
                connections.push(driven);
            }
            told.contains(&503)
        },
        "none is refused: {told:?}"
    );
    (told, connections)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_behind_a_closed_window_are_bounded_and_end() {
    let mut victims = Vec::new();
    for window in [0, 1] {
        let victim = Victim::start_with(|config| config.server("send_timeout", "30s")).await;
        let (told, connections) = hoard_all(&victim.data, window).await;
        assert!(told.iter().all(|status| matches!(status, 200 | 503)), "{told:?}");
        assert!(told.contains(&200), "{told:?}");
        victim.still_serves().await;
        victim.took_no_more_than_the_budget();
        victims.push((victim, connections));
    }
    for (victim, connections) in victims {
        // All of these connections answer pings, and are closed all the same.
        for driven in connections {
            tokio::time::timeout(PATIENCE, driven).await.expect("it is closed").unwrap();
        }
        victim.holds_nothing().await;
        assert!(victim.refused("slow_client").await >= 1.0 && victim.refused("response").await >= 1.0);
        let whole = victim.http.get(&format!("http://{}/v1/keys/users/1", victim.data)).await;
        assert_eq!((whole.status, whole.body.len() > ROW_BYTES), (200, true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_or_too_little_is_closed() {
    let victim = Victim::start_with(|config| config.server("send_timeout", "2s")).await;
    let keys = serde_json::to_string(&(1..=12).collect::<Vec<_>>()).unwrap();
    let request = format!("{}{keys}", head(&format!("content-length: {}", keys.len())));
    // Answers from in front of hyper, whose client goes on asking and never reads.
    let mut asking = victim.connect_narrow();
    let asks = std::thread::spawn(move || {
        let request = "GET /v1/keys/users/777777777 HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
        while asking.write_all(request.as_bytes()).is_ok() {}
    });
    // One that takes a byte now and then is not better.
    let mut slow = victim.connect_narrow();
    slow.write_all(request.as_bytes()).unwrap();
    let enough = Arc::new(AtomicBool::new(false));
    let reads = std::thread::spawn({
        let enough = Arc::clone(&enough);
        move || {
            // The kernel delivers what it has of the response, also after a close.
            while !enough.load(Relaxed) && matches!(slow.read(&mut [0; 1]), Ok(1)) {
                // The pace of a slow client.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    });
    assert_eventually!(victim.metric("buffered_bytes").await >= (12 * ROW_BYTES) as f64, "too few bytes are buffered");
    let mut clients: Vec<TcpStream> = (0..16).map(|_| victim.connect_narrow()).collect();
    clients.iter_mut().for_each(|client| client.write_all(request.as_bytes()).unwrap());
    while victim.refused("slow_client").await < 3.0 {
        victim.still_serves().await;
    }
    victim.holds_nothing().await;
    enough.store(true, Relaxed);
    tokio::task::spawn_blocking(move || (asks.join().unwrap(), reads.join().unwrap())).await.unwrap();
    drop(clients);
    victim.took_no_more_than_the_budget();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_heads_of_one_http2_connection_are_bounded() {
    let victim = Victim::start().await;
    let stream = tokio::net::TcpStream::connect(&victim.data).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    // As long as a target may be.
    let long = "x".repeat(60_000);
    for query in [false, true] {
        let mut waiting = Vec::new();
        // Bodies that never come keep their heads.
        for _ in 0..190 {
            let body = http_body_util::StreamBody::new(futures_util::stream::pending::<
                Result<hyper::body::Frame<Bytes>, std::io::Error>,
            >());
            let target = format!(
                "http://{}/v1/keys/users/1{}",
                victim.data,
                if query { format!("?{long}") } else { String::new() }
            );
            let request = Request::put(target).header("x-long", if query { "" } else { &long }).body(body).unwrap();
            sender.ready().await.unwrap();
            waiting.push(tokio::spawn(sender.send_request(request)));
        }
        assert_eventually!(victim.metric("buffered_bytes").await >= 10.0 * 60_000.0, "too few bytes are buffered");
        let mut cut = 0;
        for answer in waiting {
            cut += usize::from(answer.await.unwrap().is_ok_and(|response| response.status() == 408));
        }
        assert_eq!(cut, 190);
        victim.holds_nothing().await;
    }
}
