//! Parses the paths of the data listener. By hand, because a key is bytes, and routers and the URL type normalise paths
//! by rules of their own.

use std::borrow::Cow;

use crate::metrics::Route;

/// The target of a request for one key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeyPath<'a> {
    pub(super) resource: Resource,
    /// As written; it may be unknown.
    pub(super) keyspace: &'a str,
    /// Everything behind the keyspace's slash, still percent-encoded. It may contain more slashes; nothing is
    /// normalised.
    pub(super) key: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    /// `/v1/keys/{ks}/{key}`
    Keys,
    /// `/v1/check/{ks}/{key}`
    Check,
    /// `/v1/lookup/{ks}`
    Lookup,
    /// `/v1/invalidate/{ks}`
    Invalidate,
}

/// Why the text behind the keyspace is not a key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyPathError {
    #[error("the key is empty")]
    Empty,
    #[error("the key contains a % without two hexadecimal digits; encode a percent sign as %25")]
    BadEscape,
    #[error("the key is longer than server.max_key_bytes = {limit}")]
    TooLong { limit: usize },
}

impl Resource {
    const ALL: [(&'static str, Self); 4] =
        [("keys/", Self::Keys), ("check/", Self::Check), ("lookup/", Self::Lookup), ("invalidate/", Self::Invalidate)];

    /// The route under which requests are counted.
    pub(super) const fn route(self) -> Route {
        match self {
            Self::Keys => Route::Keys,
            Self::Check => Route::Check,
            Self::Lookup => Route::Lookup,
            Self::Invalidate => Route::Invalidate,
        }
    }

    /// The resource that a path begins with, and the rest of the path.
    pub(super) fn split(path: &str) -> Option<(Self, &str)> {
        let rest = path.strip_prefix("/v1/")?;
        Self::ALL.into_iter().find_map(|(name, resource)| Some((resource, rest.strip_prefix(name)?)))
    }
}

impl<'a> KeyPath<'a> {
    /// Parses a path without its query; `None` if there is no such route.
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        let (resource, rest) = Resource::split(path)?;
        let (keyspace, key) = rest.split_once('/')?;
        Some(Self { resource, keyspace, key })
    }

    /// Decodes the key's bytes. Checks the length before it allocates.
    pub(super) fn decode(&self, max_bytes: usize) -> Result<Cow<'a, [u8]>, KeyPathError> {
        let raw = self.key.as_bytes();
        if raw.is_empty() {
            return Err(KeyPathError::Empty);
        }
        let escapes = raw.iter().filter(|b| **b == b'%').count();
        // Each escape encodes one byte in three; saturating, because bad escapes may be shorter.
        let length = raw.len().saturating_sub(2 * escapes);
        if length > max_bytes {
            return Err(KeyPathError::TooLong { limit: max_bytes });
        }
        if escapes == 0 {
            return Ok(Cow::Borrowed(raw));
        }
        let mut decoded = Vec::with_capacity(length);
        let mut rest = raw;
        while let [first, tail @ ..] = rest {
            let (byte, tail) = match (*first, tail) {
                (b'%', [high, low, tail @ ..]) => (hex(*high)? << 4 | hex(*low)?, tail),
                (b'%', _) => return Err(KeyPathError::BadEscape),
                unescaped => unescaped,
            };
            decoded.push(byte);
            rest = tail;
        }
        Ok(Cow::Owned(decoded))
    }
}

fn hex(digit: u8) -> Result<u8, KeyPathError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(KeyPathError::BadEscape),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::*;

    /// The target goes through the URI type that hyper passes on, as in a request.
    fn key(target: &str) -> Result<Vec<u8>, KeyPathError> {
        let uri: Uri = format!("/v1/keys/users/{target}").parse().unwrap();
        let path = KeyPath::parse(uri.path()).unwrap();
        assert_eq!((path.resource, path.keyspace), (Resource::Keys, "users"));
        path.decode(16).map(Cow::into_owned)
    }

    #[test]
    fn a_key_is_the_decoded_bytes_of_all_that_follows() {
        let table: &[(&str, &[u8])] = &[
            ("42", b"42"),
            ("a/b", b"a/b"),
            ("a%2Fb", b"a/b"),
            ("a%2fb", b"a/b"),
            ("/", b"/"),
            ("//a//", b"//a//"),
            ("..", b".."),
            ("../../admin", b"../../admin"),
            ("%2e%2e", b".."),
            (".", b"."),
            ("%00", b"\0"),
            ("%ff%FE", b"\xff\xfe"),
            ("a+b", b"a+b"),
            ("a%2Bb", b"a+b"),
            ("a%20b", b"a b"),
            ("a?b=c", b"a"),
            ("a%3Fb", b"a?b"),
            ("a?b/c", b"a"),
            ("%25zz", b"%zz"),
            ("%2525", b"%25"),
            ("é", "é".as_bytes()),
            ("%C3%A9", "é".as_bytes()),
            ("1;%20DROP", b"1; DROP"),
            ("a:b@c", b"a:b@c"),
            ("0123456789abcdef", b"0123456789abcdef"),
            ("%30%31%32%33%34%35%36%37%38%39%61%62%63%64%65%66", b"0123456789abcdef"),
        ];
        for (target, expected) in table {
            assert_eq!(key(target).as_deref(), Ok(*expected), "{target}");
        }
    }

    #[test]
    fn what_is_no_key_says_why() {
        for target in ["", "?a=b"] {
            assert_eq!(key(target), Err(KeyPathError::Empty), "{target}");
        }
        for target in ["%zz", "%", "a%", "a%2", "%2g", "%g2", "%%32", "%+1", "100%"] {
            assert_eq!(key(target), Err(KeyPathError::BadEscape), "{target}");
        }
        for target in ["0123456789abcdefg", "%30123456789abcdefg", "%zz123456789abcdef0"] {
            assert_eq!(key(target), Err(KeyPathError::TooLong { limit: 16 }), "{target}");
        }
    }

    #[test]
    fn other_paths_are_no_routes() {
        for path in [
            "/",
            "*",
            "/v1",
            "/v1/",
            "/v1/keys",
            "/v1/keys/",
            "/v1/keys/users",
            "//v1/keys/users/1",
            "/v2/keys/users/1",
            "/V1/keys/users/1",
            "/v1/keysusers/1",
            "/livez",
        ] {
            assert_eq!(KeyPath::parse(path), None, "{path}");
        }
        let check = KeyPath::parse("/v1/check/users/1").unwrap();
        assert_eq!(check, KeyPath { resource: Resource::Check, keyspace: "users", key: "1" });
        // Names are literal: an empty or encoded name is an unknown keyspace.
        assert_eq!(KeyPath::parse("/v1/keys//1").unwrap().keyspace, "");
        assert_eq!(KeyPath::parse("/v1/keys/us%65rs/1").unwrap().keyspace, "us%65rs");
    }

    proptest::proptest! {
        #[test]
        fn encoding_every_byte_and_decoding_is_the_identity(bytes in proptest::collection::vec(proptest::num::u8::ANY, 1..64)) {
            let encoded: String = bytes.iter().map(|b| format!("%{b:02x}")).collect();
            let path = KeyPath { resource: Resource::Keys, keyspace: "users", key: &encoded };
            assert_eq!(path.decode(64).as_deref(), Ok(&bytes[..]));
        }
    }
}
