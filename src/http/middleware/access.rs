//! Who may ask: bearer tokens, and the loopback `Host` that keeps web pages of other origins out.

use std::convert::Infallible;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{Request, Response, StatusCode, Uri};
use bytes::Bytes;
use subtle::ConstantTimeEq;
use tower::{Layer, Service};

use super::RefusableFuture;
use crate::http::context::HttpSettings;
use crate::http::problem::Problem;

/// A bearer token. `Debug` does not show it.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// Takes a token as a file holds it, white space around it left out; `None` where nothing is left.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.as_bytes().into()))
    }

    /// Takes as long for a wrong token as for the right one; only its length shows.
    fn matches(&self, offered: &[u8]) -> bool {
        self.0.ct_eq(offered).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

/// What a listener demands of each request.
#[derive(Debug, Clone)]
pub(in crate::http) enum Access {
    /// Nothing.
    Open,
    /// This bearer token.
    Token(Token),
    /// A `Host` that names this machine: a page that was made to resolve to us by DNS rebinding sends its own.
    LoopbackHost,
}

impl Access {
    /// What the data listener demands.
    pub(in crate::http) fn of_data(settings: &HttpSettings) -> Self {
        settings.token.clone().map_or(Self::Open, Self::Token)
    }

    /// Whether a request with this `Authorization`, and no other, may pass.
    pub(in crate::http) fn admits_bearer(&self, authorization: Option<&[u8]>) -> bool {
        match self {
            Self::Open => true,
            Self::Token(token) => authorization.and_then(bearer).is_some_and(|offered| token.matches(offered)),
            Self::LoopbackHost => false,
        }
    }

    fn refuse<B>(&self, request: &Request<B>) -> Option<Problem> {
        match self {
            Self::Open => None,
            Self::Token(token) => {
                let offered = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
                (!offered.is_some_and(|t| token.matches(t))).then(|| unauthorized(offered.is_some()))
            }
            Self::LoopbackHost => (!has_loopback_host(request.uri(), request.headers())).then(|| {
                Problem::new(
                    StatusCode::FORBIDDEN,
                    "host-not-loopback",
                    "Host is not loopback",
                    "without an admin token, this listener serves requests whose Host is localhost, 127.0.0.0/8 or [::1]",
                )
            }),
        }
    }
}

fn unauthorized(offered: bool) -> Problem {
    let (detail, challenge) = if offered {
        ("the bearer token is not the one configured", "Bearer realm=\"bloomguard\", error=\"invalid_token\"")
    } else {
        ("this listener demands a bearer token", "Bearer realm=\"bloomguard\"")
    };
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "Unauthorized", detail)
        .header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}

fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token.trim_ascii())
}

/// Every host that the request names must be loopback: the target's authority (HTTP/2, absolute form) and the header.
/// One of them there must be.
fn has_loopback_host(uri: &Uri, headers: &HeaderMap) -> bool {
    let authority = uri.authority().map(|a| a.as_str().as_bytes());
    let mut hosts = authority.into_iter().chain(headers.get_all(HOST).iter().map(HeaderValue::as_bytes)).peekable();
    hosts.peek().is_some() && hosts.all(|host| std::str::from_utf8(host).is_ok_and(is_loopback))
}

/// `localhost`, 127.0.0.0/8 or `[::1]`, with or without a port.
fn is_loopback(host: &str) -> bool {
    let (name, rest) = if let Some(bracketed) = host.strip_prefix('[') {
        let Some((address, rest)) = bracketed.split_once(']') else { return false };
        (address.parse::<Ipv6Addr>().is_ok_and(|a| a.is_loopback()), rest)
    } else {
        let (name, rest) = host.split_at(host.find(':').unwrap_or(host.len()));
        (name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback()), rest)
    };
    name && (rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit())))
}

/// Refuses requests that [`Access`] does not admit.
#[derive(Debug, Clone)]
pub(in crate::http) struct RequireLayer(Access);

impl RequireLayer {
    pub(in crate::http) const fn new(access: Access) -> Self {
        Self(access)
    }
}

impl<S> Layer<S> for RequireLayer {
    type Service = Require<S>;

    fn layer(&self, inner: S) -> Require<S> {
        Require { inner, access: self.0.clone() }
    }
}

/// The service of [`RequireLayer`].
#[derive(Debug, Clone)]
pub(in crate::http) struct Require<S> {
    inner: S,
    access: Access,
}

impl<S, B, R> Service<Request<B>> for Require<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = RefusableFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.access.refuse(&request) {
            None => RefusableFuture::Passed { inner: self.inner.call(request) },
            Some(problem) => RefusableFuture::Refused { problem: Some(problem) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts() {
        for host in [
            "localhost",
            "LocalHost",
            "localhost:4042",
            "127.0.0.1",
            "127.0.0.1:4042",
            "127.1.2.3",
            "[::1]",
            "[::1]:4042",
            "[0:0:0:0:0:0:0:1]",
            "localhost:",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":4042",
            "example.com",
            "localhost.example.com",
            "localhost@example.com",
            "example.com@localhost",
            "127.0.0.1.nip.io",
            "127.0.0.1:80@example.com",
            "128.0.0.1",
            "0.0.0.0",
            "10.0.0.1:4042",
            "::1",
            "[::1",
            "[::2]",
            "[::1]x",
            "[::1].example.com",
            "[::ffff:127.0.0.1]",
            "[127.0.0.1]",
            "127.1",
            "2130706433",
            "localhost:80:80",
            "localhost:x",
            " localhost",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    fn hosts(uri: &str, hosts: &[&'static str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_static(host));
        }
        has_loopback_host(&uri.parse().unwrap(), &headers)
    }

    #[test]
    fn every_host_that_is_named_must_be_loopback() {
        assert!(hosts("/", &["localhost"]));
        assert!(hosts("http://127.0.0.1:4042/", &[]));
        assert!(!hosts("/", &[]), "HTTP/1.0 without one");
        assert!(!hosts("/", &["localhost", "example.com"]));
        assert!(!hosts("http://example.com/", &["localhost"]));
        assert!(!hosts("http://localhost/", &["example.com"]));
    }

    #[test]
    fn only_the_token_itself_is_admitted() {
        let access = Access::Token(Token::new(" s3cret\n").unwrap());
        let refused = |value: Option<&'static str>| {
            let mut request = Request::new(());
            if let Some(value) = value {
                request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static(value));
            }
            access.refuse(&request).is_some()
        };
        for value in ["Bearer s3cret", "bearer s3cret", "BEARER  s3cret "] {
            assert!(!refused(Some(value)), "{value:?}");
        }
        for value in ["s3cret", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "Bearers3cret", ""] {
            assert!(refused(Some(value)), "{value:?}");
        }
        assert!(refused(None));
        assert!(Token::new(" \n").is_none(), "an empty token would admit everybody");
        assert!(!format!("{access:?}").contains("s3cret"));
    }
}
