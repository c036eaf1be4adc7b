//! Between PostgreSQL and a client: sees every message, and may change or swallow it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// What the protocol's messages are told apart by.
pub const QUERY: u8 = b'Q';
pub const PARSE: u8 = b'P';
pub const COPY_DATA: u8 = b'd';

/// A message of either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// 0 for the first one of a client, which has none.
    pub kind: u8,
    pub body: Vec<u8>,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Swallow,
    /// The connection ends before it.
    Cut,
}

/// A proxy before a server. Dropped, it takes no more connections.
pub struct PostgresProxy {
    port: u16,
    statements: Arc<Mutex<Vec<String>>>,
    accepting: AbortHandle,
}

impl PostgresProxy {
    /// `judge` is shown every message, `true` for those of the client.
    pub async fn start(upstream: &str, judge: impl FnMut(bool, &mut Message) -> Fate + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let statements = Arc::new(Mutex::new(Vec::new()));
        let (upstream, seen, judge) = (upstream.to_owned(), Arc::clone(&statements), Arc::new(Mutex::new(judge)));
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(&upstream).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                let (seen, requests, answers) = (Arc::clone(&seen), Arc::clone(&judge), Arc::clone(&judge));
                let requests = pump(from_client, to_server, true, move |message| {
                    if matches!(message.kind, QUERY | PARSE) {
                        seen.lock().push(String::from_utf8_lossy(&message.body).into_owned());
                    }
                    (requests.lock())(true, message)
                });
                let answers = pump(from_server, to_client, false, move |message| (answers.lock())(false, message));
                tokio::spawn(async move {
                    tokio::select! { () = requests => {}, () = answers => {} }
                });
            }
        });
        Self { port, statements, accepting: accepting.abort_handle() }
    }

    /// The URL of a database behind it, without TLS, whose answers could not be read.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}?sslmode=disable", self.port, database.rsplit('/').next().unwrap())
    }

    /// How many statements held `part`, as they were sent.
    pub fn statements_with(&self, part: &str) -> usize {
        self.statements.lock().iter().filter(|statement| statement.contains(part)).count()
    }
}

impl Drop for PostgresProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// One way of a connection, until either end is gone or it is cut.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut untyped: bool,
    mut judge: impl FnMut(&mut Message) -> Fate,
) {
    loop {
        let kind = if std::mem::take(&mut untyped) { 0 } else { from.read_u8().await.unwrap_or(0) };
        let Ok(length) = from.read_u32().await else { return };
        let mut message = Message { kind, body: vec![0; length as usize - 4] };
        if from.read_exact(&mut message.body).await.is_err() {
            return;
        }
        match judge(&mut message) {
            Fate::Pass => {}
            Fate::Swallow => continue,
            Fate::Cut => return,
        }
        let mut bytes = if message.kind == 0 { vec![] } else { vec![message.kind] };
        bytes.extend((message.body.len() as u32 + 4).to_be_bytes());
        bytes.extend(&message.body);
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
