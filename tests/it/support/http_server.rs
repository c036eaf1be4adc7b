//! An HTTP server whose every byte the test decides, and which remembers what it was sent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is done with a request.
#[derive(Clone)]
pub enum Reply {
    /// These bytes, and the connection stays.
    Keep(Vec<u8>),
    /// These bytes, and the connection ends in good order.
    Close(Vec<u8>),
    /// These bytes, and the connection is reset.
    Reset(Vec<u8>),
    /// Nothing, ever.
    Hang,
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// A request as it was sent.
#[derive(Debug, Clone)]
pub struct Request {
    /// `GET /users/1 HTTP/1.1`
    pub line: String,
    /// The header lines, as sent.
    pub headers: Vec<String>,
}

impl Request {
    pub fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }

    /// The value of a header, if it was sent once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found =
            self.headers.iter().filter_map(|line| line.split_once(": ")).filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let value = found.next()?.1;
        assert!(found.next().is_none(), "{name} was sent twice: {:?}", self.headers);
        Some(value)
    }
}

/// Stops when dropped.
pub struct HttpServer {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
    most_open: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `200 OK` of this type.
pub fn ok(content_type: &str, body: &str) -> Reply {
    status("200 OK", &format!("content-type: {content_type}\r\n"), body)
}

/// An answer with a length.
pub fn status(status: &str, headers: &str, body: &str) -> Reply {
    Reply::Keep(format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

impl HttpServer {
    pub async fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Script> = Arc::new(script);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let [connections, open, most_open] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let task = {
            let (seen, connections, most_open) = (seen.clone(), connections.clone(), most_open.clone());
            tokio::spawn(async move {
                let mut served = tokio::task::JoinSet::new();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::SeqCst);
                    most_open.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let (script, seen, open) = (script.clone(), seen.clone(), open.clone());
                    served.spawn(async move {
                        serve(stream, &*script, &seen).await;
                        open.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            })
        };
        Self { address, seen, connections, most_open, task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn most_open(&self) -> usize {
        self.most_open.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, script: &Script, seen: &Mutex<Vec<Request>>) {
    let mut received = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                return;
            }
        };
        // Bytes that are no UTF-8 would be a fault of ours.
        let head = String::from_utf8(received.drain(..end + 4).take(end).collect()).unwrap();
        let mut lines = head.split("\r\n").map(str::to_owned);
        let request = Request { line: lines.next().unwrap(), headers: lines.collect() };
        seen.lock().push(request.clone());
        let reply = script(&request);
        let head_only = request.line.starts_with("HEAD ");
        let sent = |bytes: Vec<u8>| {
            let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
            if head_only { bytes[..head].to_vec() } else { bytes }
        };
        match reply {
            Reply::Keep(bytes) => stream.write_all(&sent(bytes)).await.unwrap_or(()),
            Reply::Close(bytes) => {
                let _ = stream.write_all(&sent(bytes)).await;
                return;
            }
            Reply::Reset(bytes) => {
                let _ = stream.write_all(&sent(bytes)).await;
                // What was sent is read before the reset comes only if the peer was quick; either way it is no end.
                stream.set_zero_linger().unwrap();
                return;
            }
            Reply::Hang => {
                // Until the other side gives up.
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.unwrap_or(0) > 0 {}
                return;
            }
        }
    }
}
