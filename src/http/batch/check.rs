//! `POST /v1/check/{ks}`: asks the filter only.

use std::io::Write;

use axum::http::header::{ACCEPT, HeaderMap};
use bytes::Bytes;
use hyper::body::Body;

use super::{BatchRequest, hold};
use crate::http::BoxError;
use crate::http::answer::{self, DataResponse};
use crate::http::options::unapplied_version;
use crate::http::problem::Problem;
use crate::keyspace::Checked;

/// Asks the filter for all keys. Returns the indices of absent keys, or one bit per key.
pub(in crate::http) async fn check<B>(
    request: BatchRequest<'_, B>,
    headers: &HeaderMap,
) -> Result<DataResponse, Problem>
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    let keyspace = &request.served.keyspace;
    let mut check = keyspace.begin_check(request.expected_keys()).map_err(|e| Problem::from(&e))?;
    let reserved = request.every_key(|raw| check.add(raw)).await?;
    // Before the filter is asked, as for a single key.
    let as_maybe = unapplied_version(headers, |version| keyspace.has_applied(version));
    let mut checked = check.finish();
    if as_maybe {
        checked.doubt_all();
    }
    let (state, generation) = (checked.state, checked.generation);
    let binary = headers
        .get(ACCEPT)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|accept| accept.contains("application/octet-stream"));
    let (media_type, body) = if binary {
        ("application/octet-stream", checked.into_bits())
    } else {
        ("application/json", document(&checked))
    };
    Ok(answer::batch(media_type, hold(reserved, body)?, state, generation))
}

/// `{"absent":[…],"checked":…,"generation":…,"state":"…"}`.
fn document(checked: &Checked) -> Vec<u8> {
    let mut body = b"{\"absent\":[".to_vec();
    write_list(&mut body, checked.absent(), checked.absent_count(), checked.checked);
    let Checked { checked, generation, state, .. } = checked;
    // Writing to a vector can't fail.
    let _ = write!(body, "],\"checked\":{checked},\"generation\":{generation},\"state\":\"{state}\"}}");
    body
}

/// Writes `count` ascending numbers, none above `most`, separated by commas.
///
/// A call per number would take longer than the filter. So each number is written as a word of fixed length, and the
/// next one overwrites the excess.
fn write_list(body: &mut Vec<u8>, numbers: impl Iterator<Item = usize>, count: usize, most: usize) {
    const WORD: usize = size_of::<u128>();
    // Length of the longest number with its comma.
    let each = most.checked_ilog10().unwrap_or(0) as usize + 2;
    let mut end = body.len();
    body.resize(end + count * each + WORD, 0);
    let mut tens = Digits::of(0);
    numbers.for_each(|number| {
        if tens.number != number / 10 {
            tens = Digits::of(number / 10);
        }
        let last = u16::from_le_bytes([b'0' + (number % 10) as u8, b',']);
        let word = tens.text | u128::from(last) << (8 * tens.count);
        body[end..end + WORD].copy_from_slice(&word.to_le_bytes());
        end += tens.count + 2;
    });
    body.truncate(end);
    _ = body.pop_if(|last| *last == b',');
}

/// A number as decimal text, the first digit in the lowest byte; no digits for 0, because no number begins with it.
/// More numbers than fit are more keys than any memory holds.
struct Digits {
    number: usize,
    text: u128,
    count: usize,
}

impl Digits {
    fn of(number: usize) -> Self {
        let (mut text, mut count, mut rest) = (0, 0, number);
        while rest > 0 {
            text = text << 8 | u128::from(b'0' + (rest % 10) as u8);
            (rest, count) = (rest / 10, count + 1);
        }
        Self { number, text, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_as_serde_json_writes_them() {
        let around = |number: usize| number.saturating_sub(2)..number + 13;
        let ends = (0..14).map(|zeros| 10_usize.pow(zeros));
        let sparse: Vec<usize> =
            ends.clone().flat_map(around).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
        let lists = ends.map(|end| around(end).collect()).chain([
            sparse,
            (0..12_345).collect(),
            (0..99_999).step_by(7).collect(),
            vec![],
            vec![0],
        ]);
        for list in lists {
            let mut body = b"[".to_vec();
            write_list(&mut body, list.iter().copied(), list.len(), list.last().copied().unwrap_or(0));
            body.push(b']');
            assert_eq!(String::from_utf8(body).unwrap(), serde_json::to_string(&list).unwrap());
        }
    }
}
