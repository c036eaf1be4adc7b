//! Any stream of requests is answered in front of hyper as behind it: by the same answers, in the same order, with the
//! same end, counted alike.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::fast_path::{counted, counters};
use super::users::{absent, config, site};
use crate::support::app::TestApp;
use crate::support::database::Site;

const STREAMS: u64 = 150;
/// What makes hyper read for itself from then on, and what does not.
const WAYS: [&str; 2] = ["connection: keep-alive, x", "connection: keep-alive"];

/// `ABSENT` stands for a key that does not exist; the value of 1 is too long to be copied.
const TARGETS: &[&str] = &[
    "/v1/keys/users/ABSENT",
    "/v1/keys/users/ABSENT?page=1&x?/",
    "http://localhost/v1/keys/users/ABSENT",
    "http://x/v1/keys/users/ABSENT",
    "/v1/keys/users/ABSENT#x",
    "/v1/check/users/ABSENT",
    "/v1/check/users/42",
    "/v1/keys/users/1",
    "/v1/keys/users/%34%32",
    "/v1/keys/users/042",
    "/v1/keys/users/%zz",
    "/v1/keys/users/\"",
    "/v1/keys/nobody/1",
    "/v1/lookup/users/1",
    "*",
];
const METHODS: &[&str] = &["HEAD", "POST", "OPTIONS", "get"];
const HEADERS: &[&str] = &[
    "accept: */*",
    "x-host: x",
    "host: x",
    "connection: Keep-Alive",
    "Bloomguard-Timeout: 9s",
    "bloomguard-bypass: 0",
    "bloomguard-of-tomorrow: 1",
    "cache-control: no-cache",
    "authorization: Bearer x",
    "range: bytes=0-1",
    "x: \u{e9}\t",
];
/// Of these the whole body is read, so that the connection goes on behind it.
const WITH_BODIES: &[&str] = &[
    "GET /v1/keys/users/ABSENT HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
    "GET /v1/keys/users/42 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 51\r\n\r\nGET /v1/keys/nobody/1 \
        HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "GET /v1/check/users/ABSENT HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: \
        chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
    "POST /v1/check/users HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\n1\n2\r\n",
];
/// After each of these the server closes.
const ENDS: &[&str] = &[
    "GET /v1/keys/users/ABSENT HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    "GET /v1/keys/users/1 HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive\r\nconnection: x, close\r\n\r\n",
    "GET /v1/keys/users/ABSENT HTTP/1.0\r\n\r\n",
    "GET /v1/keys/users/ABSENT HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
    "GET /v1/keys/users/ABSENT HTTP/1.1\r\nhost: localhost\r\n folded: x\r\n\r\n",
    "GET  /v1/keys/users/ABSENT HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "GET /v1/keys/users/ABSENT HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    "GET /v1/keys/users/ABSENT HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "\u{16}\u{3}\u{1}\0rubbish\r\n\r\n",
];

/// Requests, and one that ends the connection.
fn stream(rng: &mut StdRng, absent: &str) -> (String, String) {
    let pick = |rng: &mut StdRng, of: &[&'static str]| *of.choose(rng).unwrap();
    let mut requests = String::new();
    for _ in 0..rng.random_range(0..12) {
        if rng.random_bool(0.1) {
            requests += pick(rng, WITH_BODIES);
            continue;
        }
        let method = if rng.random_bool(0.8) { "GET" } else { pick(rng, METHODS) };
        requests += &format!("{method} {} HTTP/1.1\r\n", pick(rng, TARGETS));
        // Without one, or with two, no request is good.
        if rng.random_bool(0.95) {
            requests += "Host: localhost\r\n";
        }
        for _ in 0..rng.random_range(0..3) {
            requests += &format!("{}\r\n", pick(rng, HEADERS));
        }
        requests += if rng.random_bool(0.1) { "\r\n\r\n" } else { "\r\n" };
    }
    (requests.replace("ABSENT", absent), pick(rng, ENDS).replace("ABSENT", absent))
}

/// What comes back until the server closes: the lines of each answer, in any order, and no date.
async fn answers(app: &TestApp, requests: &str, end: &str, mut pieces: StdRng) -> Vec<Vec<String>> {
    let (mut read, mut write) = TcpStream::connect(app.data.to_string()).await.unwrap().into_split();
    let longest = [7, 60, 2000][pieces.random_range(0..3)];
    let writing = async {
        let mut rest = requests.as_bytes();
        while !rest.is_empty() {
            let (piece, tail) = rest.split_at(pieces.random_range(1..=longest).min(rest.len()));
            write.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
            rest = tail;
        }
        // In one piece: a server that closes with bytes unread resets the connection, and takes answers with it.
        write.write_all(end.as_bytes()).await.unwrap();
    };
    let mut bytes = Vec::new();
    let (read, ()) = tokio::join!(timeout(Duration::from_secs(60), read.read_to_end(&mut bytes)), writing);
    read.expect("the server closes").unwrap();
    let lines = |answer: &str| {
        let mut lines: Vec<String> =
            answer.split("\r\n").filter(|line| !line.starts_with("date: ")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    String::from_utf8(bytes).unwrap().split("HTTP/1.1 ").map(lines).collect()
}

/// Invariant: fast-path-equals-layers
#[tokio::test(flavor = "multi_thread")]
async fn any_stream_of_requests_is_answered_in_front_of_hyper_as_behind_it() {
    let site = site(Site::sqlite()).await;
    site.run("UPDATE users SET name = hex(zeroblob(2200)) WHERE id = 1").await;
    let app = TestApp::enforcing(&config(&site.url()).users(|k| k.set("cache.hot_ttl", "1h"))).await;
    for hot in [1, 42] {
        app.get(&format!("/v1/keys/users/{hot}")).await;
    }
    let absent = absent(&app).to_string();
    let mut told = Vec::new();
    for way in WAYS {
        let before = counters(&app).await;
        let mut rng = StdRng::seed_from_u64(1);
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            let (requests, end) = stream(&mut rng, &absent);
            let first = format!("GET /v1/keys/users/{absent} HTTP/1.1\r\nhost: localhost\r\n{way}\r\n\r\n");
            let pieces = StdRng::seed_from_u64(rng.random());
            let answers = answers(&app, &format!("{first}{requests}"), &end, pieces).await;
            streams.push((requests + &end, answers));
        }
        told.push((streams, counted(&app, &before).await));
    }
    for (behind, before) in told[0].0.iter().zip(&told[1].0) {
        assert_eq!(behind, before);
    }
    assert_eq!(told[0].1, told[1].1);
}
