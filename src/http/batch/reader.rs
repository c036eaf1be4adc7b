//! Reads the keys of a batch body: a JSON array, NDJSON, or text lines.

use axum::http::StatusCode;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING};

use super::lines::LineSplitter;
use super::sink::KeySink;
use super::{json, ndjson};
use crate::http::problem::Problem;
use crate::key::KeyForm;

/// The format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An array of strings or integers.
    Json,
    /// A string, an integer or `{"key": …}` per line.
    Ndjson,
    /// One key per line.
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
                    "Unsupported content type",
                    "send a batch as application/json (an array), application/x-ndjson or text/plain (one key per \
                     line)",
                )
            })
    }
}

/// Capacity reserved for a body of declared length, at most.
const MAX_INITIAL_CAPACITY: usize = 1 << 20;

/// Reads a body piece by piece. Lines are passed on once complete. An array must be complete, because only its end
/// shows whether it is valid.
pub(super) enum KeyReader {
    Json(Vec<u8>),
    Ndjson(LineSplitter),
    Text(LineSplitter),
}

impl KeyReader {
    /// `form`: in a keyspace of form `bytes` a text line may begin with a byte order mark. `bytes`: the length of the
    /// body if known.
    pub(super) fn new(format: Format, form: KeyForm, bytes: usize) -> Self {
        match format {
            Format::Json => Self::Json(Vec::with_capacity(bytes.min(MAX_INITIAL_CAPACITY))),
            // JSON is text, whatever its keys are.
            Format::Ndjson => Self::Ndjson(LineSplitter::new(KeyForm::Text)),
            Format::Text => Self::Text(LineSplitter::new(form)),
        }
    }

    /// Passes on the keys that are complete with this piece, in order. Fails on too many keys or a malformed body;
    /// earlier keys were passed on then.
    pub(super) fn piece<F: FnMut(&[u8])>(&mut self, piece: &[u8], keys: &mut KeySink<F>) -> Result<(), Problem> {
        match self {
            Self::Json(document) => document.extend_from_slice(piece),
            Self::Ndjson(lines) => lines.piece(piece, |number, line| ndjson::key(number, line, keys))?,
            Self::Text(lines) => lines.piece(piece, |_, line| keys.push(line))?,
        }
        Ok(())
    }

    /// Passes on the keys that are complete at the end of the body.
    pub(super) fn end<F: FnMut(&[u8])>(self, keys: &mut KeySink<F>) -> Result<(), Problem> {
        match self {
            Self::Json(document) => json::keys(KeyForm::Text.without_mark(&document), keys),
            Self::Ndjson(mut lines) => lines.end_line(|number, line| ndjson::key(number, line, keys)),
            Self::Text(mut lines) => Ok(lines.end_line(|_, line| keys.push(line))?),
        }
    }
}

/// Rejects compressed bodies: in a keyspace of form `bytes` they would be read as keys, and the true keys would not be
/// announced.
pub(super) fn require_uncompressed(headers: &HeaderMap) -> Result<(), Problem> {
    let all = |name, plain: &str| {
        headers.get_all(name).into_iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
    };
    if all(CONTENT_ENCODING, "identity") && all(TRANSFER_ENCODING, "chunked") {
        return Ok(());
    }
    let problem = not_a_batch("Unsupported content encoding", "send batches without content-encoding");
    Err(problem.header(ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}

fn not_a_batch(title: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-a-batch", title, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the body in pieces of every size.
    fn read(format: Format, body: &str) -> Result<Vec<String>, String> {
        let whole = read_in(body.len().max(1), format, body.as_bytes(), KeyForm::Text);
        for size in 1..body.len() {
            assert_eq!(read_in(size, format, body.as_bytes(), KeyForm::Text), whole, "{body} by {size} bytes");
        }
        whole.map(|keys| keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect())
    }

    fn read_in(size: usize, format: Format, body: &[u8], form: KeyForm) -> Result<Vec<Vec<u8>>, String> {
        let (mut found, mut reading) = (vec![], KeyReader::new(format, form, body.len()));
        let mut keys = KeySink::new(|key: &[u8]| found.push(key.to_vec()), 3);
        let read = body
            .chunks(size)
            .try_for_each(|piece| reading.piece(piece, &mut keys))
            .and_then(|()| reading.end(&mut keys));
        read.map_err(|problem| format!("{problem:?}")).map(|()| found)
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
        for (format, body) in
            [(Format::Json, "\u{feff}[\"a\"]"), (Format::Ndjson, "\u{feff}\"a\"\n"), (Format::Text, "\u{feff}a\n")]
        {
            assert_eq!(read(format, body), Ok(vec!["a".into()]));
        }
        assert_eq!(read(Format::Text, "a\n\u{feff}b"), Ok(vec!["a".into(), "\u{feff}b".into()]));
        assert_eq!(read_in(9, Format::Text, b"\xef\xbb\xbfa", KeyForm::Bytes), Ok(vec![b"\xef\xbb\xbfa".to_vec()]));
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
            // As many keys as the limit allows: the error must name the body.
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
