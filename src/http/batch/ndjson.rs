//! Bodies of one JSON document a line: a string, an integer, or `{"key": …}`.

use serde::Deserialize;

use super::json::OwnedKey;
use super::plain;
use super::sink::{KeySink, bad_body};
use crate::http::problem::Problem;

pub(super) fn key<F: FnMut(&[u8])>(number: usize, line: &[u8], keys: &mut KeySink<F>) -> Result<(), Problem> {
    if let Some(key) = plain::line(line) {
        return Ok(keys.push(key)?);
    }
    let key = parse_line(line).map_err(|e| bad_body(format!("line {number}: {e}")))?;
    Ok(keys.push(&key)?)
}

/// Parses any line with `serde_json`.
pub(super) fn parse_line(line: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let (JsonLine::Bare(OwnedKey(key)) | JsonLine::Object { key: OwnedKey(key) }) = serde_json::from_slice(line)?;
    Ok(key)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string, an integer or {\"key\": ...}")]
enum JsonLine {
    Bare(OwnedKey),
    Object { key: OwnedKey },
}
