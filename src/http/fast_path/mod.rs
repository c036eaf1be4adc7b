//! The fast path: answers requests in front of hyper if the answer needs no waiting. These are absences from the
//! filter, checks, hot values, and lookups in a key set.
//!
//! Such an answer takes less time than the way of its request through hyper and the layers. So the [`FastPath`] reads
//! the head of each HTTP/1.1 request and answers it if it can. Otherwise the request goes on to hyper untouched. It
//! does what the layers do: it checks the token and the host, counts the response, and turns a panic into a 500.
//! Requests with options or bodies, rejected requests, and HTTP/2 are left to the layers.
//!
//! Hand-written on purpose: a tower service behind hyper was measured slower than nginx (`docs/benchmarks.md`).

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

/// Answers requests for single keys whose answer needs no waiting.
#[derive(Debug)]
pub struct FastResponder {
    context: Arc<HttpContext>,
    access: AccessPolicy,
}

impl FastResponder {
    /// Creates the responder of the data listener.
    #[must_use]
    pub fn new(context: Arc<HttpContext>) -> Self {
        let access = AccessPolicy::for_data(&context.settings);
        Self { context, access }
    }

    /// Writes the response. Returns false, with nothing written or counted, if hyper and the layers must answer.
    fn answer(&self, head: &RequestHead<'_>, response: &mut ResponseBuffer) -> bool {
        if !self.access.admits_read(head.authorization, head.host) {
            return false;
        }
        let Some(path) = KeyPath::parse(head.path) else { return false };
        let Some(status) = catch_panics(response, |response| self.respond(&path, response)) else { return false };
        self.context.metrics.http.request(path.resource.route(), Method::Get, status.as_u16());
        true
    }

    /// Reserves a large value in the budget until the client has read it.
    fn reserve_value(&self, lookup: &mut Lookup) -> Result<(), Overloaded> {
        if let Ok(Answer { value: Some(value), .. }) = &mut lookup.answer
            && value.body.len() > SMALL
        {
            value.body = self.reserve_bytes(std::mem::take(&mut value.body))?;
        }
        Ok(())
    }

    /// Reserves bytes in the budget until their last part is dropped.
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
    // Unwind safe: the request's own state is dropped, and what it has written is truncated.
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
