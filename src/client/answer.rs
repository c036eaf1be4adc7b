//! An answer, read as it comes.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use hyper::{Response, StatusCode};

use super::ClientError;
use super::pool::Lease;

/// Memory that is set aside before any of a body has come.
const FIRST_ALLOCATION: u64 = 64 * 1024;

/// An answer whose body may still be on its way. Dropped before its end, its connection is closed.
#[derive(Debug)]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    origin: String,
    /// Given back at the body's end.
    lease: Option<Lease>,
}

impl Answer {
    pub(super) fn new(response: Response<Incoming>, origin: String, lease: Lease) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, headers: head.headers, body, origin, lease: Some(lease) }
    }

    /// Its status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Its headers.
    #[must_use]
    pub const fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Where it comes from, as messages name it.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// What its status means to whoever hoped for another one. Redirects are not followed: an answer must not choose where the next request goes.
    #[must_use]
    pub fn refusal(&self) -> ClientError {
        let (origin, status) = (&self.origin, self.status);
        match status {
            StatusCode::TOO_MANY_REQUESTS => ClientError::Unavailable(format!("{origin} answered {status}")),
            _ if status.is_server_error() => ClientError::Unavailable(format!("{origin} answered {status}")),
            _ if status.is_redirection() => ClientError::Invalid(format!("{origin} answered {status}, and redirects are not followed")),
            _ => ClientError::Invalid(format!("{origin} answered {status}")),
        }
    }

    /// Whether the body tells where it ends. One that ends with its connection looks the same when the server has died in the middle of it.
    #[must_use]
    pub fn tells_its_end(&self) -> bool {
        self.headers.contains_key(CONTENT_LENGTH) || self.headers.contains_key(TRANSFER_ENCODING) || self.body.is_end_stream()
    }

    /// The coding of its body, where that is not plain.
    #[must_use]
    pub fn coding(&self) -> Option<&str> {
        let coding = self.headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("of an unreadable name");
        (!coding.eq_ignore_ascii_case("identity")).then_some(coding)
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// [`ClientError`] where it broke off: before as many bytes as were announced, or without its last chunk.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            match frame.map(|frame| frame.into_data()) {
                Ok(Ok(data)) => return Ok(Some(data)),
                // Trailers say nothing that anybody asked for.
                Ok(Err(_)) => {}
                Err(error) => return Err(ClientError::of(&self.origin, &error)),
            }
        }
        if let Some(lease) = self.lease.take() {
            lease.finish();
        }
        Ok(None)
    }

    /// Reads a body that nobody wants, so that its connection can be used again. One of more than `limit` bytes is not worth that.
    ///
    /// # Errors
    /// As for [`Answer::chunk`].
    pub async fn skip(mut self, limit: u64) -> Result<(), ClientError> {
        let mut read = 0;
        while let Some(data) = self.chunk().await? {
            read += data.len() as u64;
            if read > limit {
                break;
            }
        }
        Ok(())
    }

    /// The whole body, in memory of its own: what is kept for long must not hold on to a connection's buffer.
    ///
    /// # Errors
    /// As for [`Answer::chunk`]; [`ClientError::Invalid`] where it is longer than `limit` bytes.
    pub async fn body(mut self, limit: u64) -> Result<Bytes, ClientError> {
        let announced = self.body.size_hint().lower();
        let too_long = |origin: &str| ClientError::Invalid(format!("{origin}: the body is longer than {limit} bytes"));
        if announced > limit {
            return Err(too_long(&self.origin));
        }
        let mut body = Vec::with_capacity(usize::try_from(announced.min(FIRST_ALLOCATION)).unwrap_or_default());
        while let Some(data) = self.chunk().await? {
            if (body.len() + data.len()) as u64 > limit {
                return Err(too_long(&self.origin));
            }
            body.extend_from_slice(&data);
        }
        body.shrink_to_fit();
        Ok(Bytes::from(body))
    }
}
