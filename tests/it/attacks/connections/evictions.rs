//! Where a listener is full, its longest-idle connection makes room, and no request in flight is cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sqlx::{Connection, Executor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::LONG;
use crate::product::users::{config, site};
use crate::support::app::{Http, TestApp};
use crate::support::assert_eventually;
use crate::support::config::Config;
use crate::support::database::Site;

const FEW: usize = 40;
const EVICTED: &str = "bloomguard_http_closed_connections_total{listener=\"data\",reason=\"evicted\"}";
const INFLIGHT: &str = "bloomguard_backend_inflight_requests{keyspace=\"users\"}";

/// Heads and idle connections are not timed out here.
fn full(url: &str) -> Config {
    config(url)
        .server("max_connections", FEW as i64)
        .server("header_timeout", "10m")
        .server("send_timeout", "10m")
        .users(|k| k.times("100s", "5s", "90s"))
}

/// Opens it, and waits for what `text` brings, if anything.
async fn connection(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    if text.ends_with("\r\n\r\n") {
        timeout(LONG, stream.read_u8()).await.unwrap().unwrap();
    }
    stream
}

async fn is_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("it is closed");
}

async fn answers(app: &TestApp) {
    // A client without a pool, so that each is a new connection.
    let answer =
        timeout(LONG, Http::default().get(&app.url("/v1/keys/users/42"))).await.expect("a new client is answered");
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_make_room_for_a_new_client() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&full(&site.url())).await;
    for text in [
        "",
        "GET /v1/keys/users/42 HTTP/1.1\r\nhost: half",
        "PRI * HTTP/2.0\r\n",
        "GET /v1/keys/users/42 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let mut idle = Vec::new();
        for _ in 0..FEW {
            idle.push(connection(app.data, text).await);
        }
        let before = app.metric(EVICTED).await;
        for _ in 0..3 {
            answers(&app).await;
        }
        assert!(app.metric(EVICTED).await > before, "{text:?}");
        // The oldest of them went.
        is_closed(&mut idle[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_http2_connections_make_room_for_a_new_client() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&full(&site.url())).await;
    let mut idle = Vec::new();
    for _ in 0..FEW {
        let stream = TcpStream::connect(app.data).await.unwrap();
        let (mut send, connection) =
            hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        idle.push(tokio::spawn(connection));
        let request = hyper::Request::builder().uri(app.url("/v1/keys/users/42")).body(Full::default()).unwrap();
        assert_eq!(send.send_request(request).await.unwrap().status(), 200);
        // Pings and window updates make no connection busy.
        std::mem::forget(send);
    }
    for _ in 0..3 {
        answers(&app).await;
    }
    // It was told to go away before it was closed.
    timeout(LONG, idle.swap_remove(0)).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_are_not_cut_for_a_new_client() {
    let site = site(Site::postgres()).await;
    let app = TestApp::enforcing(&full(&site.url())).await;
    app.get("/v1/keys/users/42").await;
    let mut lock = sqlx::PgConnection::connect(&site.url()).await.unwrap();
    lock.execute("BEGIN; LOCK TABLE users IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let ask = |n: usize| {
        let (url, http) = (
            app.url(&format!("/v1/keys/users/{}", n + 100)),
            if n.is_multiple_of(2) { Http::default() } else { Http::h2c() },
        );
        tokio::spawn(async move { http.get(&url).await })
    };
    let in_flight: Vec<_> = (0..10).map(ask).collect();
    assert_eventually!(app.metric(INFLIGHT).await >= 10.0, "too few calls are in flight");
    let floods: Vec<_> = (0..4 * FEW).map(|_| connection(app.data, "")).collect();
    let flood = futures_util::future::join_all(floods).await;
    // Hot, so that it needs no database.
    answers(&app).await;
    assert!(app.metric(EVICTED).await >= (2 * FEW) as f64);
    lock.close().await.unwrap();
    for answer in in_flight {
        assert_eq!(timeout(LONG, answer).await.unwrap().unwrap().told(), "200 backend");
    }
    drop(flood);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_listener_of_busy_connections_serves_the_next_as_one_ends() {
    let site = site(Site::postgres()).await;
    let app = TestApp::enforcing(&full(&site.url()).server("max_connections", 2)).await;
    let mut lock = sqlx::PgConnection::connect(&site.url()).await.unwrap();
    lock.execute("BEGIN; LOCK TABLE users IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let busy = [1, 2].map(|id| {
        let url = app.url(&format!("/v1/keys/users/{id}"));
        // They keep their connections.
        tokio::spawn(async move {
            let http = Http::default();
            (http.get(&url).await, http)
        })
    });
    assert_eventually!(app.metric(INFLIGHT).await >= 2.0, "too few calls are in flight");
    let url = app.url("/v1/check/users/42");
    let waits = tokio::spawn(async move { Http::default().get(&url).await });
    assert_eventually!(
        app.metric("bloomguard_http_open_connections{listener=\"data\"}").await >= 2.0,
        "the connection is not open"
    );
    assert!(!waits.is_finished());
    lock.close().await.unwrap();
    assert_eq!(timeout(LONG, waits).await.expect("an idle connection makes room").unwrap().status, 204);
    for answer in busy {
        assert_eq!(answer.await.unwrap().0.told(), "200 backend");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_reconnect_all_the_time_keep_no_client_out() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&full(&site.url())).await;
    let ends = Arc::new(AtomicBool::new(false));
    let attackers: Vec<_> = (0..8)
        .map(|n| {
            let (ends, address) = (Arc::clone(&ends), app.data);
            tokio::spawn(async move {
                let mut kept = std::collections::VecDeque::new();
                while !ends.load(Ordering::Relaxed) {
                    let Ok(mut stream) = TcpStream::connect(address).await else { continue };
                    let _ = stream.write_all(if n % 2 == 0 { b"GET /half" } else { b"" }).await;
                    kept.push_back(stream);
                    if kept.len() > FEW {
                        kept.pop_front();
                    }
                }
            })
        })
        .collect();
    let url = app.url("/v1/keys/users/42");
    for _ in 0..50 {
        // One that is pushed out before it has asked tries again, as clients do.
        let answered = async {
            assert_eventually!(
                Http::default().try_send("GET", &url, &[], "").await.is_some_and(|answer| answer.status == 200),
                "no client is served"
            );
        };
        timeout(LONG, answered).await.expect("a new client is answered");
    }
    ends.store(true, Ordering::Relaxed);
    for attacker in attackers {
        attacker.await.unwrap();
    }
    assert!(app.metric(EVICTED).await > 50.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_waits_for_its_http2_window_is_not_cut() {
    const LENGTH: usize = 1 << 20;
    let site = site(Site::sqlite()).await;
    site.run(&format!("INSERT INTO users VALUES (5000, printf('%.{LENGTH}c', 'n'))")).await;
    let app = TestApp::enforcing(&full(&site.url())).await;
    let stream = TcpStream::connect(app.data).await.unwrap();
    // The window of the stream and of its connection: what hyper's client asks for by itself would take all at once.
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    let (mut sender, driver) = builder.handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let request = hyper::Request::get(app.url("/v1/keys/users/5000")).body(Full::default()).unwrap();
    let mut body = sender.send_request(request).await.unwrap().into_body();
    let mut taken = body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    let mut idle = Vec::new();
    for _ in 1..FEW {
        idle.push(connection(app.data, "GET /v1/keys/users/42 HTTP/1.1\r\nhost: localhost\r\n\r\n").await);
    }
    for _ in 0..3 {
        answers(&app).await;
    }
    while let Some(frame) = timeout(LONG, body.frame()).await.unwrap() {
        taken += frame.expect("it is not cut").into_data().map_or(0, |data| data.len());
    }
    assert!(taken > LENGTH, "{taken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_take_nothing_of_their_answers_do_not_keep_others_out() {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&full(&site.url())).await;
    let before = app.metric(EVICTED).await;
    let mut greedy = Vec::new();
    for _ in 0..FEW {
        let stream = TcpStream::connect(app.data).await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let (mut sender, driver) = builder.handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        let request = hyper::Request::get(app.url("/v1/keys/users/42")).body(Full::default()).unwrap();
        // Its head has come, and its body can't. The last ones find places only where earlier ones have lost theirs.
        greedy.push((timeout(LONG, sender.send_request(request)).await.expect("it gets a place").unwrap(), sender));
    }
    for _ in 0..3 {
        answers(&app).await;
    }
    assert!(app.metric(EVICTED).await > before);
}
