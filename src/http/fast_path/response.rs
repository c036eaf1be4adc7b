//! Answers as the bytes that go over a connection of HTTP/1.1 (RFC 9112).
//!
//! What they say is decided where every answer is made, in [`answer`]; here it is written down. Of an answer without a body of its own, all but the date is
//! the same for as long as a filter lasts, so that its text is heads.

use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use httpdate::HttpDate;
use hyper::body::Body;

use crate::http::answer::{self, AnswerOptions, DataResponse};
use crate::keyspace::{Answer, Lookup, Probe};
use crate::labels::{Source, Verdict};

/// Texts that are heads: for each keyspace some three or four are in demand.
const MAX_CACHED_HEADS: usize = 64;
/// Longer values are not copied.
const MAX_COPIED_BYTES: usize = 4 << 10;

/// What clients are to be sent, in pieces.
#[derive(Debug, Default)]
pub(super) struct ResponseBuffer {
    bytes: Vec<u8>,
    /// The value behind `bytes`, where it is long: nothing may be written before it is taken.
    value: Bytes,
    heads: Vec<CachedHead>,
    date: DateHeader,
}

/// The head of an answer but for what depends on its value, and its date.
#[derive(Debug)]
struct CachedHead {
    key: HeadKey,
    head: Box<[u8]>,
}

/// All that such a head depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeadKey {
    status: StatusCode,
    probe: Probe,
    source: Source,
    options: AnswerOptions,
}

impl ResponseBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.value.is_empty()
    }

    /// Whether this is enough to be sent first.
    pub(super) fn is_long(&self) -> bool {
        !self.value.is_empty() || self.bytes.len() > 16 * MAX_COPIED_BYTES
    }

    /// Where this is, to come back to: for who was interrupted, and had written no long value before.
    pub(super) fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets what was written since.
    pub(super) fn truncate_to(&mut self, mark: usize) {
        self.bytes.truncate(mark);
        self.value = Bytes::new();
    }

    /// Hands out what has been written.
    pub(super) fn take(&mut self) -> (&mut Vec<u8>, Bytes) {
        (&mut self.bytes, std::mem::take(&mut self.value))
    }

    pub(super) fn lookup(&mut self, lookup: Lookup, options: AnswerOptions) -> StatusCode {
        let Lookup { probe, answer: Ok(Answer { value, source, stale: None }) } = lookup else {
            return self.push_response(answer::lookup(lookup, options));
        };
        let status = if value.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let key = HeadKey { status, probe, source, options };
        self.head(key, || answer::lookup(Lookup { probe, answer: Ok(Answer::fresh(value.clone(), source)) }, options));
        if let Some(value) = &value {
            write_header(&mut self.bytes, CONTENT_TYPE.as_str(), value.content_type.header().as_bytes());
        }
        self.body(value.map_or_else(Bytes::new, |value| value.body));
        status
    }

    pub(super) fn check(&mut self, probe: Probe, options: AnswerOptions) -> StatusCode {
        let absent = probe.effective() == Verdict::Absent;
        let status = if absent { StatusCode::NOT_FOUND } else { StatusCode::NO_CONTENT };
        self.head(HeadKey { status, probe, source: Source::Filter, options }, || answer::check(probe, false, options));
        if absent {
            self.body(Bytes::new())
        } else {
            self.end()
        }
        status
    }

    /// An answer of its own.
    pub(super) fn push_response(&mut self, response: DataResponse) -> StatusCode {
        write_head(&mut self.bytes, response.status(), response.headers());
        let status = response.status();
        let mut body = response.into_body();
        let body = match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            _ => Bytes::new(),
        };
        self.body(body);
        status
    }

    fn head(&mut self, key: HeadKey, make: impl FnOnce() -> DataResponse) {
        if let Some(place) = self.heads.iter().position(|heads| heads.key == key) {
            self.bytes.extend_from_slice(&self.heads[place].head);
            // Those in demand come first.
            self.heads.swap(place, place / 2);
            return;
        }
        let mut response = make();
        response.headers_mut().remove(CONTENT_TYPE);
        let mut head = Vec::new();
        write_head(&mut head, response.status(), response.headers());
        self.bytes.extend_from_slice(&head);
        if self.heads.len() == MAX_CACHED_HEADS {
            self.heads.pop();
        }
        self.heads.push(CachedHead { key, head: head.into() });
    }

    fn body(&mut self, body: Bytes) {
        write_header(&mut self.bytes, CONTENT_LENGTH.as_str(), itoa::Buffer::new().format(body.len()).as_bytes());
        self.end();
        if body.len() > MAX_COPIED_BYTES {
            self.value = body;
        } else {
            self.bytes.extend_from_slice(&body);
        }
    }

    fn end(&mut self) {
        self.bytes.extend_from_slice(self.date.now());
        self.bytes.extend_from_slice(b"\r\n\r\n");
    }
}

/// A length is written with the body.
fn write_head(bytes: &mut Vec<u8>, status: StatusCode, headers: &HeaderMap) {
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    bytes.extend_from_slice(b"\r\n");
    for (name, value) in headers.iter().filter(|(name, _)| *name != CONTENT_LENGTH) {
        write_header(bytes, name.as_str(), value.as_bytes());
    }
}

fn write_header(bytes: &mut Vec<u8>, name: &str, value: &[u8]) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(b": ");
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
}

/// The header `DateHeader`, made anew each second.
#[derive(Debug, Default)]
struct DateHeader {
    second: Option<Duration>,
    text: Vec<u8>,
}

impl DateHeader {
    fn now(&mut self) -> &[u8] {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = Duration::from_secs(since.as_secs());
        if self.second != Some(second) {
            self.second = Some(second);
            self.text.clear();
            // A vector takes all that is written.
            let _ = write!(self.text, "date: {}", HttpDate::from(UNIX_EPOCH + second));
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{ContentType, Value};
    use crate::labels::State;

    /// All that was written, without dates, each head's lines in order.
    fn written(text: &mut ResponseBuffer) -> Vec<String> {
        let (bytes, value) = text.take();
        let all = [std::mem::take(bytes), value.to_vec()].concat();
        let mut lines: Vec<String> = String::from_utf8(all).unwrap().split("\r\n").map(str::to_owned).collect();
        lines.retain(|line| !line.starts_with("date: "));
        lines.sort();
        lines
    }

    #[test]
    fn a_head_is_kept_for_those_who_are_told_the_same_and_for_nobody_else() {
        let long = "long".repeat(MAX_COPIED_BYTES);
        let values = [None, Some(""), Some("short"), Some(&*long)];
        let mut text = ResponseBuffer::default();
        for n in 0..256_usize {
            let is = |bit: usize| n >> bit & 1 == 1;
            let verdict = if is(0) { Verdict::Absent } else { Verdict::Maybe };
            let probe = Probe {
                verdict,
                state: if is(1) { State::Enforcing } else { State::Shadow },
                enforced: is(2),
                generation: 7 + u64::from(is(3)),
            };
            let options = AnswerOptions { bypass: false, cache_status: is(4) };
            let source = if is(5) { Source::Hot } else { Source::Filter };
            let content_type = if is(0) { ContentType::Json } else { ContentType::OctetStream };
            let value = values[n >> 6].map(|body| Value {
                body: Bytes::copy_from_slice(body.as_bytes()),
                content_type: content_type.clone(),
            });
            let lookup = || Lookup { probe, answer: Ok(Answer::fresh(value.clone(), source)) };
            text.push_response(answer::lookup(lookup(), options));
            let expected = written(&mut text);
            // The second is of a head that is heads.
            for _ in 0..2 {
                text.lookup(lookup(), options);
                assert_eq!(written(&mut text), expected, "{probe:?} {source} {options:?}");
            }
            text.check(probe, options);
            let status = answer::check(probe, false, options).status();
            assert!(written(&mut text).iter().any(|line| *line == format!("HTTP/1.1 {status}")), "{probe:?}");
            assert!(text.heads.len() <= MAX_CACHED_HEADS);
        }
    }

    #[test]
    fn a_date_lasts_a_second() {
        let mut date = DateHeader { second: Some(Duration::from_secs(7)), text: b"date: of long ago".to_vec() };
        let now = SystemTime::now() - Duration::from_secs(1);
        let text = std::str::from_utf8(date.now()).unwrap().strip_prefix("date: ").unwrap();
        assert!(httpdate::parse_http_date(text).unwrap() >= now, "{text}");
    }
}
