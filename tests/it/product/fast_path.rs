//! Most answers wait for nothing and are given in front of hyper and the layers: they are those that hyper and the
//! layers give, and in their order.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::users::{USERS, absent, config, site};
use crate::support::app::{Answer, Http, TestApp};
use crate::support::database::Site;

/// Counters that moved, and by how much.
pub async fn counted(app: &TestApp, before: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let moved = counters(app)
        .await
        .into_iter()
        .map(|(series, value)| (series.clone(), value - before.get(&series).unwrap_or(&0.0)));
    // How long they took, what asking for them counts itself, and what is done by the way.
    let others = ["seconds", "route=\"metrics\"", "bloomguard_snapshots_total"];
    moved.filter(|(series, by)| *by != 0.0 && !others.iter().any(|other| series.contains(other))).collect()
}

pub async fn counters(app: &TestApp) -> BTreeMap<String, f64> {
    let metrics = app.http.get(&format!("http://{}/metrics", app.telemetry)).await;
    // The snapshot of the first filter is written when there is time for it.
    let lines = metrics
        .text()
        .lines()
        .filter(|line| line.contains("_total") && !line.starts_with("bloomguard_snapshots_total"));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, value)| (series.to_owned(), value.parse().unwrap_or(0.0)))
        .collect()
}

fn told(answer: Answer) -> (u16, BTreeMap<String, String>, String) {
    assert!(
        answer.headers.get("date").is_some_and(|date| httpdate::parse_http_date(date).is_ok()),
        "{:?}",
        answer.headers
    );
    let headers = answer.headers.into_iter().filter(|(name, _)| name != "date").collect();
    (answer.status, headers, String::from_utf8_lossy(&answer.body).into_owned())
}

/// Invariant: fast-path-equals-layers
#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_at_once_is_answered_and_counted_as_the_layers_do() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url()).users(|k| k.set("cache.hot_ttl", "1h"))).await;
    let absent = absent(&app);
    let (lookup, check) = (format!("/v1/keys/users/{absent}"), format!("/v1/check/users/{absent}"));
    // Both values are hot from here on.
    app.get("/v1/keys/users/42").await;
    let trace = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let cases: &[(&str, &[(&str, &str)])] = &[
        (&lookup, &[]),
        (&lookup, &[("accept", "*/*"), ("user-agent", "curl"), ("bloomguard-timeout", "1s"), trace]),
        (&lookup, &[("bloomguard-bypass", "1")]),
        (&lookup, &[("bloomguard-bypass", "0")]),
        (&check, &[]),
        (&check, &[("bloomguard-min-version", "not a version")]),
        ("/v1/keys/users/42", &[]),
        ("/v1/keys/users/042", &[("bloomguard-timeout", "soon")]),
        ("/v1/keys/users/%34%32?page=1", &[]),
        ("/v1/check/users/42", &[]),
        ("/v1/keys/users/forty", &[]),
        ("/v1/keys/users/", &[]),
        ("/v1/keys/users", &[]),
        ("/v1/keys/nobody/42", &[]),
        ("/v1/lookup/users/42", &[]),
        ("/elsewhere", &[]),
    ];
    let clients = [Http::default(), Http::h2c()];
    for (http, (path, headers)) in clients.iter().flat_map(|http| cases.iter().map(move |case| (http, case))) {
        let mut ways = Vec::new();
        // The layers answer requests with a body.
        for body in ["", "a body"] {
            let before = counters(&app).await;
            let answer = http.send("GET", &format!("http://{}{path}", app.data), headers, body).await;
            ways.push((told(answer), counted(&app, &before).await));
        }
        assert_eq!(ways[0], ways[1], "{path} {headers:?}");
        assert!(ways[0].1.keys().any(|series| series.contains("http_requests_total")), "{path}: {:?}", ways[0].1);
    }
    // A version that this instance can't have applied: the row may be there, and the header is not lost on the way.
    let unapplied = [("bloomguard-min-version", "not a version")];
    let answer = app.http.send("GET", &format!("http://{}{lookup}", app.data), &unapplied, "").await;
    assert_eq!(answer.told(), "404 backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_answered_at_once_without_the_token() {
    let site = site(Site::sqlite()).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "s3cret").unwrap();
    let app = TestApp::enforcing(
        &config(&site.url()).server("token_file", file.to_str().unwrap()).users(|k| k.set("cache.hot_ttl", "1h")),
    )
    .await;
    let ask = async |path: &str, headers: &[(&str, &str)]| {
        app.http.send("GET", &format!("http://{}{path}", app.data), headers, "").await
    };
    let token = [("authorization", "Bearer s3cret")];
    assert_eq!(ask("/v1/keys/users/42", &token).await.told(), "200 backend");
    let absent = absent(&app);
    let paths = [
        ("/v1/keys/users/42".to_owned(), 200),
        (format!("/v1/keys/users/{absent}"), 404),
        (format!("/v1/check/users/{absent}"), 404),
        ("/v1/check/users/42".to_owned(), 204),
    ];
    for (path, status) in &paths {
        for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
            let before = counters(&app).await;
            let answer = ask(path, headers).await;
            assert_eq!(answer.status, 401, "{path}");
            assert!(!answer.headers.keys().any(|name| name.starts_with("bloomguard-")), "{path}: {:?}", answer.headers);
            let moved = counted(&app, &before).await;
            assert!(
                moved.len() == 1 && moved.keys().all(|series| series.contains("code=\"401\"")),
                "{path}: {moved:?}"
            );
        }
        assert_eq!(ask(path, &token).await.status, *status, "{path}");
    }
}

/// A request as bytes, and the status and body that answer it.
#[derive(Clone)]
struct Exchange {
    request: String,
    status: u16,
    body: Option<String>,
}

fn get(path: &str, headers: &str, status: u16, body: Option<&str>) -> Exchange {
    Exchange {
        request: format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n"),
        status,
        body: body.map(str::to_owned),
    }
}

fn user(id: u64, name: &str) -> String {
    format!("{{\"id\":{id},\"name\":\"{name}\"}}")
}

/// One of many kinds; only some are answered at once.
fn exchange(rng: &mut StdRng, absent: u32, long: &str) -> Exchange {
    let row = rng.random_range(10..USERS);
    let body = user(row.into(), &format!("User {row}"));
    match rng.random_range(0..14) {
        0..4 => get(&format!("/v1/keys/users/{absent}"), "", 404, Some("")),
        4 => get(&format!("/v1/keys/users/{row}"), "", 200, Some(&body)),
        // Of few rows, which are hot soon.
        5 | 6 => get("/v1/keys/users/5", "accept: */*\r\n", 200, Some(&user(5, "User 5"))),
        7 => get("/v1/keys/users/1", "", 200, Some(long)),
        8 => get(&format!("/v1/check/users/{row}"), "", 204, None),
        9 => get(&format!("/v1/check/users/{absent}"), "", 404, Some("")),
        10 => get(&format!("/v1/keys/users/{row}"), "bloomguard-bypass: 1\r\n", 200, Some(&body)),
        11 => get("/v1/keys/nobody/1", "", 400, None),
        12 => Exchange {
            request: format!(
                "POST /v1/check/users HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: \
                    {}\r\n\r\n{row}",
                row.to_string().len()
            ),
            status: 200,
            body: Some("{\"absent\":[],\"checked\":1,\"generation\":1,\"state\":\"enforcing\"}".to_owned()),
        },
        _ => Exchange {
            request: format!("HEAD /v1/keys/users/{row} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            status: 200,
            body: Some(String::new()),
        },
    }
}

/// Reads an answer: its status and its body.
pub(super) async fn read_answer(stream: &mut BufReader<impl AsyncReadExt + Unpin>, to_head: bool) -> (u16, String) {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let status =
        line.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3)).unwrap_or_else(|| panic!("no answer: {line:?}"));
    let status = status.parse().unwrap();
    let (mut length, mut dates) = (0, 0);
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
        dates += usize::from(line.starts_with("date: "));
        length = line.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
    }
    assert_eq!(dates, 1);
    let mut body = vec![0; if to_head { 0 } else { length }];
    stream.read_exact(&mut body).await.unwrap();
    (status, String::from_utf8(body).unwrap())
}

/// Invariant: fast-path-equals-layers
#[tokio::test(flavor = "multi_thread")]
async fn answers_keep_the_order_of_their_requests_however_these_arrive() {
    let site = site(Site::sqlite()).await;
    site.run("UPDATE users SET name = hex(zeroblob(100000)) WHERE id = 1").await;
    let app = TestApp::enforcing(&config(&site.url()).users(|k| k.set("cache.hot_ttl", "1h"))).await;
    let absent = absent(&app);
    let long = user(1, &"00".repeat(100_000));
    for seed in 0..24 {
        let mut rng = StdRng::seed_from_u64(seed);
        let exchanges: Vec<Exchange> = (0..60).map(|_| exchange(&mut rng, absent, &long)).collect();
        let (read, mut write) = TcpStream::connect(app.data.to_string()).await.unwrap().into_split();
        let mut read = BufReader::new(read);
        // Each request once the one before is answered, or all at once, in pieces of any size.
        let in_turn = seed % 3 == 0;
        let bytes: String = exchanges.iter().map(|exchange| exchange.request.as_str()).collect();
        let longest = [1, 40, 200, 20_000][seed as usize % 4];
        let writing = async {
            if !in_turn {
                let mut rest = bytes.as_bytes();
                while !rest.is_empty() {
                    let (piece, tail) = rest.split_at(rng.random_range(1..=longest).min(rest.len()));
                    write.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                    rest = tail;
                }
            }
            write
        };
        let reading = async {
            for (place, Exchange { request, status, body }) in exchanges.iter().enumerate().filter(|_| !in_turn) {
                check_answer(&mut read, request, *status, body.as_deref(), (seed, place)).await;
            }
        };
        let (mut write, ()) = tokio::join!(writing, reading);
        for (place, Exchange { request, status, body }) in exchanges.iter().enumerate().filter(|_| in_turn) {
            write.write_all(request.as_bytes()).await.unwrap();
            check_answer(&mut read, request, *status, body.as_deref(), (seed, place)).await;
        }
    }
}

async fn check_answer(
    read: &mut BufReader<impl AsyncReadExt + Unpin>,
    request: &str,
    status: u16,
    body: Option<&str>,
    place: (u64, usize),
) {
    let told = timeout(Duration::from_secs(60), read_answer(read, request.starts_with("HEAD"))).await;
    let (seen, text) = told.unwrap_or_else(|_| panic!("no answer to {request:?}, {place:?}"));
    assert_eq!(seen, status, "{request:?}, {place:?}: {text}");
    assert!(body.is_none_or(|body| body == text), "{request:?}, {place:?}: {text}");
}

/// Waits until no more answers of this code are sent, which time alone tells; returns how many were sent.
async fn until_sockets_are_full(app: &TestApp, code: u16) -> f64 {
    let answered = format!("bloomguard_http_requests_total{{route=\"keys\",method=\"GET\",code=\"{code}\"}}");
    let mut before = -1.0;
    while app.metric(&answered).await != before {
        before = app.metric(&answered).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    before
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_held_back_and_loses_nothing() {
    const REQUESTS: usize = 30_000;
    let site = site(Site::sqlite()).await;
    site.run("UPDATE users SET name = hex(zeroblob(2500)) WHERE id = 1").await;
    let app = TestApp::enforcing(&config(&site.url()).users(|k| k.set("cache.hot_ttl", "1h"))).await;
    app.get("/v1/keys/users/1").await;
    let absent = format!("/v1/keys/users/{}", absent(&app));
    let (read, mut write) = TcpStream::connect(app.data.to_string()).await.unwrap().into_split();
    let paths = ["/v1/keys/users/1", absent.as_str(), absent.as_str()];
    let requests: String =
        (0..REQUESTS).map(|n| format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", paths[n % 3])).collect();
    let writing = tokio::spawn(async move { write.write_all(requests.as_bytes()).await });
    let before = until_sockets_are_full(&app, 404).await;
    assert!(before < REQUESTS as f64 * 2.0 / 3.0, "all was answered, and nothing read");
    let mut read = BufReader::new(read);
    for n in 0..REQUESTS {
        let told = timeout(Duration::from_secs(60), read_answer(&mut read, false)).await.unwrap();
        assert_eq!(
            (told.0, told.1.len()),
            if n % 3 == 0 { (200, user(1, &"00".repeat(2_500)).len()) } else { (404, 0) },
            "{n}"
        );
    }
    writing.await.unwrap().unwrap();
}

/// Reads answers until the connection ends, which is after a whole one; how many they were.
async fn read_answers(read: &mut BufReader<impl AsyncReadExt + Unpin>) -> usize {
    let mut answers = 0;
    while !timeout(Duration::from_secs(60), read.fill_buf()).await.unwrap().unwrap().is_empty() {
        read_answer(read, false).await;
        answers += 1;
    }
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_taken_slowly_is_not_cut_by_a_drain() {
    let site = site(Site::sqlite()).await;
    site.run("UPDATE users SET name = hex(zeroblob(450000)) WHERE id = 1").await;
    let app = TestApp::enforcing(&config(&site.url()).users(|k| k.set("cache.hot_ttl", "1h"))).await;
    app.get("/v1/keys/users/1").await;
    let mut stream = TcpStream::connect(app.data.to_string()).await.unwrap();
    stream.write_all("GET /v1/keys/users/1 HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(32).as_bytes()).await.unwrap();
    let mut read = BufReader::new(stream);
    read.fill_buf().await.unwrap();
    until_sockets_are_full(&app, 200).await;
    let stopped = tokio::spawn(app.stop());
    // The time itself is tested: longer than a drain waits for a connection without a request.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(read_answers(&mut read).await > 0);
    stopped.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_late_is_not_one_that_sends_its_head_late() {
    const REQUESTS: usize = 60_000;
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url()).server("header_timeout", "2s")).await;
    // Long, so that there is no end of them in what is read at once, and the last of those comes in part.
    let request = format!(
        "GET /v1/keys/users/{} HTTP/1.1\r\nhost: localhost\r\nuser-agent: {}\r\n\r\n",
        absent(&app),
        "x".repeat(150)
    );
    let (read, mut write) = TcpStream::connect(app.data.to_string()).await.unwrap().into_split();
    let writing =
        tokio::spawn(async move { write.write_all(request.repeat(REQUESTS).as_bytes()).await.map(|()| write) });
    // The time itself is tested: longer than `header_timeout`.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut read = BufReader::new(read);
    for n in 0..REQUESTS {
        assert_eq!(timeout(Duration::from_secs(60), read_answer(&mut read, false)).await.unwrap().0, 404, "{n}");
    }
    writing.await.unwrap().unwrap();
}

/// On one thread, which has one place to write answers for all connections.
#[tokio::test]
async fn http2_never_begins_in_the_middle_of_a_connection() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    let request = format!("GET /v1/keys/users/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", absent(&app));
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for (first, second) in [(request.clone(), preface.to_owned()), (format!("{request}{preface}"), String::new())] {
        let mut read = BufReader::new(TcpStream::connect(app.data.to_string()).await.unwrap());
        read.write_all(first.as_bytes()).await.unwrap();
        assert_eq!(read_answer(&mut read, false).await.0, 404);
        read.write_all(second.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = timeout(Duration::from_secs(60), read.read_to_end(&mut rest)).await.unwrap();
        assert_eq!(rest, b"");
        // Another's is answered once.
        let mut other = TcpStream::connect(app.data.to_string()).await.unwrap();
        other
            .write_all(b"GET /v1/keys/nobody/1 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut told = String::new();
        timeout(Duration::from_secs(60), other.read_to_string(&mut told)).await.unwrap().unwrap();
        assert!(told.starts_with("HTTP/1.1 400 ") && told.matches("HTTP/1.1 ").count() == 1, "{told}");
    }
}
