//! Bodies of one key a line.

use super::format::Counted;
use crate::http::problem::Problem;

pub(super) fn keys<F: FnMut(&[u8])>(body: &[u8], mut keys: Counted<F>) -> Result<(), Problem> {
    lines(body).try_for_each(|(_, line)| Ok(keys.push(line)?))
}

/// Lines with their number, without those that are empty.
pub(super) fn lines(body: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let ends = memchr::memchr_iter(b'\n', body).chain([body.len()]);
    let mut start = 0;
    let lines = ends.map(move |end| &body[std::mem::replace(&mut start, end + 1)..end]);
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.is_empty())
}
