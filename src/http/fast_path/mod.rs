//! Answers that wait for nothing, given where their requests arrive: what the filter calls absent, what it is asked alone, what the hot tier holds, and what
//! a set in memory answers.
//!
//! Such an answer takes less time than its request takes through hyper and the layers. So the [`FastPath`] in front of hyper looks at the head of each request over
//! HTTP/1.1, and answers it from there; whatever it does not answer goes on as if it had not been looked at. What the layers do, it does too: it demands the
//! token and the host, it counts the answer, a panic ends the request and nothing else. Requests with options or bodies, requests that are refused, and HTTP/2, are left to them.

mod head;
mod response;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;

use self::head::RequestHead;
use self::response::ResponseBuffer;
pub(super) use self::stream::FastPath;
use super::context::HttpContext;
use super::key_request::KeyRequest;
use super::middleware::{AccessPolicy, SMALL, internal_error};
use super::path::{KeyPath, Resource};
use super::problem::Problem;
use crate::buffers::{Overloaded, Share};
use crate::keyspace::{Answer, Lookup, LookupOptions};
use crate::labels::BufferRefusal;
use crate::metrics::Method;

/// Answers requests for single keys that wait for nothing.
#[derive(Debug)]
pub struct FastResponder {
    context: Arc<HttpContext>,
    access: AccessPolicy,
}

impl FastResponder {
    /// For the data listener.
    #[must_use]
    pub fn new(context: Arc<HttpContext>) -> Self {
        let access = AccessPolicy::for_data(&context.settings);
        Self { context, access }
    }

    /// Writes the answer; `false`, and nothing written or counted: hyper and the layers are to be asked.
    fn answer(&self, head: &RequestHead<'_>, response: &mut ResponseBuffer) -> bool {
        if !self.access.admits_read(head.authorization, head.host) {
            return false;
        }
        let Some(path) = KeyPath::parse(head.path) else { return false };
        let Some(status) = catch_panics(response, |response| self.respond(&path, response)) else { return false };
        self.context.metrics.http.request(path.resource.route(), Method::Get, status.as_u16());
        true
    }

    /// Reserves a value that is long, until the client has taken it.
    fn reserve_value(&self, lookup: &mut Lookup) -> Result<(), Overloaded> {
        if let Ok(Answer { value: Some(value), .. }) = &mut lookup.answer
            && value.body.len() > SMALL
        {
            value.body = self.reserve_bytes(std::mem::take(&mut value.body))?;
        }
        Ok(())
    }

    /// The same bytes, reserved.
    fn reserve_bytes(&self, bytes: Bytes) -> Result<Bytes, Overloaded> {
        let buffers = &self.context.buffers;
        let reserved = buffers.reserve(Share::Single, bytes.len() as u64);
        Ok(reserved.inspect_err(|_| buffers.refused(BufferRefusal::Response))?.hold(bytes))
    }

    fn respond(&self, path: &KeyPath<'_>, response: &mut ResponseBuffer) -> Option<StatusCode> {
        let KeyRequest { served, key, answer, .. } = KeyRequest::new(&self.context, path).ok()?;
        match path.resource {
            Resource::Keys => {
                let mut lookup = served.keyspace.lookup_at_once(key, LookupOptions::default())?;
                Some(match self.reserve_value(&mut lookup) {
                    Ok(()) => response.lookup(lookup, answer),
                    Err(error) => response.push_response(Problem::from(&error).response()),
                })
            }
            Resource::Check => Some(response.check(served.keyspace.check(&key), answer)),
            Resource::Lookup | Resource::Invalidate => None,
        }
    }
}

fn catch_panics(
    response: &mut ResponseBuffer,
    answer: impl FnOnce(&mut ResponseBuffer) -> Option<StatusCode>,
) -> Option<StatusCode> {
    let mark = response.mark();
    // Unwind safe: what a panic may have left half done is the request's own, and what it has written is taken back.
    catch_unwind(AssertUnwindSafe(|| answer(response))).unwrap_or_else(|panic| {
        response.truncate_to(mark);
        Some(response.push_response(internal_error(Some(&*panic))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::answer;

    #[test]
    fn a_panic_is_an_answer_like_that_of_the_layers() {
        let mut response = ResponseBuffer::default();
        response.push_response(answer::empty(StatusCode::ACCEPTED));
        let half_done = |response: &mut ResponseBuffer| {
            response.push_response(answer::empty(StatusCode::OK).map(|_| vec![b'x'; 1 << 20].into()));
            panic!("as a test wants it")
        };
        assert_eq!(catch_panics(&mut response, half_done), Some(StatusCode::INTERNAL_SERVER_ERROR));
        let (bytes, value) = response.take();
        let written = String::from_utf8(bytes.clone()).unwrap();
        assert!(
            written.starts_with("HTTP/1.1 202 Accepted\r\n") && value.is_empty(),
            "what was written before stays: {written}"
        );
        let written = written.split_once("\r\n\r\n").unwrap().1;
        assert!(
            written.starts_with("HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/problem+json\r\n"),
            "{written}"
        );
        assert!(written.contains("/problems/internal") && !written.contains("as a test wants it"), "{written}");
    }
}
