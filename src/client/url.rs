//! URLs exactly as they are written: a normalised `%2e%2e` would become a parent folder.

use std::fmt;

use hyper::Uri;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// Everything but the unreserved characters of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Where the key is inserted.
const KEY: &str = "{key}";

/// Why a URL is rejected, as the end of a sentence that begins with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Neither `http` nor `https`.
    #[error("must be an http:// or https:// URL")]
    Scheme,
    /// Host or port can't be used.
    #[error("must name a host in ASCII, and a port from 1 to 65535 if any")]
    Host,
    /// A key could choose where the request goes.
    #[error("must not hold {{key}} before its path")]
    KeyInHost,
    /// Not exactly one `{key}`.
    #[error("must hold {{key}} exactly once, in its path or query")]
    Key,
    /// A source asks for no single key.
    #[error("must hold no {{key}}")]
    NoKey,
    /// `#` begins a part that is never sent.
    #[error("must hold no fragment; # is written %23")]
    Fragment,
    /// A character that is not allowed in a path or query.
    #[error("must percent-encode {0:?} in its path or query")]
    Character(char),
    /// Servers read `.` and `..` as folders.
    #[error("must hold no segment . or ..")]
    DotSegment,
}

/// Scheme, host and port, and the user.
#[derive(Clone, PartialEq, Eq)]
pub struct Origin {
    secure: bool,
    /// Host and port, without user.
    authority: Authority,
    /// User and password of the URL, decoded.
    user: Option<(Vec<u8>, Vec<u8>)>,
}

/// The URL of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    origin: Origin,
    target: PathAndQuery,
}

/// A URL with one place for a key, in its path or its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    origin: Origin,
    before: String,
    after: String,
}

impl Origin {
    /// Whether the connection is TLS.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host and port as they are written.
    #[must_use]
    pub fn host(&self) -> &str {
        self.authority.as_str()
    }

    /// User and password of the URL.
    #[must_use]
    pub fn user(&self) -> Option<(&[u8], &[u8])> {
        self.user.as_ref().map(|(user, password)| (user.as_slice(), password.as_slice()))
    }

    /// The URI that a connector connects to.
    pub(super) fn uri(&self) -> Uri {
        let mut parts = hyper::http::uri::Parts::default();
        parts.scheme = Some(if self.secure { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        // All three parts are set, so this can't fail.
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// Splits a URL into its origin and the rest, which begins with `/`.
    fn split(url: &str) -> Result<(Self, String), UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(UrlError::Scheme),
        };
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains(KEY) {
            return Err(UrlError::KeyInHost);
        }
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let authority: Authority = host.parse().map_err(|_| UrlError::Host)?;
        let port = host.rsplit_once(']').map_or(host, |(_, after)| after).split_once(':').map(|(_, port)| port);
        if authority.host().is_empty() || port.is_some_and(|port| !port.parse().is_ok_and(|port: u16| port > 0)) {
            return Err(UrlError::Host);
        }
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let user = user
            .map(|user| user.split_once(':').unwrap_or((user, "")))
            .map(|(user, password)| (decoded(user), decoded(password)));
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok((Self { secure, authority, user }, target))
    }
}

/// Without user and password.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.authority)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let (origin, target) = Origin::split(url)?;
        if target.contains(KEY) {
            return Err(UrlError::NoKey);
        }
        check_target(&target)?;
        Ok(Self { origin, target: target.try_into().map_err(|_| UrlError::Host)? })
    }

    /// Where the request goes.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The path and query.
    #[must_use]
    pub const fn target(&self) -> &PathAndQuery {
        &self.target
    }
}

impl UrlTemplate {
    /// Reads a URL that holds `{key}` once, in its path or its query.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let (origin, target) = Origin::split(url)?;
        let (before, after) = target.split_once(KEY).ok_or(UrlError::Key)?;
        if after.contains(KEY) {
            return Err(UrlError::Key);
        }
        // A key without special characters stands for all of them.
        check_target(&format!("{before}key{after}"))?;
        Ok(Self { origin, before: before.to_owned(), after: after.to_owned() })
    }

    /// The origin of every request, whatever its key.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns true if no server reads the path for this key as another one. `.` and `..` are rejected, and in a path
    /// also keys that contain them as a segment: many servers decode `%2F` before they split segments.
    #[must_use]
    pub fn admits(&self, key: &[u8]) -> bool {
        // Such a key makes a segment of more than dots wherever it stands. Nearly every key does.
        if !key.iter().any(|byte| matches!(byte, b'.' | b'/' | b'\\')) {
            return true;
        }
        if matches!(key, b"." | b"..") {
            return false;
        }
        if self.before.contains('?') {
            return true;
        }
        let begun = self.before.rsplit('/').next().unwrap_or_default();
        let rest = self.after.split(['/', '?']).next().unwrap_or_default();
        let segments = [&decoded(begun), key, &decoded(rest)].concat();
        !has_dot_segment(&segments)
    }

    /// The path and query for a key. Every byte of the key but the unreserved ones is percent-encoded, so it stays
    /// within its segment.
    ///
    /// `None` if the URL would be too long to send.
    #[must_use]
    pub fn target(&self, key: &[u8]) -> Option<PathAndQuery> {
        format!("{}{}{}", self.before, percent_encode(key, ENCODED), self.after).try_into().ok()
    }

    /// The path and query, with `{key}`.
    #[must_use]
    pub fn pattern(&self) -> String {
        format!("{}{KEY}{}", self.before, self.after)
    }
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(text).collect()
}

/// Some servers read a backslash as a slash.
fn has_dot_segment(path: &[u8]) -> bool {
    path.split(|byte| matches!(byte, b'/' | b'\\')).any(|segment| matches!(segment, b"." | b".."))
}

/// Checks that path and query contain only allowed characters.
fn check_target(target: &str) -> Result<(), UrlError> {
    let mut rest = target;
    while let Some(first) = rest.chars().next() {
        let allowed = match first {
            '%' => rest.len() > 2 && rest.as_bytes()[1..3].iter().all(u8::is_ascii_hexdigit),
            c => c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/?".contains(c),
        };
        if !allowed {
            return Err(UrlError::Character(first));
        }
        rest = &rest[first.len_utf8()..];
    }
    let path = target.split('?').next().unwrap_or_default();
    if has_dot_segment(&decoded(path)) { Err(UrlError::DotSegment) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(template: &str, key: &[u8]) -> String {
        UrlTemplate::parse(template).unwrap().target(key).unwrap().as_str().to_owned()
    }

    #[test]
    fn every_byte_of_a_key_but_the_unreserved_is_encoded() {
        let table: &[(&[u8], &str)] = &[
            (b"42", "42"),
            (b"a-b._~Z9", "a-b._~Z9"),
            (b"a/b", "a%2Fb"),
            (b"%2e%2e", "%252e%252e"),
            (b"a?b#c", "a%3Fb%23c"),
            (b"\\", "%5C"),
            (b"@host:1", "%40host%3A1"),
            (b"\r\nHost: x", "%0D%0AHost%3A%20x"),
            (b"\0\x7f\xff", "%00%7F%FF"),
            ("é{key}".as_bytes(), "%C3%A9%7Bkey%7D"),
            (b"+ &=;", "%2B%20%26%3D%3B"),
        ];
        for (key, encoded) in table {
            assert_eq!(target("http://api/users/{key}/x?y=1", key), format!("/users/{encoded}/x?y=1"));
            assert_eq!(target("https://api?id={key}", key), format!("/?id={encoded}"));
        }
        assert!(UrlTemplate::parse("http://api/{key}").unwrap().target(&[b'/'; 30_000]).is_none());
    }

    #[test]
    fn keys_that_servers_take_for_other_paths_are_refused() {
        let template = UrlTemplate::parse("http://api/users/{key}").unwrap();
        for key in [".", "..", "../admin", "a/../b", "a/.", "..\\admin", "a\\..", "./a"] {
            assert!(!template.admits(key.as_bytes()), "{key}");
        }
        for key in ["...", "a..b", "..a", "a", "/", "//", "%2e%2e", "a/b", "é", ".a/b."] {
            assert!(template.admits(key.as_bytes()), "{key}");
        }
        let dotted = UrlTemplate::parse("http://api/.{key}").unwrap();
        assert!(!dotted.admits(b"/x") && !dotted.admits(b"./x") && dotted.admits(b"x"));
        let json = UrlTemplate::parse("http://api/users/{key}.json").unwrap();
        assert!(!json.admits(b"..") && !json.admits(b"../x") && json.admits(b"x/"));
        let query = UrlTemplate::parse("http://api/users?id={key}").unwrap();
        assert!(!query.admits(b".") && !query.admits(b"..") && query.admits(b"a/../b"));
    }

    #[test]
    fn a_key_has_one_place_and_never_chooses_the_host() {
        for (url, error) in [
            ("http://{key}/users", UrlError::KeyInHost),
            ("http://api:{key}/users", UrlError::KeyInHost),
            ("http://{key}@api/users", UrlError::KeyInHost),
            ("http://api{key}", UrlError::KeyInHost),
            ("{key}://api/users", UrlError::Scheme),
            ("{key}", UrlError::Scheme),
            ("api/users/{key}", UrlError::Scheme),
            ("ftp://api/{key}", UrlError::Scheme),
            ("http://api/users", UrlError::Key),
            ("http://api/{key}/{key}", UrlError::Key),
            ("http://api/{key}?id={key}", UrlError::Key),
            ("http://api/users/{id}/{key}", UrlError::Character('{')),
            ("http://api/users#{key}", UrlError::Fragment),
            ("http:///users/{key}", UrlError::Host),
            ("http://api:0/{key}", UrlError::Host),
            ("http://api:/{key}", UrlError::Host),
            ("http://api:99999/{key}", UrlError::Host),
            ("http://a b/{key}", UrlError::Host),
            ("http://münchen/{key}", UrlError::Host),
            ("http://api/ü/{key}", UrlError::Character('ü')),
            ("http://api/a b/{key}", UrlError::Character(' ')),
            ("http://api/%zz/{key}", UrlError::Character('%')),
            ("http://api/a\\b/{key}", UrlError::Character('\\')),
            ("http://api/../{key}", UrlError::DotSegment),
            ("http://api/%2E%2e/{key}", UrlError::DotSegment),
        ] {
            assert_eq!(UrlTemplate::parse(url), Err(error), "{url}");
        }
        assert_eq!(Url::parse("http://api/keys/{key}"), Err(UrlError::NoKey));
    }

    #[test]
    fn hosts_ports_and_users_are_taken_apart() {
        let origin = |url: &str| UrlTemplate::parse(url).unwrap().origin().clone();
        assert_eq!(origin("HTTP://api.local:8080/{key}").to_string(), "http://api.local:8080");
        assert_eq!(origin("https://[::1]:8443/{key}").to_string(), "https://[::1]:8443");
        assert_eq!(origin("http://[::1]/{key}").uri().to_string(), "http://[::1]/");
        let named = origin("https://us%40er:hun%3Ater2@api/{key}");
        assert_eq!(named.user(), Some((&b"us@er"[..], &b"hun:ter2"[..])));
        assert!(!format!("{named:?} {named}").contains("hun"), "{named:?}");
        assert_eq!(Url::parse("http://api").unwrap().target(), "/");
    }

    proptest::proptest! {
        #[test]
        fn a_request_for_any_key_stays_one_segment_of_the_same_path(key in proptest::collection::vec(proptest::num::u8::ANY, 1..64)) {
            let target = target("http://api/users/{key}/row?x=1", &key);
            let encoded = target.strip_prefix("/users/").and_then(|rest| rest.strip_suffix("/row?x=1")).unwrap();
            assert!(encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~%".contains(&b)), "{target}");
            assert_eq!(decoded(encoded), key);
        }
    }
}
