//! Batches: `POST /v1/keys/{ks}`, `/v1/check/{ks}`, `/v1/lookup/{ks}`, `/v1/invalidate/{ks}`.

mod check;
mod format;
mod json;
mod lookup;
mod ndjson;
mod plain;
mod text;

use axum::http::StatusCode;
use axum::http::header::HeaderMap;

pub(super) use self::check::check;
use self::format::{Format, require_plain};
pub(super) use self::lookup::lookup;
use super::answer::{self, DataResponse};
use super::context::{HttpContext, HttpSettings, Keyspace};
use super::key_request::find_keyspace;
use super::problem::Problem;
use crate::guard::ParseError;
use crate::key::{Key, KeyForm};

pub(super) const ALLOW: &str = "POST";

/// A batch whose keyspace is configured and whose format is known.
pub(super) struct BatchRequest<'a> {
    pub(super) keyspace: &'a Keyspace,
    format: Format,
    body: &'a [u8],
    form: KeyForm,
    settings: &'a HttpSettings,
}

/// Why one of a batch can't be a key. Small, as it is asked of each of them: most batches need no [`Problem`].
enum NoKey {
    TooLong { limit: usize },
    Parse(ParseError),
}

impl From<ParseError> for NoKey {
    fn from(error: ParseError) -> Self {
        Self::Parse(error)
    }
}

impl From<NoKey> for Problem {
    fn from(why: NoKey) -> Self {
        match why {
            NoKey::TooLong { limit } => Self::key_too_long(limit),
            NoKey::Parse(error) => Self::from(&error),
        }
    }
}

impl<'a> BatchRequest<'a> {
    pub(super) fn new(context: &'a HttpContext, keyspace: &str, headers: &HeaderMap, body: &'a [u8]) -> Result<Self, Problem> {
        let keyspace = find_keyspace(context, keyspace)?;
        require_plain(headers)?;
        let format = Format::of(headers)?;
        let form = keyspace.guard.form().ok_or_else(|| Problem::from(&ParseError::UnknownForm))?;
        Ok(Self { keyspace, format, body, form, settings: &context.settings })
    }

    /// It holds no more keys than this: in every format each takes a byte, and another from the next one.
    fn most_keys(&self) -> usize {
        (self.body.len() / 2 + 1).min(self.settings.max_batch_keys)
    }

    /// Hands over the keys in their order, each as it was sent, or why it can't be one. Fails where the body is none of its format.
    fn each_key(&self, mut take: impl FnMut(Result<&[u8], NoKey>)) -> Result<(), Problem> {
        let HttpSettings { max_batch_keys, max_key_bytes, .. } = *self.settings;
        self.format.keys(self.body, max_batch_keys, self.form, |raw| {
            take(if raw.len() > max_key_bytes { Err(NoKey::TooLong { limit: max_key_bytes }) } else { Ok(raw) });
        })
    }

    /// As [`each_key`](Self::each_key); the first key that can't be one, or that `take` refuses, refuses the batch.
    fn every_key(&self, mut take: impl FnMut(&[u8]) -> Result<(), ParseError>) -> Result<(), Problem> {
        let (mut index, mut refused) = (0u64, None);
        // A body that is none of its format is told before a key that is none.
        self.each_key(|raw| {
            if refused.is_none()
                && let Err(why) = raw.and_then(|raw| Ok(take(raw)?))
            {
                refused = Some((index, why));
            }
            index += 1;
        })?;
        refused.map_or(Ok(()), |(index, why)| Err(Problem::from(why).member("index", index)))
    }

    /// Brings every key into its form.
    fn all_keys(&self) -> Result<Vec<Key>, Problem> {
        let mut keys = Vec::new();
        self.every_key(|raw| self.keyspace.guard.key(raw).map(|key| keys.push(key)))?;
        Ok(keys)
    }
}

/// Announces all keys, or none: 204 once none of them can be lost.
pub(super) async fn announce(request: BatchRequest<'_>) -> Result<DataResponse, Problem> {
    let version = request.keyspace.guard.announce(&request.all_keys()?).await.map_err(|e| Problem::from(&e))?;
    Ok(answer::announced(version.as_ref()))
}

/// Drops what is cached of changed rows: 204 once no instance that shares the cache can serve it from there.
pub(super) async fn invalidate(request: BatchRequest<'_>) -> Result<DataResponse, Problem> {
    request.keyspace.guard.invalidate(&request.all_keys()?).await.map_err(|e| Problem::from(&e))?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}
