//! Writes responses as HTTP/1.1 bytes (RFC 9112).
//!
//! [`answer`] decides what a response says; this module only encodes it. The head of a response without a body of its
//! own changes only with the filter's generation (and its date), so encoded heads are cached.

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

/// Cached heads. A keyspace uses three or four at a time.
const MAX_CACHED_HEADS: usize = 64;
/// Larger values are not copied into the buffer.
const MAX_COPIED_BYTES: usize = 4 << 10;

/// Responses that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct ResponseBuffer {
    bytes: Vec<u8>,
    /// A large value that follows `bytes`. Nothing may be appended before it is taken.
    value: Bytes,
    heads: Vec<CachedHead>,
    date: DateHeader,
}

/// An encoded head, without the date and what depends on the value.
#[derive(Debug)]
struct CachedHead {
    key: HeadKey,
    head: Box<[u8]>,
}

/// Everything that a cached head depends on.
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

    /// Whether the buffer should be sent before more is appended.
    pub(super) fn is_long(&self) -> bool {
        !self.value.is_empty() || self.bytes.len() > 16 * MAX_COPIED_BYTES
    }

    /// The current length, for [`truncate_to`](Self::truncate_to). Valid as long as no large value was written before.
    pub(super) fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Discards what was written after the mark.
    pub(super) fn truncate_to(&mut self, mark: usize) {
        self.bytes.truncate(mark);
        self.value = Bytes::new();
    }

    /// Returns the buffer and the large value behind it.
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

    /// Appends a response that is not cached.
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
            // Moves heads in demand to the front.
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

/// Content-Length is written with the body.
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

/// The `Date` header, formatted once a second.
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
            // Writing to a vector can't fail.
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

    /// Everything that was written, without dates, with each head's lines sorted.
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
            // The second time the head comes from the cache.
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
