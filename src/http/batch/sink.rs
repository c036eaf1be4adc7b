//! Where the readers of a batch put its keys.

use axum::http::StatusCode;

use crate::http::problem::Problem;

/// Passes keys on, up to a limit.
pub(super) struct KeySink<F> {
    take: F,
    count: usize,
    limit: usize,
}

impl<F: FnMut(&[u8])> KeySink<F> {
    pub(super) const fn new(take: F, limit: usize) -> Self {
        Self { take, count: 0, limit }
    }

    /// Passes a key on.
    #[inline]
    pub(super) fn push(&mut self, key: &[u8]) -> Result<(), TooMany> {
        if self.count == self.limit {
            return Err(TooMany(self.limit));
        }
        self.count += 1;
        (self.take)(key);
        Ok(())
    }

    /// Number of keys so far.
    pub(super) const fn count(&self) -> usize {
        self.count
    }
}

/// The batch has more keys than `server.max_batch_keys`, which is this value.
pub(super) struct TooMany(usize);

impl From<TooMany> for Problem {
    fn from(TooMany(limit): TooMany) -> Self {
        let detail = format!("the batch has more keys than server.max_batch_keys = {limit}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-many-keys", "Too many keys", detail).member("limit", limit as u64)
    }
}

pub(super) fn bad_body(detail: String) -> Problem {
    Problem::bad_request("bad-body", "Malformed request body", detail)
}
