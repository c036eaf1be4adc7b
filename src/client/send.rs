//! Connections to one origin, kept for the next request.
//!
//! Not hyper-util's own pool: that one may open more connections than it keeps, and does not tell whether one that broke had been used before, which is
//! what makes asking again right.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::answer::Answer;
use super::connect::{Connection, Connector};
use super::{ClientError, Origin, Trust};

/// Connections are not used again after so long without work: what stands between may have forgotten them without a word.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections are replaced at this age, so that a host that moved is found.
const LIFETIME: Duration = Duration::from_secs(300);

/// Asks one origin, over a bounded number of connections.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connector: Connector,
    /// As messages name it: without user and password.
    origin: String,
    /// Sent with every request.
    headers: HeaderMap,
    /// One permit for each connection in use or being opened. A new one is opened only where none is idle, so this bounds the idle ones too.
    slots: Arc<Semaphore>,
    /// Last used last.
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    opened: Instant,
    since: Instant,
}

/// A connection in use. Dropped before its answer was read to the end, it is closed.
#[derive(Debug)]
pub(super) struct Lease {
    connection: Connection,
    opened: Instant,
    reused: bool,
    client: Client,
    slot: OwnedSemaphorePermit,
}

impl Client {
    /// Connects to nothing yet. `headers` are sent with every request and win over those that would be sent anyway.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] where TLS is needed and the system has no certificate authorities.
    pub fn new(
        origin: &Origin,
        headers: HeaderMap,
        trust: Option<&Trust>,
        max_connections: usize,
    ) -> Result<Self, ClientError> {
        let connector = Connector::new(origin.clone(), trust)?;
        let slots = Arc::new(Semaphore::new(max_connections.clamp(1, Semaphore::MAX_PERMITS)));
        let headers = all_headers(origin, headers)?;
        Ok(Self(Arc::new(Inner { connector, origin: origin.to_string(), headers, slots, idle: Mutex::default() })))
    }

    /// Sends a request without a body and returns once its answer has begun. Waits while all connections are in use; the caller sets the
    /// deadline, and dropping the future closes the connection.
    ///
    /// Asks twice where a connection that was kept broke before an answer: the server may have closed it as the request was sent.
    ///
    /// # Errors
    /// [`ClientError`]; a refused connection at once.
    pub async fn send(&self, method: Method, target: PathAndQuery, headers: HeaderMap) -> Result<Answer, ClientError> {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        *request.uri_mut() = target.into();
        *request.headers_mut() = self.0.headers.clone();
        request.headers_mut().extend(headers);
        let mut lease = self.acquire().await?;
        loop {
            match lease.connection.ask(request.clone()).await {
                Ok(response) => return Ok(Answer::new(response, self.0.origin.clone(), lease)),
                Err(error) if lease.reused && !error.is_parse() => {
                    tracing::debug!(origin = self.0.origin, %error, "a connection broke that had been idle: asking again on a new one");
                    // The others are as old as what broke this one.
                    self.0.idle.lock().clear();
                    lease = self.open(lease.slot).await?;
                }
                Err(error) => return Err(ClientError::without_answer(&self.0.origin, &error)),
            }
        }
    }

    async fn acquire(&self) -> Result<Lease, ClientError> {
        let slot = Arc::clone(&self.0.slots).acquire_owned().await.map_err(|_| self.given_up())?;
        match self.0.pop_idle() {
            Some(Idle { connection, opened, .. }) => {
                Ok(Lease { connection, opened, reused: true, client: self.clone(), slot })
            }
            None => self.open(slot).await,
        }
    }

    /// Opens a connection, in a task of its own: a handshake slower than one caller's deadline still ends as an idle connection for the next.
    async fn open(&self, slot: OwnedSemaphorePermit) -> Result<Lease, ClientError> {
        let (answer, opened) = oneshot::channel();
        let client = self.clone();
        tokio::spawn(async move {
            let opened = client.0.connector.connect().await;
            let lease =
                opened.map(|connection| Lease { connection, opened: Instant::now(), reused: false, client, slot });
            if let Err(Ok(unwanted)) = answer.send(lease) {
                unwanted.finish();
            }
        });
        opened.await.map_err(|_| self.given_up())?
    }

    fn given_up(&self) -> ClientError {
        ClientError::Unavailable(format!("{}: connecting was given up", self.0.origin))
    }
}

impl Inner {
    fn pop_idle(&self) -> Option<Idle> {
        let mut idle = self.idle.lock();
        while let Some(candidate) = idle.pop() {
            if !candidate.connection.is_closed() && !candidate.is_old() {
                return Some(candidate);
            }
        }
        None
    }

    fn put_idle(&self, connection: Connection, opened: Instant) {
        let mut idle = self.idle.lock();
        // Whoever comes back takes those out that nobody has needed for long.
        idle.retain(|other| !other.connection.is_closed() && !other.is_old());
        idle.push(Idle { connection, opened, since: Instant::now() });
    }
}

impl Idle {
    fn is_old(&self) -> bool {
        self.since.elapsed() > IDLE_TIMEOUT || self.opened.elapsed() > LIFETIME
    }
}

impl Lease {
    /// Gives the connection back, between two answers.
    pub(super) fn finish(self) {
        let Self { connection, opened, client, slot, .. } = self;
        client.0.put_idle(connection, opened);
        // Only now, so that whoever gets the slot finds the connection and opens no other.
        drop(slot);
    }
}

fn all_headers(origin: &Origin, own: HeaderMap) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    let host =
        HeaderValue::from_str(origin.host()).map_err(|error| ClientError::Invalid(format!("{origin}: {error}")))?;
    headers.insert(HOST, host);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("bloomguard/", env!("CARGO_PKG_VERSION"))));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some((user, password)) = origin.user() {
        use base64::Engine as _;
        let credentials = base64::engine::general_purpose::STANDARD.encode([user, b":", password].concat());
        let mut value = HeaderValue::try_from(format!("Basic {credentials}"))
            .map_err(|error| ClientError::Invalid(error.to_string()))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    headers.extend(own);
    Ok(headers)
}
