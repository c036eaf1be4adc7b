//! The keys of a batch's body: a JSON array, NDJSON, or text lines.

use axum::http::StatusCode;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING};

use super::{json, ndjson, text};
use crate::http::problem::Problem;
use crate::key::KeyForm;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// An array of strings or integers.
    Json,
    /// A string, an integer or `{"key": …}` a line.
    Ndjson,
    /// One key a line.
    Text,
}

impl Format {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let media_type = value.split_once(';').map_or(value, |(media_type, _)| media_type).trim();
        [("application/json", Self::Json), ("application/x-ndjson", Self::Ndjson), ("text/plain", Self::Text)]
            .into_iter()
            .find_map(|(name, format)| media_type.eq_ignore_ascii_case(name).then_some(format))
            .ok_or_else(|| {
                not_a_batch(
                    "Content type is not that of a batch",
                    "batches are application/json (an array), application/x-ndjson or text/plain (one key a line)",
                )
            })
    }

    /// Hands each key to `take`, in their order and as bytes. Fails where there are more than `limit`, or where the body is none of this format: keys before that
    /// have been handed over then. Of a keyspace of form `bytes` a line may begin with anything.
    pub(super) fn keys(self, body: &[u8], limit: usize, form: KeyForm, take: impl FnMut(&[u8])) -> Result<(), Problem> {
        let body = match self {
            Self::Text => form.without_mark(body),
            // JSON is text, whatever its keys are.
            Self::Json | Self::Ndjson => KeyForm::Text.without_mark(body),
        };
        let keys = Counted::new(take, limit);
        match self {
            Self::Json => json::keys(body, keys),
            Self::Ndjson => ndjson::keys(body, keys),
            Self::Text => text::keys(body, keys),
        }
    }
}

/// Keys on their way to who takes them.
pub(super) struct Counted<F> {
    take: F,
    count: usize,
    limit: usize,
}

impl<F: FnMut(&[u8])> Counted<F> {
    pub(super) const fn new(take: F, limit: usize) -> Self {
        Self { take, count: 0, limit }
    }

    /// Hands a key over.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8]) -> Result<(), TooMany> {
        if self.count == self.limit {
            return Err(TooMany(self.limit));
        }
        self.count += 1;
        (self.take)(key);
        Ok(())
    }

    /// Keys so far.
    pub(super) const fn count(&self) -> usize {
        self.count
    }
}

/// More keys than `server.max_batch_keys`, which is this.
pub(super) struct TooMany(usize);

impl From<TooMany> for Problem {
    fn from(TooMany(limit): TooMany) -> Self {
        let detail = format!("the batch has more keys than server.max_batch_keys = {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-many-keys", "Too many keys", detail).member("limit", limit as u64)
    }
}

/// Refuses bodies that are compressed: as they are they could be taken for keys of form `bytes`, and the true ones would not be announced.
pub(super) fn require_plain(headers: &HeaderMap) -> Result<(), Problem> {
    let all = |name, plain: &str| headers.get_all(name).into_iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(plain.as_bytes()));
    if all(CONTENT_ENCODING, "identity") && all(TRANSFER_ENCODING, "chunked") {
        return Ok(());
    }
    let problem = not_a_batch("Coding of the body is not supported", "batches are sent as they are, without content-encoding");
    Err(problem.header(ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}

fn not_a_batch(title: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-a-batch", title, detail)
}

pub(super) fn bad_body(detail: String) -> Problem {
    Problem::bad_request("bad-body", "Request body does not fit", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, body: &str) -> Result<Vec<String>, String> {
        let mut keys = vec![];
        let take = |key: &[u8]| keys.push(String::from_utf8(key.to_vec()).unwrap());
        format.keys(body.as_bytes(), 3, KeyForm::Text, take).map_err(|problem| format!("{problem:?}"))?;
        Ok(keys)
    }

    #[test]
    fn strings_and_integers_are_keys_in_every_format() {
        let keys = ["a b", "42", "-7"].map(str::to_owned).to_vec();
        assert_eq!(read(Format::Json, r#" ["a b", 42, "-7"] "#), Ok(keys.clone()));
        assert_eq!(read(Format::Ndjson, "\"a b\"\n{\"key\":42}\r\n\n-7\n"), Ok(keys.clone()));
        assert_eq!(read(Format::Text, "a b\r\n42\n\n\r\n-7"), Ok(keys));
        assert_eq!(read(Format::Json, "[18446744073709551615]"), Ok(vec!["18446744073709551615".into()]));
        for format in [Format::Ndjson, Format::Text] {
            assert_eq!(read(format, ""), Ok(vec![]));
        }
        assert_eq!(read(Format::Json, "[]"), Ok(vec![]));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_key() {
        for (format, body) in [(Format::Json, "\u{feff}[\"a\"]"), (Format::Ndjson, "\u{feff}\"a\"\n"), (Format::Text, "\u{feff}a\n")] {
            assert_eq!(read(format, body), Ok(vec!["a".into()]));
        }
        assert_eq!(read(Format::Text, "a\n\u{feff}b"), Ok(vec!["a".into(), "\u{feff}b".into()]));
        let mut bytes = vec![];
        Format::Text.keys(b"\xef\xbb\xbfa", 3, KeyForm::Bytes, |key| bytes.push(key.to_vec())).unwrap();
        assert_eq!(bytes, [b"\xef\xbb\xbfa"]);
    }

    #[test]
    fn what_is_no_batch_is_told_where() {
        for (format, body) in [
            (Format::Json, ""),
            (Format::Json, "{}"),
            (Format::Json, "[1.5]"),
            (Format::Json, "[null]"),
            (Format::Json, "[[1]]"),
            (Format::Json, "[1"),
            // As many keys as there may be, and no more: what is wrong is the body.
            (Format::Json, "[1,2,3"),
            (Format::Json, "[1,2,\"\\u0033\","),
            (Format::Json, "[1,2,3,null]"),
            (Format::Json, "[1] 2"),
            (Format::Ndjson, "1\n2.5"),
            (Format::Ndjson, "1\n{\"id\":2}"),
            (Format::Ndjson, "[1]"),
        ] {
            let problem = read(format, body).unwrap_err();
            assert!(problem.contains("bad-body") && problem.contains("line "), "{body}: {problem}");
        }
    }

    #[test]
    fn more_keys_than_the_limit_are_refused_with_it() {
        for (format, body) in [
            (Format::Json, "[1,2,3,4]"),
            (Format::Json, "[1,2,3,\"x\",null]"),
            (Format::Json, "[1,2,3,\"\\u0034\""),
            (Format::Ndjson, "1\n2\n3\n4"),
            (Format::Text, "1\n2\n3\n4"),
        ] {
            let problem = read(format, body).unwrap_err();
            assert!(problem.contains("too-many-keys") && problem.contains("max_batch_keys = 3"), "{problem}");
        }
    }
}
