//! From an origin to a connection that speaks HTTP/1.1: name, TCP, TLS.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore};
use tower::Service;

use super::{ClientError, Origin, Trust};

/// How long connecting may take, name resolution and handshakes included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens connections to one origin.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    origin: Origin,
    https: HttpsConnector<HttpConnector>,
}

/// The sending end of a connection.
pub(super) type Sender = SendRequest<Empty<Bytes>>;

impl Connector {
    /// Connects to nothing yet. `trust` takes the place of the system's authorities.
    pub(super) fn new(origin: Origin, trust: Option<&Trust>) -> Result<Self, ClientError> {
        let invalid = |what: &str, error: &dyn std::fmt::Display| ClientError::Invalid(format!("{what}: {error}"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(|error| invalid("TLS", &error))?;
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
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        Ok(Self { origin, https })
    }

    /// Opens a connection. It lives until its sender is dropped or the server closes it.
    pub(super) async fn connect(&self) -> Result<Sender, ClientError> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.connect_patiently())
            .await
            .unwrap_or_else(|_| Err(ClientError::Unavailable(format!("{}: no connection within {CONNECT_TIMEOUT:?}", self.origin))))
    }

    async fn connect_patiently(&self) -> Result<Sender, ClientError> {
        let origin = self.origin.to_string();
        let io = self.https.clone().call(self.origin.uri()).await.map_err(|error| ClientError::unavailable(&origin, &*error))?;
        let (sender, connection) = http1::handshake(io).await.map_err(|error| ClientError::of(&origin, &error))?;
        // One task a connection, and connections are bounded. How it ends is told to whoever waits for an answer on it.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%origin, %error, "a connection ended");
            }
        });
        Ok(sender)
    }
}
