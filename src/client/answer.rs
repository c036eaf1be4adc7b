//! A response whose body is read as it arrives.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, HeaderMap, HeaderName, TRANSFER_ENCODING};
use hyper::{Response, StatusCode};

use super::ClientError;
use super::connect::OriginConnector;
use crate::pool::PooledConnection;

/// Memory that is reserved before the first byte of a body.
const FIRST_ALLOCATION: u64 = 64 * 1024;

/// A response whose body may still arrive. Its connection closes if it is dropped before the end.
#[derive(Debug)]
pub struct ClientResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    origin: String,
    /// Returned to the pool at the body's end.
    connection: Option<PooledConnection<OriginConnector>>,
}

impl ClientResponse {
    pub(super) fn new(
        response: Response<Incoming>,
        origin: String,
        connection: PooledConnection<OriginConnector>,
    ) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, headers: head.headers, body, origin, connection: Some(connection) }
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

    /// Its origin, as messages name it.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The error for a caller that needed another status. Redirects are not followed: a response must not choose where
    /// the next request goes.
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

    /// Returns true if the body marks its end. A body that ends with its connection looks complete even if the server
    /// died in the middle.
    ///
    /// Under a transfer coding other than `chunked` it ends with its connection, whatever its length header says.
    #[must_use]
    pub fn tells_its_end(&self) -> bool {
        self.body.size_hint().exact().is_some()
            || listed(&self.headers, &TRANSFER_ENCODING).last().is_some_and(is_chunked)
    }

    /// The coding of its body; `None` for a plain body.
    #[must_use]
    pub fn coding(&self) -> Option<&str> {
        let codings = listed(&self.headers, &CONTENT_ENCODING).chain(listed(&self.headers, &TRANSFER_ENCODING));
        codings.filter(|coding| !is_chunked(coding)).find(|coding| !coding.eq_ignore_ascii_case("identity"))
    }

    /// The next part of the body; `None` at its end.
    ///
    /// # Errors
    /// [`ClientError`] if the body broke off: before its length, or without its last chunk.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            match frame.map(|frame| frame.into_data()) {
                Ok(Ok(data)) => return Ok(Some(data)),
                // Trailers are ignored.
                Ok(Err(_)) => {}
                Err(error) => return Err(ClientError::of(&self.origin, &error)),
            }
        }
        if let Some(connection) = self.connection.take() {
            connection.finish();
        }
        Ok(None)
    }

    /// Reads and discards the body, so that its connection can be reused. Stops after more than `limit` bytes.
    ///
    /// # Errors
    /// As for [`ClientResponse::chunk`].
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

    /// The whole body, in memory of its own: a value that is kept must not hold a connection's buffer.
    ///
    /// # Errors
    /// As for [`ClientResponse::chunk`]; [`ClientError::Invalid`] if it is longer than `limit` bytes.
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

/// The items of all headers of this name.
fn listed<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let lists = headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or("of an unreadable name"));
    lists.flat_map(|list| list.split(',')).map(str::trim).filter(|item| !item.is_empty())
}

fn is_chunked(coding: &str) -> bool {
    coding.eq_ignore_ascii_case("chunked")
}
