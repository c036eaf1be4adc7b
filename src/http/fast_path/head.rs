//! Parses a request head as far as the fast path needs it: to answer the request, or to know where the next one begins.
//!
//! It uses hyper's parser and accepts only the ordinary. Everything unusual goes to hyper.

use std::mem::MaybeUninit;

use httparse::{Error, Header, Request, Status};

/// Ordinary clients and proxies send fewer.
const MAX_HEADERS: usize = 48;
/// The preface of an HTTP/2 connection.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What the client's bytes begin with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// A head that has not arrived completely.
    Partial,
    /// A request that may be answered from its head alone.
    Simple(RequestHead<'a>),
    /// A request of this many bytes, body included. The next request begins behind it.
    Delimited(u64),
    /// Not a head, whatever follows.
    Malformed,
    /// Anything else. Only hyper knows where it ends.
    Other,
}

/// A GET request without options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestHead<'a> {
    /// Without its query.
    pub(super) path: &'a str,
    /// The `Authorization` header.
    pub(super) authorization: Option<&'a [u8]>,
    /// The `Host` header.
    pub(super) host: Option<&'a [u8]>,
    /// Length in bytes.
    pub(super) length: usize,
}

/// What a header means for how its request is handled.
enum HeaderEffect<'a> {
    /// No effect.
    None,
    Authorization(&'a [u8]),
    Host(&'a [u8]),
    ContentLength(&'a [u8]),
    /// An option that the fast path does not implement.
    Option,
    /// The request or the connection may end in an unusual place.
    Framing,
}

pub(super) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut request = Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(Status::Complete(length)) => classify(&request, length),
        Ok(Status::Partial) => Parsed::Partial,
        // hyper accepts more headers.
        Err(Error::TooManyHeaders) => Parsed::Other,
        Err(_) if HTTP2.starts_with(&bytes[..bytes.len().min(HTTP2.len())]) => Parsed::Other,
        Err(_) => Parsed::Malformed,
    }
}

fn classify<'a>(request: &Request<'_, 'a>, length: usize) -> Parsed<'a> {
    let (Some(method), Some(target), Some(1)) = (request.method, request.path, request.version) else {
        return Parsed::Other;
    };
    let (mut authorization, mut host, mut body, mut simple) = (None, None, None, method == "GET");
    for header in &*request.headers {
        match effect(header) {
            HeaderEffect::None => {}
            HeaderEffect::Authorization(value) => simple &= authorization.replace(value).is_none(),
            HeaderEffect::Host(value) => simple &= host.replace(value).is_none(),
            HeaderEffect::ContentLength(value) => match decimal(value) {
                Some(bytes) if body.is_none() => body = Some(bytes),
                _ => return Parsed::Other,
            },
            HeaderEffect::Option => simple = false,
            HeaderEffect::Framing => return Parsed::Other,
        }
    }
    if method == "CONNECT" {
        return Parsed::Other;
    }
    match path(target) {
        Some(path) if simple && body.is_none() && host.is_some() => {
            Parsed::Simple(RequestHead { path, authorization, host, length })
        }
        _ => Parsed::Delimited(length as u64 + body.unwrap_or(0)),
    }
}

fn effect<'a>(header: &Header<'a>) -> HeaderEffect<'a> {
    let Header { name, value } = *header;
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match name.len() {
        4 if is("host") => HeaderEffect::Host(value),
        // `te` and `trailer` only matter together with a framing header.
        6 if is("expect") => HeaderEffect::Framing,
        7 if is("upgrade") => HeaderEffect::Framing,
        10 if is("connection") && !value.eq_ignore_ascii_case(b"keep-alive") => HeaderEffect::Framing,
        17 if is("transfer-encoding") => HeaderEffect::Framing,
        13 if is("authorization") => HeaderEffect::Authorization(value),
        14 if is("content-length") => HeaderEffect::ContentLength(value),
        13 if is("cache-control") => HeaderEffect::Option,
        // A response of the fast path never waits.
        18 if is("bloomguard-timeout") => HeaderEffect::None,
        12.. if name.as_bytes()[..11].eq_ignore_ascii_case(b"bloomguard-") => HeaderEffect::Option,
        _ => HeaderEffect::None,
    }
}

/// Parses digits only, and at most 18 of them.
fn decimal(text: &[u8]) -> Option<u64> {
    (text.len() <= 18 && text.iter().all(u8::is_ascii_digit))
        .then(|| std::str::from_utf8(text).ok()?.parse().ok())
        .flatten()
}

/// The path of an origin-form target, if all characters are unambiguous.
fn path(target: &str) -> Option<&str> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@!$&'()*+,;=%".contains(&byte);
    (path.starts_with('/') && path.bytes().all(usual) && query.bytes().all(|byte| usual(byte) || byte == b'?'))
        .then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(length: usize) -> Parsed<'static> {
        Parsed::Delimited(length as u64)
    }

    #[test]
    fn a_plain_request_is_one_for_a_path_and_nothing_else() {
        for (target, path) in [
            ("/v1/keys/users/42", "/v1/keys/users/42"),
            ("/v1/check/users/a%2Fb", "/v1/check/users/a%2Fb"),
            ("/v1/keys/users/a/../b?page=1&x?", "/v1/keys/users/a/../b"),
            ("/", "/"),
        ] {
            for headers in [
                "Host: x\r\n",
                "host: x\r\naccept: */*\r\nConnection: Keep-Alive\r\nBloomguard-Timeout: 1s\r\ntraceparent: 00\r\n",
            ] {
                let host = Some(&b"x"[..]);
                let text = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
                assert_eq!(
                    parse(text.as_bytes()),
                    Parsed::Simple(RequestHead { path, authorization: None, host, length: text.len() }),
                    "{text}"
                );
                // What follows belongs to the next request.
                assert_eq!(parse(format!("{text}GET /").as_bytes()), parse(text.as_bytes()));
                assert!((0..text.len()).all(|length| parse(&text.as_bytes()[..length]) == Parsed::Partial), "{text}");
            }
        }
        let text = "GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer s3cret\r\n\r\n";
        let head =
            RequestHead { path: "/", authorization: Some(b"Bearer s3cret"), host: Some(b"x"), length: text.len() };
        assert_eq!(parse(text.as_bytes()), Parsed::Simple(head));
    }

    #[test]
    fn requests_with_options_methods_and_bodies_are_whole() {
        for head in [
            "HEAD /v1/keys/users/42 HTTP/1.1\r\n\r\n",
            "PUT /v1/keys/users/42 HTTP/1.1\r\n\r\n",
            "get /v1/keys/users/42 HTTP/1.1\r\n\r\n",
            "GET http://localhost/v1/keys/users/42 HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET /v1/keys/users/\"42\" HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET /v1/keys/users/42#43 HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET /v1/keys/users/42?\\ HTTP/1.1\r\nhost: x\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\nBLOOMGUARD-bypass: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\nbloomguard-min-version: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\nbloomguard-x: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\ncache-control: no-cache\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\nHost: x\r\n\r\n",
        ] {
            assert_eq!(parse(head.as_bytes()), whole(head.len()), "{head}");
        }
        let head = "POST /v1/check/users HTTP/1.1\r\nContent-Length: 00012\r\n\r\n";
        assert_eq!(parse(format!("{head}1\n2").as_bytes()), whole(head.len() + 12));
    }

    #[test]
    fn where_another_may_see_another_end_nothing_is_said() {
        for head in [
            "GET / HTTP/1.0\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "CONNECT localhost:80 HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nconnection: close\r\n\r\n",
            "GET / HTTP/1.1\r\nconnection: keep-alive, upgrade\r\n\r\n",
            "GET / HTTP/1.1\r\nupgrade: h2c\r\n\r\n",
            "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1, 1\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: \r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-length: 1234567890123456789\r\n\r\n",
        ] {
            assert_eq!(parse(head.as_bytes()), Parsed::Other, "{head}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1));
        assert_eq!(parse(many.as_bytes()), Parsed::Other);
    }

    #[test]
    fn a_malformed_head_is_known_by_its_first_bad_byte() {
        for head in [
            "GET / HTTP/1.1\r\ncontent-length : 1\r\n\r\n",
            "GET / HTTP/1.1\r\n folded: 1\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\0b\r\n\r\n",
            "rubbish\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: x\r\na b: c",
            "GET /\r\n",
            "GET / HTTP/1.2",
            "{",
            "PRI * HTTP/2.0\r\n\r\nXX",
            "\u{16}\u{3}\u{1}",
        ] {
            let known = (1..=head.len()).find(|length| parse(&head.as_bytes()[..*length]) == Parsed::Malformed);
            let known = known.unwrap_or_else(|| panic!("{head:?}"));
            assert!(
                (known..head.len()).all(|length| parse(&head.as_bytes()[..length]) == Parsed::Malformed),
                "{head:?}"
            );
            assert!(
                (1..known).all(|length| matches!(parse(&head.as_bytes()[..length]), Parsed::Partial | Parsed::Other)),
                "{head:?}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            if let Parsed::Simple(RequestHead { length, .. }) = parse(&bytes) {
                assert!(length <= bytes.len());
            }
        }
    }
}
