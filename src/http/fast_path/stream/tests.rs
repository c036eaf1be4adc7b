use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::*;
use crate::config::ServerConfig;
use crate::http::activity::Due;
use crate::http::stream::Stream;
use crate::http::{HttpContext, HttpSettings};
use crate::metrics::Metrics;

const REQUEST: &[u8] = b"GET /v1/keys/nobody/1 HTTP/1.1\r\nhost: x\r\n\r\n";
const POST: &[u8] = b"POST /v1/check/nobody HTTP/1.1\r\ncontent-length: 3\r\n\r\n1\n2";

/// A fast path without keyspaces, so that every request is handed over.
async fn fast_path() -> (FastPath, TcpStream, Arc<Activity>) {
    fast_path_of(Arc::default()).await
}

async fn fast_path_of(draining: Arc<AtomicBool>) -> (FastPath, TcpStream, Arc<Activity>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let activity = Arc::new(Activity::new(draining));
    let observed = TrackedStream::new(Stream::tcp(listener.accept().await.unwrap().0), Arc::clone(&activity));
    let settings = HttpSettings::new(&ServerConfig::default());
    let responder = FastResponder::new(Arc::new(HttpContext::new(BTreeMap::new(), Arc::new(Metrics::new()), settings)));
    (FastPath::new(observed, Some(Arc::new(responder))), client, activity)
}

/// Reads as hyper does to detect whether the client is still there.
async fn nothing_to_read(path: &mut FastPath) {
    let mut byte = [0];
    assert!(futures_util::poll!(std::pin::pin!(path.read(&mut byte))).is_pending());
}

/// Reads with a buffer larger than what was sent.
async fn read_some(path: &mut FastPath) -> Vec<u8> {
    let mut got = vec![0; 1000];
    let length = timeout(Duration::from_secs(60), path.read(&mut got)).await.expect("something to read").unwrap();
    got.truncate(length);
    got
}

async fn until_buffered(path: &mut FastPath, bytes: usize) {
    while path.buffered.len() < bytes {
        nothing_to_read(path).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_is_lent_alone_and_the_lane_goes_on_once_it_is_answered() {
    let (mut path, mut client, activity) = fast_path().await;
    for request in [REQUEST, POST, REQUEST] {
        client.write_all(request).await.unwrap();
        let mut got = vec![0; request.len()];
        path.read_exact(&mut got).await.unwrap();
        assert_eq!(got, request);
        let in_flight = activity.begin_request(false);
        nothing_to_read(&mut path).await;
        drop(in_flight);
        // Answered, but the response is not sent yet.
        nothing_to_read(&mut path).await;
        path.write_all(b"half").await.unwrap();
        nothing_to_read(&mut path).await;
        assert!(matches!(path.owner, Owner::Hyper(_)));
        path.flush().await.unwrap();
        nothing_to_read(&mut path).await;
        assert!(matches!(path.owner, Owner::FastPath { unparsed: false }) && path.responder.is_some());
    }
}

#[tokio::test]
async fn pipelined_requests_reach_hyper_one_by_one() {
    let (mut path, mut client, activity) = fast_path().await;
    client.write_all(&[REQUEST, POST, REQUEST].concat()).await.unwrap();
    for request in [REQUEST, POST, REQUEST] {
        assert_eq!(read_some(&mut path).await, request);
        drop(activity.begin_request(false));
        path.write_all(b"whole").await.unwrap();
        path.flush().await.unwrap();
    }
}

#[tokio::test]
async fn what_hyper_says_by_itself_is_no_answer() {
    let (mut path, mut client, activity) = fast_path().await;
    client.write_all(REQUEST).await.unwrap();
    path.read_exact(&mut vec![0; REQUEST.len()]).await.unwrap();
    path.write_all(b"refused").await.unwrap();
    path.flush().await.unwrap();
    nothing_to_read(&mut path).await;
    assert!(matches!(path.owner, Owner::Hyper(_)), "nobody has been asked");
    let in_flight = activity.begin_request(false);
    nothing_to_read(&mut path).await;
    assert!(matches!(path.owner, Owner::Hyper(_)), "who was asked has not answered");
    drop(in_flight);
    nothing_to_read(&mut path).await;
    assert!(matches!(path.owner, Owner::FastPath { unparsed: false }));
}

#[tokio::test]
async fn a_body_that_comes_behind_the_answer_to_it_is_no_request() {
    let (mut path, mut client, activity) = fast_path().await;
    let head = format!("POST /v1/check/nobody HTTP/1.1\r\ncontent-length: {}\r\n\r\n", REQUEST.len());
    client.write_all(head.as_bytes()).await.unwrap();
    path.read_exact(&mut vec![0; head.len()]).await.unwrap();
    drop(activity.begin_request(false));
    path.write_all(b"too long").await.unwrap();
    path.flush().await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    path.read_exact(&mut vec![0; REQUEST.len()]).await.unwrap();
    nothing_to_read(&mut path).await;
    assert!(matches!(path.owner, Owner::FastPath { unparsed: false }), "{:?}", path.owner);
}

#[tokio::test]
async fn the_time_of_half_a_head_begins_once_the_answers_before_it_are_out() {
    let (mut path, mut client, activity) = fast_path().await;
    let due = || activity.due(Instant::now() + Duration::from_secs(60), Duration::from_secs(10), None);
    client.write_all(&REQUEST[..20]).await.unwrap();
    until_buffered(&mut path, 20).await;
    // As if a complete head had arrived before.
    activity.record_fast_answer();
    assert_ne!(due(), Due::HeaderTimeout);
    nothing_to_read(&mut path).await;
    assert_eq!(due(), Due::HeaderTimeout);
}

#[tokio::test]
async fn half_a_head_at_the_end_is_hypers() {
    let (mut path, mut client, _) = fast_path().await;
    client.write_all(&REQUEST[..20]).await.unwrap();
    until_buffered(&mut path, 20).await;
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    path.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, REQUEST[..20]);
}

/// More than socket buffers hold.
fn long_answer() -> PendingWrite {
    PendingWrite { text: Bytes::from(vec![b'x'; 8 << 20]), value: Bytes::from(vec![b'y'; 8 << 20]) }
}

#[tokio::test]
async fn hyper_gets_nothing_before_the_answers_are_out() {
    let (mut path, mut client, activity) = fast_path().await;
    client.write_all(REQUEST).await.unwrap();
    (path.owner, path.pending) = (Owner::HyperForGood, long_answer());
    for _ in 0..10 {
        nothing_to_read(&mut path).await;
        tokio::task::yield_now().await;
    }
    assert!(activity.is_sending());
    let (mut got, mut told) = (vec![0; REQUEST.len()], vec![0; 16 << 20]);
    let (given, taken) = tokio::join!(path.read_exact(&mut got), client.read_exact(&mut told));
    assert_eq!((given.unwrap(), taken.unwrap()), (REQUEST.len(), 16 << 20));
    assert!(told == [vec![b'x'; 8 << 20], vec![b'y'; 8 << 20]].concat() && !activity.is_sending());
    path.pending = long_answer();
    told.clear();
    let (ended, taken) = tokio::join!(path.shutdown(), client.read_to_end(&mut told));
    ended.unwrap();
    assert_eq!(taken.unwrap(), 16 << 20);
}

#[tokio::test]
async fn during_a_drain_hyper_reads_for_itself_also_what_had_come_before() {
    let draining = Arc::new(AtomicBool::new(false));
    let half = &REQUEST[..20];
    for before in [half, b""] {
        draining.store(false, Relaxed);
        let (mut path, mut client, _) = fast_path_of(Arc::clone(&draining)).await;
        client.write_all(before).await.unwrap();
        until_buffered(&mut path, before.len()).await;
        draining.store(true, Relaxed);
        if before.is_empty() {
            client.write_all(REQUEST).await.unwrap();
        }
        assert_eq!(read_some(&mut path).await, if before.is_empty() { REQUEST } else { half });
        assert!(matches!(path.owner, Owner::HyperForGood), "{:?}", path.owner);
    }
}

#[tokio::test]
async fn bytes_before_an_answer_is_out_are_hypers_and_so_are_all_after_them() {
    for together in [true, false] {
        let (mut path, mut client, activity) = fast_path().await;
        let mut got = vec![0; REQUEST.len()];
        client.write_all(&if together { [REQUEST, REQUEST].concat() } else { REQUEST.to_vec() }).await.unwrap();
        path.read_exact(&mut got).await.unwrap();
        assert!(matches!(path.owner, Owner::Hyper(_)));
        drop(activity.begin_request(false));
        if !together {
            client.write_all(REQUEST).await.unwrap();
        }
        path.read_exact(&mut got).await.unwrap();
        assert_eq!((got.as_slice(), matches!(path.owner, Owner::HyperForGood)), (REQUEST, true));
    }
}

#[tokio::test]
async fn a_malformed_head_is_given_whole_and_nothing_after_it() {
    for pieces in
        [&[&b"GET / HTTP/1.1\r\nhost: a\0b"[..]][..], &[b"GE", b"T /\0", b"more"], &[REQUEST, b"\x16\x03\x01"]]
    {
        let (mut path, mut client, activity) = fast_path().await;
        let mut got = Vec::new();
        for piece in pieces {
            client.write_all(piece).await.unwrap();
            if *piece == REQUEST {
                path.read_exact(&mut vec![0; REQUEST.len()]).await.unwrap();
                drop(activity.begin_request(false));
                path.write_all(b"answer").await.unwrap();
                path.flush().await.unwrap();
            } else {
                nothing_or_more(&mut path, &mut got).await;
            }
        }
        timeout(Duration::from_secs(60), path.read_to_end(&mut got)).await.expect("it ends").unwrap();
        assert!(got.ends_with(END_OF_HEAD) && matches!(path.owner, Owner::Malformed), "{got:?}");
        assert_eq!(head::parse(&got), Parsed::Malformed);
    }
}

/// Reads what has arrived, if anything.
async fn nothing_or_more(path: &mut FastPath, got: &mut Vec<u8>) {
    let mut bytes = [0; 100];
    if let Poll::Ready(length) = futures_util::poll!(std::pin::pin!(path.read(&mut bytes))) {
        got.extend_from_slice(&bytes[..length.unwrap()]);
    }
}
