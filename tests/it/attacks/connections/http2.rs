//! HTTP/2 clients that send control frames without end are told to calm down and closed; those that send as many as
//! clients do are not.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::connect;
use crate::product::users::{config, site};
use crate::support::app::TestApp;
use crate::support::assert_eventually;
use crate::support::database::Site;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `:method GET`, `:scheme http`, `:path /`, and an `:authority` of `x`: HPACK, RFC 7541.
const HEADERS: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'x'];
const CUT: &str = "bloomguard_http_closed_connections_total{listener=\"data\",reason=\"flood\"}";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Sends this and says that there is no more; what the server says until it closes.
fn told(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    let mut reading = stream.try_clone().unwrap();
    let told = std::thread::spawn(move || {
        let mut told = Vec::new();
        let mut piece = [0; 16 << 10];
        // A reset ends it as well as a close.
        while let Ok(length @ 1..) = reading.read(&mut piece) {
            told.extend_from_slice(&piece[..length]);
        }
        told
    });
    // It may be closed before all is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    told.join().unwrap()
}

/// The reason of the last GOAWAY.
fn goaway(told: &[u8]) -> Option<u32> {
    let (mut rest, mut reason) = (told, None);
    while rest.len() >= 9 {
        let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        let payload = rest.get(9..9 + length)?;
        if rest[3] == 7 {
            reason = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        rest = &rest[9 + length..];
    }
    reason
}

async fn app() -> TestApp {
    let site = site(Site::sqlite()).await;
    let app = TestApp::enforcing(&config(&site.url())).await;
    app.http.get(&app.url("/v1/keys/users/42")).await;
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_control_frames_ends_the_connection() {
    let app = app().await;
    // An open stream: the body of its request has not come.
    let open = frame(1, 4, 1, &[&[0x83], &HEADERS[1..]].concat());
    let floods: [(&str, Vec<u8>); 7] = [
        ("PING", frame(6, 0, 0, &[0; 8])),
        ("PING that answers", frame(6, 1, 0, &[0; 8])),
        ("SETTINGS", frame(4, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("SETTINGS, empty", frame(4, 0, 0, &[])),
        ("WINDOW_UPDATE", [frame(8, 0, 0, &[0, 0, 0, 1]), frame(8, 0, 1, &[0, 0, 0, 1])].concat()),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 0, 1])),
        ("DATA, empty", frame(0, 0, 1, &[])),
    ];
    for (n, (name, one)) in floods.into_iter().enumerate() {
        let (address, bytes) = (app.data.to_string(), [PREFACE, &open, &one.repeat(20_000)].concat());
        let told = tokio::task::spawn_blocking(move || told(&address, &bytes)).await.unwrap();
        assert_eq!(goaway(&told), Some(11), "{name}: ENHANCE_YOUR_CALM");
        // h2 bounds empty DATA by itself too, and may be first. The connection is counted as it ends, a moment after
        // its client has seen it.
        assert_eventually!(
            app.metric(CUT).await >= (n + usize::from(name != "DATA, empty")) as f64,
            "the connection is not counted as cut"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_h2_bounds_by_itself_is_bounded() {
    let app = app().await;
    let resets: Vec<u8> = (1..200_001)
        .step_by(2)
        .flat_map(|stream| [frame(1, 5, stream, HEADERS), frame(3, 0, stream, &[0, 0, 0, 8])].concat())
        .collect();
    let floods = [
        ("rapid reset", resets),
        ("CONTINUATION", [frame(1, 1, 1, HEADERS), frame(9, 0, 1, &[]).repeat(100_000)].concat()),
        (
            "DATA of a byte",
            [frame(1, 4, 1, &[&[0x83], &HEADERS[1..]].concat()), frame(0, 0, 1, b"1").repeat(100_000)].concat(),
        ),
    ];
    for (name, bytes) in floods {
        let address = app.data.to_string();
        let told = tokio::task::spawn_blocking(move || told(&address, &[PREFACE, &bytes].concat())).await.unwrap();
        assert!(goaway(&told).is_some_and(|reason| reason != 0), "{name}");
    }
    assert_eq!(app.get("/v1/keys/users/42").await.status, 200);
}

/// A client with pings and windows as small as they may be.
async fn client(app: &TestApp) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(app.data).await.unwrap();
    let (send, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_millis(30))
        .keep_alive_while_idle(true)
        .adaptive_window(true)
        .initial_stream_window_size(1 << 10)
        .initial_connection_window_size(1 << 16)
        .handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    send
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_pings_and_updates_windows_is_not_cut() {
    let site = site(Site::sqlite()).await;
    site.run("UPDATE users SET name = hex(zeroblob(500000)) WHERE id = 1").await;
    let app = TestApp::enforcing(&config(&site.url()).users(|k| k.set("cache.hot_ttl", "1h"))).await;
    let mut send = client(&app).await;
    let get = |path: &str| {
        let uri = format!("http://{}{path}", app.data);
        hyper::Request::builder().uri(uri).body(Full::default()).unwrap()
    };
    for n in 0..2000 {
        send.ready().await.unwrap();
        // Each tenth is over before it is answered.
        let answer = send.send_request(get(&format!("/v1/keys/users/{}", n % 1000 + 1)));
        if n % 10 == 9 {
            drop(answer);
            continue;
        }
        let answer = answer.await.unwrap_or_else(|e| panic!("{n}: {e:?}"));
        let large = n % 1000 == 0;
        let length = answer.into_body().collect().await.unwrap().to_bytes().len();
        assert!(length > if large { 1_000_000 } else { 10 }, "{n}: {length}");
    }
    assert_eq!(app.metric(CUT).await, 0.0);
}
