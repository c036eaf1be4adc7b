//! Limits the length and the pace of request bodies.

use std::sync::Arc;

use axum::http::Request;
use axum::http::header::CONTENT_LENGTH;
use http_body_util::Limited;

use super::admission::Admission;
use super::body_rate::PacedBody;
use crate::buffers::Buffers;
use crate::http::problem::Problem;

/// Rejects a request with 413 if it declares a body longer than `server.max_body_bytes`.
///
/// A body without a declared length fails at the limit, and a body that arrives too slowly fails as [`PacedBody`] says.
/// [`Problem::from_body_error`] knows both errors.
#[derive(Debug)]
pub(in crate::http) struct BodyLimit {
    bytes: u64,
    buffers: Arc<Buffers>,
}

impl BodyLimit {
    pub(in crate::http) fn new(bytes: u64, buffers: &Arc<Buffers>) -> Self {
        Self { bytes, buffers: Arc::clone(buffers) }
    }
}

impl<B> Admission<B> for BodyLimit {
    type Body = PacedBody<Limited<B>>;

    #[inline]
    fn admit(&self, request: Request<B>) -> Result<Request<Self::Body>, Problem> {
        let length = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.bytes) {
            return Err(Problem::body_too_large(self.bytes));
        }
        let limit = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        Ok(request.map(|body| PacedBody::new(Limited::new(body, limit), Arc::clone(&self.buffers))))
    }
}
