//! Configured headers.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Why a header is rejected. Never includes its value, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not a token.
    #[error("{0:?} is no name of a header")]
    Name(String),
    /// Line ends, control characters, or not ASCII.
    #[error("the value of {0} must be printable ASCII")]
    Value(HeaderName),
    /// It controls the framing or the form of the answer, or is set for each request.
    #[error("{0} can't be set: bloomguard decides on it")]
    Reserved(HeaderName),
    /// Set twice.
    #[error("{0} is set twice")]
    Twice(HeaderName),
    /// A line that is not a header.
    #[error("line {0} must be `Name: value`")]
    Line(usize),
}

/// Headers by name; each once.
///
/// # Errors
/// [`HeaderError`] for the first that can't be sent.
pub fn header_map<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<HeaderMap, HeaderError> {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        let name: HeaderName = name.parse().map_err(|_| HeaderError::Name(name.to_owned()))?;
        let printable = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        let mut value =
            HeaderValue::from_str(value).ok().filter(|_| printable).ok_or_else(|| HeaderError::Value(name.clone()))?;
        value.set_sensitive(true);
        if is_reserved(&name) {
            return Err(HeaderError::Reserved(name));
        }
        if map.insert(name.clone(), value).is_some() {
            return Err(HeaderError::Twice(name));
        }
    }
    Ok(map)
}

/// Reads `Name: value` lines; empty lines are skipped.
///
/// # Errors
/// [`HeaderError::Line`].
pub fn header_lines(text: &str) -> Result<Vec<(String, String)>, HeaderError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let pairs = lines.map(|(at, line)| {
        let (name, value) = line.split_once(':').ok_or(HeaderError::Line(at + 1))?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    });
    pairs.collect()
}

/// hyper sets framing and connection headers, the answer must be one complete plain body, and each request sets the
/// last three.
fn is_reserved(name: &HeaderName) -> bool {
    let reserved = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
        header::EXPECT,
        header::ACCEPT_ENCODING,
        header::RANGE,
        header::IF_RANGE,
        header::IF_MATCH,
        header::IF_NONE_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_UNMODIFIED_SINCE,
    ];
    reserved.contains(name)
        || ["keep-alive", "proxy-connection", "traceparent", "tracestate", "bloomguard-timeout"]
            .contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_sent_is_refused_without_its_value() {
        for (name, value) in [
            ("X-Api-Key", "hunter2\r\nHost: x"),
            ("X-Api-Key", "hünter2"),
            ("bad name", "hunter2"),
            ("", "hunter2"),
            ("Content-Length", "hunter2"),
            ("range", "hunter2"),
            ("Traceparent", "hunter2"),
        ] {
            let error = header_map([(name, value)]).unwrap_err().to_string();
            assert!(!error.contains("nter2"), "{error}");
        }
        assert_eq!(header_map([("a", "1"), ("A", "2")]), Err(HeaderError::Twice(HeaderName::from_static("a"))));
        let map = header_map([("Authorization", "Bearer hunter2"), ("Host", "users.internal")]).unwrap();
        assert_eq!(map.len(), 2);
        assert_eq!(map["host"], "users.internal");
        assert!(!format!("{map:?}").contains("hunter2"), "{map:?}");
    }

    #[test]
    fn lines_are_names_and_values() {
        let lines = header_lines("Authorization: Bearer a:b \r\n\nX-Tenant:7\n").unwrap();
        assert_eq!(
            lines,
            [("Authorization".to_owned(), "Bearer a:b".to_owned()), ("X-Tenant".to_owned(), "7".to_owned())]
        );
        assert_eq!(header_lines("X-A: 1\nhunter2"), Err(HeaderError::Line(2)));
    }
}
