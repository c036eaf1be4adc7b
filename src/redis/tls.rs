//! TLS to a server, and why it fails, in text for operators.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use hyper_rustls::ConfigBuilderExt;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::ConnectError;
use crate::config::RedisFiles;

/// Names of a certificate that an error lists, and their length.
const NAMES_SHOWN: usize = 3;
const NAME_CHARS: usize = 64;

/// The TLS of one connection attempt.
#[derive(Debug)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    own: Arc<OwnCertificate>,
    has_ca_file: bool,
}

impl Tls {
    /// `name` is what the certificate must hold. Reads the system's authorities if `files` name none: blocks.
    pub(super) fn new(files: &RedisFiles, name: &str) -> Result<Self, ConnectError> {
        let failed = |error: &dyn std::fmt::Display| ConnectError::Tls(format!("TLS can't be used: {error}"));
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            ConnectError::Tls("its host is not a name that a certificate can hold; server_name sets one".into())
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?;
        let builder = match &files.trust {
            Some(trust) => builder.with_root_certificates(trust.roots()),
            None => builder.with_native_roots().map_err(|error| {
                failed(&format!("the system's certificate authorities: {error}; ca_file names others"))
            })?,
        };
        let key = files.identity.as_ref().map(|identity| identity.certified_key());
        let own = Arc::new(OwnCertificate { key, was_asked_for: AtomicBool::new(false) });
        let config = Arc::new(builder.with_client_cert_resolver(Arc::clone(&own) as _));
        Ok(Self { config, name, own, has_ca_file: files.trust.is_some() })
    }

    /// Returns the secure stream, and the place where its first fault will be.
    pub(super) async fn handshake(
        &self,
        stream: TcpStream,
    ) -> Result<(SecureStream, Arc<OnceLock<rustls::Error>>), ConnectError> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), stream).await.map_err(|error| match fault_of(&error) {
            Some(fault) => self.explain(fault),
            None => self.explain_end(),
        })?;
        let fault = Arc::new(OnceLock::new());
        Ok((SecureStream { stream, fault: Arc::clone(&fault) }, fault))
    }

    /// Why the server ended the connection between the handshake and its first answer. In TLS 1.3 a server refuses a
    /// client's certificate after the client's handshake has succeeded.
    pub(super) fn explain_silence(&self, fault: Option<&rustls::Error>) -> ConnectError {
        match fault {
            Some(rustls::Error::AlertReceived(alert)) if !self.own.was_asked_for() => {
                ConnectError::Tls(format!("it ended the connection after the TLS handshake: alert {alert:?}"))
            }
            Some(fault) => self.explain(fault),
            None if self.own.was_asked_for() => self.own.refused(None),
            None => ConnectError::Tls(
                "it closed the connection after the TLS handshake, without an answer: a proxy without a server behind \
                 it does so"
                    .into(),
            ),
        }
    }

    /// Why the server ended the connection during the handshake.
    fn explain_end(&self) -> ConnectError {
        if self.own.was_asked_for() {
            return self.own.refused(None);
        }
        ConnectError::Tls(
            "it ended the connection in place of a TLS handshake: a plain port does so (redis://), or a proxy without \
             a server behind it"
                .into(),
        )
    }

    fn explain(&self, fault: &rustls::Error) -> ConnectError {
        ConnectError::Tls(match fault {
            rustls::Error::InvalidCertificate(error) => self.explain_certificate(error),
            rustls::Error::InvalidMessage(_) => return ConnectError::NotTls,
            rustls::Error::AlertReceived(alert) if self.own.was_asked_for() => return self.own.refused(Some(*alert)),
            rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) | rustls::Error::PeerIncompatible(_) => {
                format!("it has no TLS version or cipher in common with us: {fault}")
            }
            _ => format!("the TLS handshake failed: {fault}"),
        })
    }

    fn explain_certificate(&self, error: &CertificateError) -> String {
        match error {
            CertificateError::Expired => "its certificate has expired".into(),
            // Without the time of this attempt, so that the reason stays the same.
            CertificateError::ExpiredContext { not_after, .. } => {
                format!("its certificate has expired, on {}", date(not_after.as_secs()))
            }
            CertificateError::NotValidYet => "its certificate is not valid yet".into(),
            CertificateError::NotValidYetContext { not_before, .. } => {
                format!("its certificate is not valid before {}", date(not_before.as_secs()))
            }
            CertificateError::UnknownIssuer if self.has_ca_file => {
                "its certificate is from an authority that ca_file does not hold".into()
            }
            CertificateError::UnknownIssuer => {
                "its certificate is from an authority that this system does not trust; ca_file names others".into()
            }
            CertificateError::NotValidForName => self.explain_name(&[]),
            CertificateError::NotValidForNameContext { presented, .. } => self.explain_name(presented),
            other => format!("its certificate can't be accepted: {other}"),
        }
    }

    fn explain_name(&self, presented: &[String]) -> String {
        let names: Vec<String> = presented.iter().take(NAMES_SHOWN).map(|name| bare(name)).collect();
        let held = if names.is_empty() { "another name".to_owned() } else { names.join(", ") };
        let more = if presented.len() > NAMES_SHOWN { " and others" } else { "" };
        format!("its certificate is not for {} but for {held}{more}; server_name sets the name", self.name.to_str())
    }
}

/// Our certificate, if there is one, and whether the server asked for it.
#[derive(Debug)]
struct OwnCertificate {
    key: Option<Arc<CertifiedKey>>,
    was_asked_for: AtomicBool,
}

impl OwnCertificate {
    fn was_asked_for(&self) -> bool {
        self.was_asked_for.load(Ordering::Relaxed)
    }

    fn refused(&self, alert: Option<AlertDescription>) -> ConnectError {
        let why = alert.map(|alert| format!(": {}", said(alert))).unwrap_or_default();
        ConnectError::Tls(match &self.key {
            None => "it asks for a client certificate: set cert_file and key_file".into(),
            Some(_) => format!("it does not accept our certificate (cert_file){why}"),
        })
    }
}

impl ResolvesClientCert for OwnCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.was_asked_for.store(true, Ordering::Relaxed);
        self.key.clone()
    }

    fn has_certs(&self) -> bool {
        self.key.is_some()
    }
}

/// An alert in words.
fn said(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateExpired => "it has expired".into(),
        AlertDescription::UnknownCA => "it is from an authority that the server does not trust".into(),
        AlertDescription::CertificateRevoked => "it was revoked".into(),
        other => format!("alert {other:?}"),
    }
}

fn fault_of(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn date(seconds: u64) -> String {
    let moment = i64::try_from(seconds).ok().and_then(|seconds| chrono::DateTime::from_timestamp(seconds, 0));
    moment.map_or_else(|| "an unknown day".into(), |moment| moment.format("%Y-%m-%d %H:%M UTC").to_string())
}

/// `DnsName("a")` and `IpAddress(::1)` without their kind. The text is the server's: bounded and printable.
fn bare(presented: &str) -> String {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(presented);
    let plain = inner.trim_matches('"').chars().filter(|c| c.is_ascii_graphic());
    plain.take(NAME_CHARS).collect()
}

/// A TLS stream that keeps its first fault. The driver reports only that the connection broke.
#[derive(Debug)]
pub(super) struct SecureStream {
    stream: TlsStream<TcpStream>,
    fault: Arc<OnceLock<rustls::Error>>,
}

impl SecureStream {
    fn keep(&self, error: &io::Error) {
        if let Some(fault) = fault_of(error) {
            // The first one explains the others.
            let _ = self.fault.set(fault.clone());
        }
    }

    /// After a failed write: the server's last alert may be there unread.
    fn keep_last_alert(&mut self, context: &mut Context<'_>) {
        let mut scratch = [0; 256];
        let mut unread = ReadBuf::new(&mut scratch);
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.stream).poll_read(context, &mut unread) {
            self.keep(&error);
        }
    }
}

impl AsyncRead for SecureStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if let Err(error) = &read {
            self.keep(error);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for SecureStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        if written.is_err() {
            self.keep_last_alert(cx);
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        if flushed.is_err() {
            self.keep_last_alert(cx);
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_certificate_are_shown_bounded_and_printable() {
        assert_eq!(bare("DnsName(\"cache.internal\")"), "cache.internal");
        assert_eq!(bare("IpAddress(127.0.0.1)"), "127.0.0.1");
        assert_eq!(bare("DnsName(\"a\u{1b}[31m\nb\")"), "a[31mb");
        assert_eq!(bare(&"x".repeat(1000)).len(), NAME_CHARS);
    }
}
