//! From an origin to a connection that speaks HTTP/1.1: name, TCP, TLS.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::rt::{Read, Write};
use hyper::{Request, Response};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore};
use tokio::task::unconstrained;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::{ClientError, Origin, Trust};
use crate::pool::Connect;

/// How long connecting may take, name resolution and handshakes included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens connections to one origin.
#[derive(Debug, Clone)]
pub(super) struct OriginConnector {
    origin: Origin,
    https: HttpsConnector<HttpConnector>,
}

/// The sending end of a connection. The connection closes when it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    /// Cancelled when the connection's task has ended.
    ended: CancellationToken,
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error(transparent)]
    Broke(#[from] hyper::Error),
    /// The request was never sent.
    #[error("the connection ended as the request was sent")]
    Ended,
}

impl NoAnswer {
    /// Returns true if the server answered with something other than HTTP.
    pub(super) fn is_parse(&self) -> bool {
        matches!(self, Self::Broke(error) if error.is_parse())
    }
}

impl OriginConnector {
    /// Connects to nothing yet. `trust` replaces the system's authorities.
    pub(super) fn new(origin: Origin, trust: Option<&Trust>) -> Result<Self, ClientError> {
        let invalid = |what: &str, error: &dyn std::fmt::Display| ClientError::Invalid(format!("{what}: {error}"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid("TLS", &error))?;
        let builder = match trust {
            Some(trust) => builder.with_root_certificates(trust.roots()),
            None if origin.is_secure() => builder
                .with_native_roots()
                .map_err(|error| invalid("the system's certificate authorities; ca_file names others", &error))?,
            None => builder.with_root_certificates(RootCertStore::empty()),
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let tls = builder.with_no_client_auth();
        let https =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        Ok(Self { origin, https })
    }

    async fn open(&self) -> Result<Connection, ClientError> {
        let origin = self.origin.to_string();
        let io = self
            .https
            .clone()
            .call(self.origin.uri())
            .await
            .map_err(|error| ClientError::unavailable(&origin, &*error))?;
        Connection::over(io, origin).await
    }
}

impl Connect for OriginConnector {
    type Connection = Connection;
    type Error = ClientError;

    async fn connect(&self) -> Result<Connection, ClientError> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.open()).await.unwrap_or_else(|_| {
            Err(ClientError::Unavailable(format!("{}: no connection within {CONNECT_TIMEOUT:?}", self.origin)))
        })
    }

    fn interrupted(&self) -> ClientError {
        ClientError::Unavailable(format!("{}: connecting was cancelled", self.origin))
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.sender.is_closed()
    }
}

impl Connection {
    /// Speaks HTTP over an open transport to `origin`.
    async fn over(io: impl Read + Write + Unpin + Send + 'static, origin: String) -> Result<Self, ClientError> {
        let (sender, connection) = http1::handshake(io).await.map_err(|error| ClientError::of(&origin, &error))?;
        let ended = CancellationToken::new();
        let at_end = ended.clone().drop_guard();
        // One task a connection, and connections are bounded. A caller that waits for an answer learns how it ended.
        tokio::spawn(async move {
            let result = connection.await;
            // The connection and its queue of requests are gone here.
            drop(at_end);
            if let Err(error) = result {
                tracing::debug!(%origin, %error, "a connection ended");
            }
        });
        Ok(Self { sender, ended })
    }

    /// Sends a request and returns once its answer has begun.
    pub(super) async fn ask(&mut self, request: Request<Empty<Bytes>>) -> Result<Response<Incoming>, NoAnswer> {
        self.sender.ready().await?;
        let answered = unless_ended(self.sender.send_request(request), self.ended.cancelled()).await;
        Ok(answered.ok_or(NoAnswer::Ended)??)
    }
}

/// Waits for an answer; `None` if the connection ended without one.
///
/// hyper hands a request over through a channel. When its reader ends, it empties the channel and leaves. A request
/// that is counted before that and stored after it stays unread for as long as the sender lives.
async fn unless_ended<T>(answer: impl Future<Output = T>, ended: impl Future<Output = ()>) -> Option<T> {
    let mut answer = pin!(answer);
    tokio::select! {
        biased;
        answered = answer.as_mut() => Some(answered),
        // An answer that came before the end is there, whatever the task's budget is.
        () = ended => unconstrained(answer).now_or_never(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn, ready};
    use std::task::Poll;

    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn an_answer_that_came_before_the_end_is_taken() {
        assert_eq!(unless_ended(ready(7), ready(())).now_or_never(), Some(Some(7)));
        let mut asked = 0;
        let came_meanwhile = poll_fn(|_| {
            asked += 1;
            if asked > 1 { Poll::Ready(7) } else { Poll::Pending }
        });
        assert_eq!(unless_ended(came_meanwhile, ready(())).now_or_never(), Some(Some(7)));
        assert_eq!(unless_ended(pending::<()>(), ready(())).now_or_never(), Some(None));
    }

    #[tokio::test]
    async fn a_request_that_an_ended_connection_has_lost_is_not_waited_for() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let mut connection = Connection::over(TokioIo::new(ours), "http://test".into()).await.unwrap();
        let ended = connection.ended.clone();
        let asking = tokio::spawn(async move { connection.ask(Request::new(Empty::new())).await.map(drop) });
        // The race in the channel: the connection has ended, and nobody answers the request.
        theirs.read_u8().await.unwrap();
        ended.cancel();
        let asked = tokio::time::timeout(Duration::from_secs(60), asking).await.expect("it ends").unwrap();
        assert!(matches!(asked, Err(NoAnswer::Ended)));
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_noticed() {
        let (ours, theirs) = tokio::io::duplex(1024);
        let mut connection = Connection::over(TokioIo::new(ours), "http://test".into()).await.unwrap();
        drop(theirs);
        connection.ended.cancelled().await;
        assert!(OriginConnector::is_closed(&connection));
        assert!(connection.ask(Request::new(Empty::new())).await.is_err());
    }
}
