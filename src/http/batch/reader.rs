//! The keys of a batch's body: a JSON array, NDJSON, or text lines.

use axum::http::StatusCode;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING};

use super::lines::LineSplitter;
use super::sink::KeySink;
use super::{json, ndjson};
use crate::http::problem::Problem;
use crate::key::KeyForm;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
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
}

/// BatchReservation that is made for a body because it says that it will need it.
const MAX_INITIAL_CAPACITY: usize = 1 << 20;

/// A body on its way to its keys, piece by piece. LineSplitter are handed over as soon as they are whole; an array is one document, which is not known to be one before
/// its end.
pub(super) enum KeyReader {
    Json(Vec<u8>),
    Ndjson(LineSplitter),
    Text(LineSplitter),
}

impl KeyReader {
    /// `form`: of a keyspace of form `bytes` a line of text may begin with anything. `bytes`: how long the body is, as far as that is known.
    pub(super) fn new(format: Format, form: KeyForm, bytes: usize) -> Self {
        match format {
            Format::Json => Self::Json(Vec::with_capacity(bytes.min(MAX_INITIAL_CAPACITY))),
            // JSON is text, whatever its keys are.
            Format::Ndjson => Self::Ndjson(LineSplitter::new(KeyForm::Text)),
            Format::Text => Self::Text(LineSplitter::new(form)),
        }
    }

    /// Hands over the keys that are whole with this piece, in their order and as bytes. Fails where there are more than may be, or where the body is none of its
    /// format: keys before that have been handed over then.
    pub(super) fn piece<F: FnMut(&[u8])>(&mut self, piece: &[u8], keys: &mut KeySink<F>) -> Result<(), Problem> {
        match self {
            Self::Json(document) => document.extend_from_slice(piece),
            Self::Ndjson(lines) => lines.piece(piece, |number, line| ndjson::key(number, line, keys))?,
            Self::Text(lines) => lines.piece(piece, |_, line| keys.push(line))?,
        }
        Ok(())
    }

    /// As [`piece`](Self::piece), with the body's end.
    pub(super) fn end<F: FnMut(&[u8])>(self, keys: &mut KeySink<F>) -> Result<(), Problem> {
        match self {
            Self::Json(document) => json::keys(KeyForm::Text.without_mark(&document), keys),
            Self::Ndjson(mut lines) => lines.end_line(|number, line| ndjson::key(number, line, keys)),
            Self::Text(mut lines) => Ok(lines.end_line(|_, line| keys.push(line))?),
        }
    }
}

/// Refuses bodies that are compressed: as they are they could be taken for keys of form `bytes`, and the true ones would not be announced.
pub(super) fn require_uncompressed(headers: &HeaderMap) -> Result<(), Problem> {
    let all = |name, plain: &str| {
        headers.get_all(name).into_iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(plain.as_bytes()))
    };
    if all(CONTENT_ENCODING, "identity") && all(TRANSFER_ENCODING, "chunked") {
        return Ok(());
    }
    let problem =
        not_a_batch("Coding of the body is not supported", "batches are sent as they are, without content-encoding");
    Err(problem.header(ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}

fn not_a_batch(title: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-a-batch", title, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, in whatever pieces it comes.
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
