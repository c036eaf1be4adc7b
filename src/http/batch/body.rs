//! The keys of a batch's body: a JSON array, NDJSON, or text lines.

use axum::http::StatusCode;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

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

    /// The keys in their order, as bytes; none where there are more than `limit`. Of a keyspace of form `bytes` a line may begin with anything.
    pub(super) fn keys(self, body: &[u8], limit: usize, form: KeyForm) -> Result<Vec<Vec<u8>>, Problem> {
        let body = match self {
            Self::Text => form.without_mark(body),
            // JSON is text, whatever its keys are.
            Self::Json | Self::Ndjson => KeyForm::Text.without_mark(body),
        };
        let mut keys = Keys { keys: Vec::new(), limit };
        match self {
            Self::Json => keys.json(body)?,
            Self::Ndjson => lines(body).try_for_each(|(number, line)| keys.ndjson(number, line))?,
            Self::Text => lines(body).try_for_each(|(_, line)| keys.push(line.to_vec()))?,
        }
        Ok(keys.keys)
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

/// Lines with their number, without those that are empty.
fn lines(body: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = body.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.is_empty())
}

struct Keys {
    keys: Vec<Vec<u8>>,
    limit: usize,
}

impl Keys {
    fn push(&mut self, key: Vec<u8>) -> Result<(), Problem> {
        if self.keys.len() == self.limit {
            return Err(too_many(self.limit));
        }
        self.keys.push(key);
        Ok(())
    }

    fn ndjson(&mut self, number: usize, line: &[u8]) -> Result<(), Problem> {
        let key: Line = serde_json::from_slice(line).map_err(|e| bad_body(format!("line {number}: {e}")))?;
        self.push(key.into())
    }

    fn json(&mut self, body: &[u8]) -> Result<(), Problem> {
        let mut deserializer = serde_json::Deserializer::from_slice(body);
        let read = deserializer.deserialize_seq(Array(self)).and_then(|full| deserializer.end().map(|()| full));
        match read {
            Ok(false) => Ok(()),
            Ok(true) => Err(too_many(self.limit)),
            // What came before the limit was fine, so the limit is what is wrong.
            Err(_) if self.keys.len() == self.limit => Err(too_many(self.limit)),
            Err(error) => Err(bad_body(error.to_string())),
        }
    }
}

/// Fills the keys from a JSON array and stops at the limit; says whether there were more.
struct Array<'a>(&'a mut Keys);

impl<'de> Visitor<'de> for Array<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array of strings or integers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<bool, A::Error> {
        while let Some(Raw(key)) = array.next_element()? {
            if self.0.keys.len() == self.0.limit {
                return Ok(true);
            }
            self.0.keys.push(key);
        }
        Ok(false)
    }
}

/// A key of a JSON document: a string or an integer.
struct Raw(Vec<u8>);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl Visitor<'_> for Key {
            type Value = Raw;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or an integer as key")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Raw, E> {
                Ok(Raw(text.as_bytes().to_vec()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Raw, E> {
                Ok(Raw(number.to_string().into_bytes()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Raw, E> {
                Ok(Raw(number.to_string().into_bytes()))
            }
        }
        deserializer.deserialize_any(Key)
    }
}

/// A line of NDJSON.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string, an integer or {\"key\": ...}")]
enum Line {
    Bare(Raw),
    Object { key: Raw },
}

impl From<Line> for Vec<u8> {
    fn from(line: Line) -> Self {
        let (Line::Bare(key) | Line::Object { key }) = line;
        key.0
    }
}

fn not_a_batch(title: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-a-batch", title, detail)
}

fn bad_body(detail: String) -> Problem {
    Problem::bad_request("bad-body", "Request body does not fit", detail)
}

fn too_many(limit: usize) -> Problem {
    let detail = format!("the batch has more keys than server.max_batch_keys = {limit}");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-many-keys", "Too many keys", detail).member("limit", limit as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: Format, body: &str) -> Result<Vec<String>, String> {
        let keys = format.keys(body.as_bytes(), 3, KeyForm::Text).map_err(|problem| format!("{problem:?}"))?;
        Ok(keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect())
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
        let bytes = Format::Text.keys(b"\xef\xbb\xbfa", 3, KeyForm::Bytes).unwrap();
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
            (Format::Ndjson, "1\n2\n3\n4"),
            (Format::Text, "1\n2\n3\n4"),
        ] {
            let problem = read(format, body).unwrap_err();
            assert!(problem.contains("too-many-keys") && problem.contains("max_batch_keys = 3"), "{problem}");
        }
    }
}
