//! Bodies of one JSON document a line: a string, an integer, or `{"key": …}`.

use serde::Deserialize;

use super::format::{Counted, bad_body};
use super::json::Raw;
use super::plain;
use crate::http::problem::Problem;

pub(super) fn key<F: FnMut(&[u8])>(number: usize, line: &[u8], keys: &mut Counted<F>) -> Result<(), Problem> {
    if let Some(key) = plain::line(line) {
        return Ok(keys.push(key)?);
    }
    let key = slowly(line).map_err(|e| bad_body(format!("line {number}: {e}")))?;
    Ok(keys.push(&key)?)
}

/// The key of any line.
pub(super) fn slowly(line: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let (Line::Bare(Raw(key)) | Line::Object { key: Raw(key) }) = serde_json::from_slice(line)?;
    Ok(key)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string, an integer or {\"key\": ...}")]
enum Line {
    Bare(Raw),
    Object { key: Raw },
}
