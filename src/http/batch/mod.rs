//! Batches: `POST /v1/keys/{ks}`, `/v1/check/{ks}`, `/v1/lookup/{ks}`, `/v1/invalidate/{ks}`.

mod body;
mod lookup;

use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use serde_json::json;

use self::body::{Format, require_plain};
pub(super) use self::lookup::lookup;
use super::answer::{self, DataResponse};
use super::context::{HttpContext, HttpSettings, Keyspace};
use super::key_request::find_keyspace;
use super::options::unapplied_version;
use super::problem::Problem;
use crate::guard::{Checked, ParseError};
use crate::key::Key;

pub(super) const ALLOW: &str = "POST";

/// A batch whose keyspace is configured and whose body could be taken apart.
pub(super) struct BatchRequest<'a> {
    pub(super) keyspace: &'a Keyspace,
    /// As they were sent, in their order.
    keys: Vec<Vec<u8>>,
    max_key_bytes: usize,
    /// Bytes of values in the answer.
    max_bytes: u64,
    honor_no_cache: bool,
}

impl<'a> BatchRequest<'a> {
    pub(super) fn new(context: &'a HttpContext, keyspace: &str, headers: &HeaderMap, body: &[u8]) -> Result<Self, Problem> {
        let keyspace = find_keyspace(context, keyspace)?;
        require_plain(headers)?;
        let format = Format::of(headers)?;
        let form = keyspace.guard.form().ok_or_else(|| Problem::from(&ParseError::UnknownForm))?;
        let keys = format.keys(body, context.settings.max_batch_keys, form)?;
        let HttpSettings { max_key_bytes, max_batch_bytes: max_bytes, honor_no_cache, .. } = context.settings;
        Ok(Self { keyspace, keys, max_key_bytes, max_bytes, honor_no_cache })
    }

    /// Brings one key into its form.
    fn key(&self, raw: &[u8]) -> Result<Key, Problem> {
        if raw.len() > self.max_key_bytes {
            return Err(Problem::key_too_long(self.max_key_bytes));
        }
        self.keyspace.guard.key(raw).map_err(|e| Problem::from(&e))
    }

    /// Brings every key into its form; the first that has none refuses the batch.
    fn all_keys(&self) -> Result<Vec<Key>, Problem> {
        let keys = self.keys.iter().enumerate();
        keys.map(|(index, raw)| self.key(raw).map_err(|problem| problem.member("index", index as u64))).collect()
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

/// Asks the filter for all keys: the indices of those that are absent, or a bit a key.
pub(super) fn check(request: &BatchRequest<'_>, headers: &HeaderMap) -> Result<DataResponse, Problem> {
    let mut checked = request.keyspace.guard.check_all(&request.all_keys()?);
    if unapplied_version(headers, |version| request.keyspace.guard.has_applied(version)) {
        checked.absent.clear();
    }
    let binary = headers.get(ACCEPT).and_then(|v| v.to_str().ok()).is_some_and(|accept| accept.contains("application/octet-stream"));
    let (media_type, body) = if binary { ("application/octet-stream", bits(&checked)) } else { ("application/json", indices(&checked)) };
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer::describe_batch(response.headers_mut(), checked.state, checked.generation);
    Ok(response)
}

fn indices(checked: &Checked) -> Bytes {
    let document = json!({
        "absent": checked.absent, "checked": checked.checked, "generation": checked.generation, "state": checked.state.as_str(),
    });
    document.to_string().into()
}

/// One bit a key, 1 = maybe, lowest bit first; the last byte is filled up with 0.
fn bits(checked: &Checked) -> Bytes {
    let mut bits = vec![0u8; checked.checked.div_ceil(8)];
    for index in 0..checked.checked {
        bits[index / 8] |= 1 << (index % 8);
    }
    for index in &checked.absent {
        bits[index / 8] &= !(1 << (index % 8));
    }
    bits.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::State;

    #[test]
    fn a_bit_a_key_lowest_first_one_is_maybe() {
        let checked = |absent: &[usize], keys| Checked { absent: absent.to_vec(), checked: keys, generation: 1, state: State::Enforcing };
        assert_eq!(bits(&checked(&[], 0)).as_ref(), b"");
        assert_eq!(bits(&checked(&[0], 3)).as_ref(), [0b110]);
        assert_eq!(bits(&checked(&[1, 8], 9)).as_ref(), [0b1111_1101, 0]);
        assert_eq!(bits(&checked(&[], 9)).as_ref(), [0xff, 1]);
    }
}
