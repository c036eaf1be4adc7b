//! `POST /v1/check/{ks}`: asks the filter only.

use axum::http::header::{ACCEPT, HeaderMap};
use serde::{Serialize, Serializer};

use super::BatchRequest;
use crate::guard::Checked;
use crate::http::answer::{self, DataResponse};
use crate::http::options::unapplied_version;
use crate::http::problem::Problem;

/// Asks the filter for all keys: the indices of those that are absent, or a bit a key.
pub(in crate::http) fn check(request: &BatchRequest<'_>, headers: &HeaderMap) -> Result<DataResponse, Problem> {
    let guard = &request.keyspace.guard;
    // Before the filter is asked, as for one key.
    let as_maybe = unapplied_version(headers, |version| guard.has_applied(version));
    let mut check = guard.begin_check(request.most_keys()).map_err(|e| Problem::from(&e))?;
    request.every_key(|raw| check.add(raw))?;
    let mut checked = check.finish();
    if as_maybe {
        checked.doubt_all();
    }
    let (state, generation) = (checked.state, checked.generation);
    let binary = headers.get(ACCEPT).and_then(|v| v.to_str().ok()).is_some_and(|accept| accept.contains("application/octet-stream"));
    let (media_type, body) =
        if binary { ("application/octet-stream", checked.into_bits()) } else { ("application/json", indices(&checked)?) };
    Ok(answer::batch(media_type, body, state, generation))
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(serialize_with = "absent")]
    absent: &'a Checked,
    checked: usize,
    generation: u64,
    state: &'static str,
}

fn absent<S: Serializer>(checked: &Checked, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(checked.absent())
}

fn indices(checked: &Checked) -> Result<Vec<u8>, Problem> {
    // Of the longest index, and the comma.
    let each = checked.checked.checked_ilog10().unwrap_or(0) as usize + 2;
    let mut body = Vec::with_capacity(100 + checked.absent().count() * each);
    let Checked { checked: keys, generation, state, .. } = *checked;
    serde_json::to_writer(&mut body, &Document { absent: checked, checked: keys, generation, state: state.as_str() })
        .map_err(|e| Problem::internal(&e))?;
    Ok(body)
}
