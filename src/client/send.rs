//! Requests to one origin.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request};

use super::answer::ClientResponse;
use super::connect::OriginConnector;
use super::{ClientError, Origin, Trust};
use crate::pool::{Pool, PoolSettings};

/// Connections are closed after this time without work: a proxy or firewall on the way may have forgotten them.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections are replaced at this age, so that a host that moved is found.
const LIFETIME: Duration = Duration::from_secs(300);

/// Sends requests to one origin, over a bounded number of connections.
#[derive(Debug, Clone)]
pub struct Client {
    /// As messages name it: without user and password.
    origin: Arc<str>,
    /// Sent with every request.
    headers: HeaderMap,
    pool: Pool<OriginConnector>,
}

impl Client {
    /// Connects to nothing yet. Every request has `headers`, which replace default headers of the same name.
    ///
    /// # Errors
    /// [`ClientError::Invalid`] where TLS is needed and the system has no certificate authorities.
    pub fn new(
        origin: &Origin,
        headers: HeaderMap,
        trust: Option<&Trust>,
        max_connections: usize,
    ) -> Result<Self, ClientError> {
        let connector = OriginConnector::new(origin.clone(), trust)?;
        let settings = PoolSettings {
            max: max_connections,
            min: 0,
            idle_timeout: IDLE_TIMEOUT,
            lifetime: LIFETIME,
            maintenance: None,
        };
        let headers = all_headers(origin, headers)?;
        Ok(Self { origin: origin.to_string().into(), headers, pool: Pool::new(connector, settings) })
    }

    /// Sends a request without a body and returns once its answer has begun. Waits while all connections are in use;
    /// the caller sets the deadline, and dropping the future closes the connection.
    ///
    /// Retries once if a reused connection broke before an answer: the server may have closed it as the request was
    /// sent.
    ///
    /// # Errors
    /// [`ClientError`]; a refused connection at once.
    pub async fn send(
        &self,
        method: Method,
        target: PathAndQuery,
        headers: HeaderMap,
    ) -> Result<ClientResponse, ClientError> {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = method;
        *request.uri_mut() = target.into();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(headers);
        let mut connection = self.pool.acquire().await?;
        loop {
            match connection.connection().ask(request.clone()).await {
                Ok(response) => return Ok(ClientResponse::new(response, self.origin.to_string(), connection)),
                Err(error) if connection.is_reused() && !error.is_parse() => {
                    tracing::debug!(origin = %self.origin, %error, "reused connection broke, retrying on a new one");
                    // The others are as old as what broke this one.
                    self.pool.discard_idle();
                    connection = connection.reopen().await?;
                }
                Err(error) => return Err(ClientError::without_answer(&self.origin, &error)),
            }
        }
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
