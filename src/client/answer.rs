//! An answer, read as it comes.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, HeaderMap, HeaderName, TRANSFER_ENCODING};
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
            _ if status.is_redirection() => {
                ClientError::Invalid(format!("{origin} answered {status}, and redirects are not followed"))
            }
            _ => ClientError::Invalid(format!("{origin} answered {status}")),
        }
    }

    /// Whether the body tells where it ends. One that ends with its connection looks the same when the server has died in the middle of it.
    ///
    /// Under a transfer coding that does not end with chunks it does so, whatever length is announced beside it.
    #[must_use]
    pub fn tells_its_end(&self) -> bool {
        self.body.size_hint().exact().is_some()
            || listed(&self.headers, &TRANSFER_ENCODING).last().is_some_and(is_chunked)
    }

    /// The coding of its body, where that is not plain.
    #[must_use]
    pub fn coding(&self) -> Option<&str> {
        let codings = listed(&self.headers, &CONTENT_ENCODING).chain(listed(&self.headers, &TRANSFER_ENCODING));
        codings.filter(|coding| !is_chunked(coding)).find(|coding| !coding.eq_ignore_ascii_case("identity"))
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

/// What headers of this name list.
fn listed<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lists = headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or("of an unreadable name"));
    lists.flat_map(|list| list.split(',')).map(str::trim).filter(|item| !item.is_empty())
}

fn is_chunked(coding: &str) -> bool {
    coding.eq_ignore_ascii_case("chunked")
}
