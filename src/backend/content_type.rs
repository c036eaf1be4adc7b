//! Media types of values.

use hyper::header::HeaderValue;

/// Longer types are useless, and every cached value would keep them.
const LONGEST: usize = 255;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// Media type of a [`Value`](super::Value).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentType {
    /// A row as a JSON object.
    Json,
    /// Bytes: those of a single column named `value`, or of a backend that does not name a type.
    OctetStream,
    /// Another type, as an HTTP backend sent it. Made by [`ContentType::parse`] only, so that equal types are equal
    /// values.
    Other(MediaType),
}

/// A media type that can be sent as a header: printable ASCII, at most 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaType(HeaderValue);

impl ContentType {
    /// Reads a media type; `None` if it can't be sent on.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        match text {
            b"application/json" => return Some(Self::Json),
            b"application/octet-stream" => return Some(Self::OctetStream),
            _ => {}
        }
        let printable = text.iter().all(|b| *b == b' ' || b.is_ascii_graphic());
        let sound = printable && text.len() <= LONGEST && text.iter().position(|b| *b == b'/').is_some_and(|at| at > 0);
        // Copied, so that a cached value does not hold a connection's buffer.
        let value = HeaderValue::from_bytes(text).ok().filter(|_| sound)?;
        Some(Self::Other(MediaType(value)))
    }

    /// As HTTP writes it.
    #[must_use]
    pub fn header(&self) -> HeaderValue {
        match self {
            Self::Json => JSON,
            Self::OctetStream => OCTETS,
            Self::Other(MediaType(value)) => value.clone(),
        }
    }

    /// Memory beyond its own size.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Json | Self::OctetStream => 0,
            Self::Other(MediaType(value)) => value.len(),
        }
    }

    /// Returns true if the body is JSON, whatever the parameters of the type.
    #[must_use]
    pub fn is_json(&self) -> bool {
        let Self::Other(MediaType(value)) = self else { return *self == Self::Json };
        let essence =
            value.as_bytes().split(|b| *b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        essence == b"application/json" || essence.ends_with(b"+json")
    }
}

impl MediaType {
    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_kept_as_they_were_written() {
        for text in [
            "text/plain; charset=utf-8",
            "application/json; charset=utf-8",
            "Application/JSON",
            "image/png",
            "x/y;a=\"b c\"",
        ] {
            let parsed = ContentType::parse(text.as_bytes()).unwrap();
            assert!(matches!(parsed, ContentType::Other(_)), "{text}");
            assert_eq!(parsed.header(), text);
        }
        assert_eq!(ContentType::parse(b"application/json"), Some(ContentType::Json));
        assert_eq!(ContentType::parse(b" application/octet-stream "), Some(ContentType::OctetStream));
    }

    #[test]
    fn what_can_not_be_sent_on_is_none() {
        for text in [
            &b""[..],
            b"json",
            b"/json",
            b"text/plain\r\nx: y",
            b"text/\xff",
            b"text/\0",
            "text/é".as_bytes(),
            &[b'/'; 300],
        ] {
            assert_eq!(ContentType::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn json_is_known_by_any_of_its_names() {
        for (text, json) in [
            ("application/json", true),
            ("Application/JSON ; charset=utf-8", true),
            ("application/hal+json", true),
            ("application/jsonp", false),
            ("text/plain", false),
            ("application/octet-stream", false),
        ] {
            assert_eq!(ContentType::parse(text.as_bytes()).unwrap().is_json(), json, "{text}");
        }
    }
}
