//! Batches: `POST /v1/keys/{ks}`, `/v1/check/{ks}`, `/v1/lookup/{ks}`, `/v1/invalidate/{ks}`.

mod check;
mod fuzzing;
mod json;
mod lines;
mod lookup;
mod ndjson;
mod plain;
mod reader;
mod reservation;
mod sink;

use std::pin::pin;

use axum::http::StatusCode;
use axum::http::header::HeaderMap;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;

pub(super) use self::check::check;
pub use self::fuzzing::try_batch;
pub(super) use self::lookup::lookup;
pub use self::reader::Format as BatchFormat;
use self::reader::{Format, KeyReader, require_uncompressed};
use self::reservation::BatchReservation;
use self::sink::KeySink;
use super::BoxError;
use super::answer::{self, DataResponse};
use super::context::{HttpContext, HttpSettings, ServedKeyspace};
use super::key_request::find_keyspace;
use super::path::Resource;
use super::problem::Problem;
use crate::buffers::Reservation;
use crate::key::{Key, KeyForm};
use crate::keyspace::ParseError;
use crate::labels::BufferRefusal;

pub(super) const ALLOW: &str = "POST";

/// A batch for a known keyspace in a known format; its body is still arriving.
pub(super) struct BatchRequest<'a, B> {
    pub(super) served: &'a ServedKeyspace,
    format: Format,
    body: B,
    form: KeyForm,
    settings: &'a HttpSettings,
    reservation: BatchReservation,
}

/// Why an element of a batch is not a key. Small, because it is created per key and most batches need no [`Problem`].
enum KeyRejection {
    TooLong { limit: usize },
    Parse(ParseError),
}

impl From<ParseError> for KeyRejection {
    fn from(error: ParseError) -> Self {
        Self::Parse(error)
    }
}

impl From<KeyRejection> for Problem {
    fn from(why: KeyRejection) -> Self {
        match why {
            KeyRejection::TooLong { limit } => Self::key_too_long(limit),
            KeyRejection::Parse(error) => Self::from(&error),
        }
    }
}

impl<'a, B: Body<Data = Bytes, Error = BoxError>> BatchRequest<'a, B> {
    /// Reads the body of a rejected request to its end, because an unread body costs the client its connection. Except
    /// if the budget has no room for it.
    pub(super) async fn new(
        context: &'a HttpContext,
        resource: Resource,
        keyspace: &str,
        headers: &HeaderMap,
        body: B,
    ) -> Result<Self, Problem> {
        let known = || {
            let served = find_keyspace(context, keyspace)?;
            require_uncompressed(headers)?;
            let format = Format::of(headers)?;
            let form = served.keyspace.form().ok_or_else(|| Problem::from(&ParseError::UnknownForm))?;
            Ok((served, format, form))
        };
        match known() {
            Ok((served, format, form)) => {
                let settings = &context.settings;
                let reservation = BatchReservation::new(&context.buffers, resource, format, settings.max_batch_keys);
                reservation.admit(body.size_hint().lower())?;
                Ok(Self { served, format, body, form, settings, reservation })
            }
            Err(problem) => discard(body, context.settings.max_body_bytes).await.and(Err(problem)),
        }
    }

    /// The declared length of the body, else 0.
    fn bytes(&self) -> usize {
        self.body.size_hint().exact().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Upper bound of the keys if the length is declared: in every format a key takes one byte, and one more separates
    /// it from the next.
    fn expected_keys(&self) -> usize {
        (self.bytes() / 2 + 1).min(self.settings.max_batch_keys)
    }

    /// Passes on each key in order as it arrives, raw, or why it is not a key. Fails if the body does not match its
    /// format. Returns what is reserved for the keys.
    async fn each_key(mut self, mut take: impl FnMut(Result<&[u8], KeyRejection>)) -> Result<Reservation, Problem> {
        let HttpSettings { max_batch_keys, max_key_bytes, max_body_bytes, .. } = *self.settings;
        let take = |raw: &[u8]| {
            take(if raw.len() > max_key_bytes { Err(KeyRejection::TooLong { limit: max_key_bytes }) } else { Ok(raw) })
        };
        let mut keys = KeySink::new(take, max_batch_keys);
        let mut reading = KeyReader::new(self.format, self.form, self.bytes());
        let mut body = pin!(self.body);
        let mut came = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Problem::from_body_error(&*error, max_body_bytes))?;
            let Some(piece) = frame.data_ref() else { continue };
            came += piece.len() as u64;
            self.reservation.expect(came)?;
            if let Err(problem) = reading.piece(piece, &mut keys) {
                return discard(body, max_body_bytes).await.and(Err(problem));
            }
        }
        reading.end(&mut keys)?;
        Ok(self.reservation.shrink_to_keys(came, keys.count() as u64))
    }

    /// As [`each_key`](Self::each_key), but the first element that is not a key, or that `take` rejects, rejects the
    /// batch.
    async fn every_key(self, mut take: impl FnMut(&[u8]) -> Result<(), ParseError>) -> Result<Reservation, Problem> {
        let (mut index, mut refused) = (0u64, None);
        // A malformed body is reported before a bad key.
        let each = self.each_key(|raw| {
            if refused.is_none()
                && let Err(why) = raw.and_then(|raw| Ok(take(raw)?))
            {
                refused = Some((index, why));
            }
            index += 1;
        });
        let reserved = each.await?;
        refused.map_or(Ok(reserved), |(index, why)| Err(Problem::from(why).member("index", index)))
    }

    /// Brings all keys into canonical form.
    async fn all_keys(self) -> Result<(&'a ServedKeyspace, Vec<Key>, Reservation), Problem> {
        let (served, mut keys) = (self.served, Vec::new());
        let reserved = self.every_key(|raw| served.keyspace.key(raw).map(|key| keys.push(key))).await?;
        Ok((served, keys, reserved))
    }
}

/// The response body. It keeps what remains of the batch's reservation.
fn hold(mut reserved: Reservation, body: Vec<u8>) -> Result<Bytes, Problem> {
    let resized =
        reserved.resize(body.len() as u64).inspect_err(|_| reserved.buffers().refused(BufferRefusal::Response));
    resized.map_err(|error| Problem::from(&error))?;
    Ok(reserved.hold(body.into()))
}

/// Announces all keys or none: 204 once no key can be lost.
pub(super) async fn announce<B: Body<Data = Bytes, Error = BoxError>>(
    request: BatchRequest<'_, B>,
) -> Result<DataResponse, Problem> {
    let (served, keys, _held) = request.all_keys().await?;
    let version = served.keyspace.announce(&keys).await.map_err(|e| Problem::from(&e))?;
    Ok(answer::announced(version.as_ref()))
}

/// Drops the cached answers of changed rows: 204 once no instance that shares the cache can serve them from it.
pub(super) async fn invalidate<B: Body<Data = Bytes, Error = BoxError>>(
    request: BatchRequest<'_, B>,
) -> Result<DataResponse, Problem> {
    let (served, keys, _held) = request.all_keys().await?;
    served.keyspace.invalidate(&keys).await.map_err(|e| Problem::from(&e))?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}

/// Reads a body to its end, because an unread body costs the client its connection.
pub(super) async fn discard<B: Body<Data = Bytes, Error = BoxError>>(body: B, limit: u64) -> Result<(), Problem> {
    if body.is_end_stream() {
        return Ok(());
    }
    let mut body = pin!(body);
    while let Some(frame) = body.frame().await {
        frame.map_err(|error| Problem::from_body_error(&*error, limit))?;
    }
    Ok(())
}
