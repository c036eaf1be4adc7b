//! The accept loop, on real sockets.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{Request, Response, Version};
use bloomguard::config::ServerConfig;
use bloomguard::http::{
    BoundListener, ConnectionLimits, Drained, FastResponder, HttpContext, HttpSettings, serve_with_fast_path,
};
use bloomguard::labels::Listener;
use bloomguard::metrics::Metrics;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes; only a hang reaches it.
const LONG: Duration = Duration::from_secs(60);

/// More than any buffer on the way holds.
const LARGE: usize = 32 << 20;

/// A listener whose `/slow` waits for a permit of `gate`, whose `/large` has a [`LARGE`] answer, and whose other paths
/// answer at once.
struct Server {
    addr: String,
    shutdown: CancellationToken,
    gate: Arc<Semaphore>,
    begun: watch::Receiver<usize>,
    task: JoinHandle<Drained>,
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        max_connections: 100,
        header_timeout: LONG,
        send_timeout: LONG,
        idle_timeout: LONG,
        drain_timeout: LONG,
    }
}

async fn start_on(bound: BoundListener, limits: ConnectionLimits) -> Server {
    let gate = Arc::new(Semaphore::new(0));
    let (begin, begun) = watch::channel(0);
    let service = {
        let gate = Arc::clone(&gate);
        tower::service_fn(move |request: Request<Incoming>| {
            let (gate, begin) = (Arc::clone(&gate), begin.clone());
            async move {
                begin.send_modify(|n| *n += 1);
                if request.uri().path() == "/slow" {
                    gate.acquire().await.unwrap().forget();
                }
                let body = format!("{:?} {}", request.version(), request.uri().path());
                let body = if request.uri().path() == "/large" { "x".repeat(LARGE) } else { body };
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body))))
            }
        })
    };
    let addr = bound.local_addr().to_string();
    let shutdown = CancellationToken::new();
    let counted = Metrics::new().connections(Listener::Data);
    let context =
        HttpContext::new(BTreeMap::new(), Arc::new(Metrics::new()), HttpSettings::new(&ServerConfig::default()));
    // Without keyspaces it looks at every request, and leaves it to the service.
    let responder = Arc::new(FastResponder::new(Arc::new(context)));
    let task = tokio::spawn(serve_with_fast_path(bound, service, responder, limits, counted, shutdown.clone()));
    Server { addr, shutdown, gate, begun, task }
}

async fn start(limits: ConnectionLimits) -> Server {
    start_on(BoundListener::bind("127.0.0.1:0", 0).await.unwrap(), limits).await
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.addr).await.unwrap()
    }

    async fn until_begun(&self, requests: usize) {
        timeout(LONG, self.begun.clone().wait_for(|n| *n >= requests)).await.unwrap().unwrap();
    }

    async fn drained(self) -> Drained {
        timeout(LONG, self.task).await.unwrap().unwrap()
    }
}

async fn ask(stream: &mut (impl AsyncWrite + Unpin), path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
}

/// Reads one answer: head and as much body as its length says.
async fn answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    let complete = |text: &[u8]| {
        let head = text.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let length = String::from_utf8_lossy(&text[..head])
            .lines()
            .find_map(|l| l.strip_prefix("content-length: ").map(|n| n.parse::<usize>().unwrap()))
            .unwrap_or(0);
        (text.len() >= head + length).then_some(())
    };
    timeout(LONG, async {
        while complete(&text).is_none() {
            // A byte at a time, so that a pipelined answer stays in the stream.
            text.push(stream.read_u8().await.unwrap());
        }
    })
    .await
    .unwrap();
    String::from_utf8(text).unwrap()
}

/// Reads to the end of this text; how many bytes there were.
async fn length_up_to(stream: &mut (impl AsyncRead + Unpin), end: &str) -> usize {
    let (mut told, mut length) = (Vec::new(), 0);
    while !told.ends_with(end.as_bytes()) {
        let mut piece = vec![0; 1 << 20];
        let read = timeout(LONG, stream.read(&mut piece)).await.unwrap().unwrap();
        assert!(read > 0, "closed after {length} bytes");
        told.drain(..told.len().saturating_sub(end.len()));
        told.extend_from_slice(&piece[..read]);
        length += read;
    }
    length
}

/// Waits until the peer closes; returns what it sent before.
async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset is an end too: the server may close with bytes of ours unread.
    let _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("the server closes the connection");
    rest
}

#[tokio::test]
async fn half_sent_head_is_closed_after_the_header_timeout() {
    let server = start(ConnectionLimits { header_timeout: Duration::from_millis(200), ..limits() }).await;
    for half in ["", "P", "PRI * HTTP/2.0\r\n", "GET /v1/keys/a", "GET / HTTP/1.1\r\nhost: x\r\nmore: "] {
        // Before the connect: the server counts from when it accepts, which may be long before this goes on.
        let started = Instant::now();
        let mut stream = server.connect().await;
        stream.write_all(half.as_bytes()).await.unwrap();
        assert_eq!(until_closed(&mut stream).await, b"", "{half:?}");
        assert!(started.elapsed() >= Duration::from_millis(190), "{half:?} closed after {:?}", started.elapsed());
    }
    assert_eq!(*server.begun.borrow(), 0);
}

#[tokio::test]
async fn a_head_that_trickles_in_gets_no_extra_time() {
    let server = start(ConnectionLimits { header_timeout: Duration::from_millis(300), ..limits() }).await;
    let mut stream = server.connect().await;
    ask(&mut stream, "/first").await;
    answer(&mut stream).await;
    let (mut read, mut write) = stream.into_split();
    let trickle = tokio::spawn(async move {
        write.write_all(b"GET / HTTP/1.1\r\nx: ").await.unwrap();
        while write.write_all(b"x").await.is_ok() {
            // The rhythm of a slow client.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    until_closed(&mut read).await;
    drop(read);
    timeout(LONG, trickle).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_kept_alive_connection_ends_at_the_idle_timeout_and_not_before() {
    let (header, idle) = (Duration::from_millis(100), Duration::from_millis(600));
    let server = start(ConnectionLimits { header_timeout: header, idle_timeout: idle, ..limits() }).await;
    let mut stream = server.connect().await;
    // Before the request: the server counts from when it reads that.
    let asked = Instant::now();
    ask(&mut stream, "/first").await;
    answer(&mut stream).await;
    until_closed(&mut stream).await;
    assert!(asked.elapsed() >= idle - Duration::from_millis(10), "closed after {:?}", asked.elapsed());
}

#[tokio::test]
async fn connection_cap_holds_and_the_next_client_is_served_when_one_leaves() {
    let server = start(ConnectionLimits { max_connections: 2, ..limits() }).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    for stream in [&mut first, &mut second] {
        ask(stream, "/slow").await;
    }
    server.until_begun(2).await;
    let mut third = server.connect().await;
    ask(&mut third, "/third").await;
    let early = timeout(Duration::from_millis(200), third.read_u8()).await;
    assert!(early.is_err(), "the third connection was served beyond the cap");
    drop(first);
    assert!(answer(&mut third).await.contains("/third"));
}

#[tokio::test]
async fn an_answer_that_is_taken_slowly_keeps_its_place_on_a_full_listener() {
    let server = start(ConnectionLimits { max_connections: 2, ..limits() }).await;
    let (mut large, mut idle) = (server.connect().await, server.connect().await);
    ask(&mut large, "/large").await;
    ask(&mut idle, "/idle").await;
    server.until_begun(2).await;
    answer(&mut idle).await;
    for _ in 0..3 {
        let mut next = server.connect().await;
        ask(&mut next, "/next").await;
        assert!(answer(&mut next).await.contains("/next"));
    }
    ask(&mut large, "/last").await;
    let told = length_up_to(&mut large, "/last").await;
    assert!(told > LARGE, "{told}");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start(limits()).await;
    let mut stream = server.connect().await;
    let requests: String = (0..50).map(|i| format!("GET /{i} HTTP/1.1\r\nhost: x\r\n\r\n")).collect();
    stream.write_all(requests.as_bytes()).await.unwrap();
    for i in 0..50 {
        assert!(answer(&mut stream).await.ends_with(&format!("/{i}")));
    }
}

#[tokio::test]
async fn an_answer_waits_for_nothing_that_its_client_sends_next() {
    let server = start(limits()).await;
    // Some clients send an empty line behind a body (RFC 9112, section 2.2).
    for (more, last) in [("\r\n", ""), ("GET /second HT", ""), ("rubbish\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n")] {
        let mut stream = server.connect().await;
        stream
            .write_all(format!("POST /first HTTP/1.1\r\ncontent-length: 4\r\n\r\nbody{more}").as_bytes())
            .await
            .unwrap();
        let first = answer(&mut stream).await;
        assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && first.ends_with("/first"), "{more:?}: {first}");
        if !last.is_empty() {
            assert!(answer(&mut stream).await.starts_with(last), "{more:?}");
        }
    }
}

#[tokio::test]
async fn http2_with_prior_knowledge_is_spoken() {
    let server = start(limits()).await;
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    for path in ["a", "b"] {
        let response = client.get(format!("http://{}/{path}", server.addr).parse().unwrap()).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_2);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, format!("HTTP/2.0 /{path}"));
    }
    // The client keeps its idle connection open: it is told to close it.
    server.shutdown.cancel();
    assert_eq!(server.drained().await, Drained { forced: 0 });
    drop(client);
}

#[tokio::test]
async fn a_stream_that_waits_holds_up_no_other_of_its_connection() {
    let server = start(limits()).await;
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let get = |path: &str| client.get(format!("http://{}/{path}", server.addr).parse().unwrap());
    let slow = [get("slow"), get("slow")].map(tokio::spawn);
    server.until_begun(2).await;
    for _ in 0..3 {
        for answer in timeout(LONG, futures_util::future::join_all((0..16).map(|_| get("fast")))).await.unwrap() {
            assert_eq!(answer.unwrap().status(), 200);
        }
    }
    server.gate.add_permits(2);
    for answer in slow {
        assert_eq!(timeout(LONG, answer).await.unwrap().unwrap().unwrap().status(), 200);
    }
}

#[tokio::test]
async fn drain_finishes_a_slow_request_and_closes_idle_connections() {
    let server = start(limits()).await;
    let (mut slow, mut idle) = (server.connect().await, server.connect().await);
    ask(&mut idle, "/").await;
    answer(&mut idle).await;
    ask(&mut slow, "/slow").await;
    server.until_begun(2).await;

    server.shutdown.cancel();
    until_closed(&mut idle).await;
    timeout(LONG, async { while TcpStream::connect(&server.addr).await.is_ok() {} })
        .await
        .expect("the listener closes");
    assert!(!server.task.is_finished(), "a request is in flight still");

    server.gate.add_permits(1);
    let last = answer(&mut slow).await;
    assert!(last.starts_with("HTTP/1.1 200"), "{last}");
    assert!(last.contains("connection: close"), "{last}");
    until_closed(&mut slow).await;
    assert_eq!(server.drained().await, Drained { forced: 0 });
}

#[tokio::test]
async fn drain_finishes_a_slow_http2_request() {
    let server = start(limits()).await;
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let request = tokio::spawn(client.get(format!("http://{}/slow", server.addr).parse().unwrap()));
    server.until_begun(1).await;
    server.shutdown.cancel();
    timeout(LONG, async { while TcpStream::connect(&server.addr).await.is_ok() {} })
        .await
        .expect("the listener closes");
    server.gate.add_permits(1);
    let response = timeout(LONG, request).await.unwrap().unwrap().unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    assert_eq!(server.drained().await, Drained { forced: 0 });
    drop(client);
}

#[tokio::test]
async fn drain_finishes_answers_that_are_read_slowly() {
    let server = start(limits()).await;
    let client: Client<HttpConnector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).http2_only(true).build_http();
    let mut http1 = server.connect().await;
    ask(&mut http1, "/large").await;
    let http2 = client.get(format!("http://{}/large", server.addr).parse().unwrap()).await.unwrap();
    server.until_begun(2).await;
    server.shutdown.cancel();
    timeout(LONG, async { while TcpStream::connect(&server.addr).await.is_ok() {} })
        .await
        .expect("the listener closes");
    // The time itself is tested: a second of a drain closes connections that do nothing, and not these.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!server.task.is_finished());
    assert!(until_closed(&mut http1).await.len() > LARGE);
    assert_eq!(http2.into_body().collect().await.unwrap().to_bytes().len(), LARGE);
    assert_eq!(server.drained().await, Drained { forced: 0 });
    drop(client);
}

#[tokio::test]
async fn drain_deadline_cuts_what_does_not_end() {
    let server = start(ConnectionLimits { drain_timeout: Duration::from_millis(200), ..limits() }).await;
    let mut stuck = server.connect().await;
    ask(&mut stuck, "/slow").await;
    server.until_begun(1).await;
    let started = Instant::now();
    server.shutdown.cancel();
    assert_eq!(until_closed(&mut stuck).await, b"");
    assert_eq!(server.drained().await, Drained { forced: 1 });
    assert!(started.elapsed() >= Duration::from_millis(190));
}

#[tokio::test]
async fn a_request_in_the_accept_queue_is_answered_by_a_drain() {
    let server = start(ConnectionLimits { max_connections: 1, ..limits() }).await;
    let mut slow = server.connect().await;
    ask(&mut slow, "/slow").await;
    server.until_begun(1).await;
    let (mut queued, mut queued_too) = (server.connect().await, server.connect().await);
    ask(&mut queued, "/queued").await;
    ask(&mut queued_too, "/queued-too").await;
    server.shutdown.cancel();
    server.gate.add_permits(1);
    for (stream, path) in [(&mut slow, "/slow"), (&mut queued, "/queued"), (&mut queued_too, "/queued-too")] {
        assert!(answer(stream).await.ends_with(path));
        until_closed(stream).await;
    }
    assert_eq!(server.drained().await, Drained { forced: 0 });
}

/// Signal and request are sent with nothing between them that would let the server run: it finds both at once.
#[tokio::test]
async fn request_sent_just_before_the_drain_is_answered() {
    for kept_alive in [false, true] {
        let server = start(limits()).await;
        let mut stream = server.connect().await;
        ask(&mut stream, "/first").await;
        answer(&mut stream).await;
        if !kept_alive {
            stream = server.connect().await;
        }
        let mut stream = stream.into_std().unwrap();
        std::io::Write::write_all(&mut stream, b"GET /last HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        server.shutdown.cancel();
        let mut stream = TcpStream::from_std(stream).unwrap();
        let last = answer(&mut stream).await;
        assert!(last.ends_with("/last") && last.contains("connection: close"), "{last}");
        assert_eq!(server.drained().await, Drained { forced: 0 });
    }
}

#[tokio::test]
async fn drain_does_not_wait_long_for_a_client_that_never_asks() {
    let server = start(limits()).await;
    let mut silent = server.connect().await;
    let mut other = server.connect().await;
    ask(&mut other, "/").await;
    answer(&mut other).await;
    let started = Instant::now();
    server.shutdown.cancel();
    until_closed(&mut silent).await;
    assert_eq!(server.drained().await, Drained { forced: 0 });
    assert!(started.elapsed() < LONG / 2, "drained after {:?}", started.elapsed());
}

#[tokio::test]
async fn unix_socket_serves_and_its_file_goes_with_the_drain() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.sock");
    let bound = BoundListener::bind(&format!("unix:{}", path.display()), 0o600).await.unwrap();
    let server = start_on(bound, limits()).await;
    let mut stream = UnixStream::connect(&path).await.unwrap();
    for _ in 0..2 {
        ask(&mut stream, "/over-unix").await;
        assert!(answer(&mut stream).await.ends_with("/over-unix"));
    }
    server.shutdown.cancel();
    until_closed(&mut stream).await;
    assert_eq!(server.drained().await, Drained { forced: 0 });
    assert!(!path.exists());
}
