//! Checks `Host` and `Origin`. A web page can't choose them, so they distinguish its requests from those of clients.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::Uri;
use axum::http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};

use crate::config::{Listen, ServerConfig};

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The hosts that a listener serves.
#[derive(Debug, Clone)]
pub(in crate::http) enum Hosts {
    /// All hosts: the listener is not on loopback, requires a token, or is a Unix socket, which browsers can't reach.
    Any,
    /// `localhost`, IP addresses and these names. A page that reaches loopback by DNS rebinding sends its own name.
    Local {
        /// The values that nearly every client sends.
        usual: [Box<[u8]>; 2],
        /// `server.allowed_hosts`
        names: Arc<[String]>,
    },
    /// `localhost`, 127.0.0.0/8 and `[::1]`; the header is required.
    Loopback,
}

impl Hosts {
    /// The hosts of a listener at this address that requires no token.
    pub(in crate::http) fn for_listener(listen: &str, config: &ServerConfig) -> Self {
        match listen.parse() {
            Ok(Listen::Tcp(address)) if Listen::Tcp(address).is_local() => Self::Local {
                usual: [address.to_string(), format!("localhost:{}", address.port())]
                    .map(|host| host.into_bytes().into()),
                names: config.allowed_hosts.clone().into(),
            },
            _ => Self::Any,
        }
    }

    /// Whether a request with only this `Host` header may pass.
    pub(in crate::http) fn admit(&self, host: Option<&[u8]>) -> bool {
        match (self, host) {
            (Self::Any, _) | (Self::Local { .. }, None) => true,
            (Self::Loopback, None) => false,
            (Self::Local { usual, names }, Some(host)) => {
                usual.iter().any(|usual| **usual == *host)
                    || name(host).is_some_and(|name| is_local(name) || is_one_of(name, names))
            }
            (Self::Loopback, Some(host)) => name(host).is_some_and(is_loopback),
        }
    }

    /// Every host in the request must be admitted: the target's authority (HTTP/2, absolute form) and each header.
    pub(super) fn admit_all(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = hosts(uri, headers).peekable();
        if hosts.peek().is_none() { self.admit(None) } else { hosts.all(|host| self.admit(Some(host))) }
    }
}

fn hosts<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> impl Iterator<Item = &'r [u8]> {
    let authority = uri.authority().map(|a| a.as_str().as_bytes());
    authority.into_iter().chain(headers.get_all(HOST).iter().map(HeaderValue::as_bytes))
}

/// Whether a page of another site sent the request. Browsers send `Origin`, or else `Sec-Fetch-Site`.
pub(super) fn is_cross_site(uri: &Uri, headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter().peekable();
    if origins.peek().is_none() {
        return headers.get_all(&SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none");
    }
    let own = |origin: &HeaderValue| {
        let origin = origin.to_str().unwrap_or_default();
        let Some(site) = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) else {
            return false;
        };
        let is_named = name(site.as_bytes()).is_some_and(|name| is_one_of(name, allowed));
        is_named || hosts(uri, headers).next().is_some_and(|host| host.eq_ignore_ascii_case(site.as_bytes()))
    };
    !origins.all(own)
}

/// The host without its port; `None` if it is malformed.
fn name(host: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(host).ok()?;
    let (name, port) = match host.strip_prefix('[') {
        // With brackets, so that a name is never read as an address.
        Some(rest) => host.split_at(rest.find(']')? + 2),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    is_port.then_some(name)
}

fn is_one_of(name: &str, names: &[String]) -> bool {
    names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

fn address(name: &str) -> Option<IpAddr> {
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => name.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

/// A name that no DNS server resolves.
fn is_local(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || address(name).is_some()
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || address(name).is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> Hosts {
        let config = ServerConfig { allowed_hosts: vec!["api.internal".into()], ..ServerConfig::default() };
        Hosts::for_listener("127.0.0.1:4040", &config)
    }

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
            assert!(Hosts::Loopback.admit(Some(host.as_bytes())) && local().admit(Some(host.as_bytes())), "{host}");
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
            "::1",
            "[::1",
            "[::1]x",
            "[::1].example.com",
            "[127.0.0.1]",
            "127.1",
            "2130706433",
            "localhost:80:80",
            "localhost:x",
            " localhost",
            "[localhost]",
            "[]",
            "[",
            "\u{e9}",
        ] {
            assert!(!Hosts::Loopback.admit(Some(host.as_bytes())) && !local().admit(Some(host.as_bytes())), "{host}");
        }
        for host in
            ["128.0.0.1", "0.0.0.0", "10.0.0.1:4042", "[::2]", "[::ffff:127.0.0.1]", "api.internal", "API.internal:80"]
        {
            assert!(!Hosts::Loopback.admit(Some(host.as_bytes())) && local().admit(Some(host.as_bytes())), "{host}");
        }
        assert!(!local().admit(Some(b"\xff")) && Hosts::Any.admit(Some(b"example.com")));
        assert!(!Hosts::Loopback.admit(None) && local().admit(None), "HTTP/1.0 without one, as no browser speaks");
    }

    #[test]
    fn only_listeners_on_loopback_ask_for_the_host() {
        let config = ServerConfig::default();
        for (listen, asks) in [
            ("127.0.0.1:4040", true),
            ("[::1]:4040", true),
            ("localhost:4040", true),
            ("0.0.0.0:4040", false),
            ("10.0.0.1:4040", false),
            ("unix:/run/data.sock", false),
        ] {
            assert_eq!(!Hosts::for_listener(listen, &config).admit(Some(b"example.com")), asks, "{listen}");
        }
    }

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn every_host_that_is_named_must_be_admitted() {
        let admitted = |uri: &str, hosts: &[&'static str]| {
            let headers = map(&hosts.iter().map(|host| ("host", *host)).collect::<Vec<_>>());
            Hosts::Loopback.admit_all(&uri.parse().unwrap(), &headers)
        };
        assert!(admitted("/", &["localhost"]));
        assert!(admitted("http://127.0.0.1:4042/", &[]));
        assert!(!admitted("/", &[]));
        assert!(!admitted("/", &["localhost", "example.com"]));
        assert!(!admitted("http://example.com/", &["localhost"]));
        assert!(!admitted("http://localhost/", &["example.com"]));
    }

    #[test]
    fn a_page_of_another_site_is_known_by_what_its_browser_says() {
        let allowed = ["app.internal".to_owned()];
        let foreign =
            |pairs: &[(&'static str, &'static str)]| is_cross_site(&Uri::from_static("/"), &map(pairs), &allowed);
        let host = ("host", "localhost:4040");
        for own in [
            &[host][..],
            &[host, ("origin", "http://localhost:4040")],
            &[host, ("origin", "http://LOCALHOST:4040")],
            &[host, ("origin", "https://app.internal")],
            &[host, ("origin", "https://app.internal:8443"), ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
        ] {
            assert!(!foreign(own), "{own:?}");
        }
        for others in [
            &[host, ("origin", "null")][..],
            &[host, ("origin", "")],
            &[host, ("origin", "http://localhost:3000")],
            &[host, ("origin", "https://evil.example")],
            &[host, ("origin", "https://app.internal.evil.example")],
            &[host, ("origin", "http://localhost:4040"), ("origin", "https://evil.example")],
            &[("origin", "http://localhost:4040")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site")],
        ] {
            assert!(foreign(others), "{others:?}");
        }
    }
}
