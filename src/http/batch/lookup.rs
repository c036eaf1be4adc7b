//! `POST /v1/lookup/{ks}`: every key has its own result.

use axum::http::header::HeaderMap;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::body::Body;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{BatchRequest, hold};
use crate::http::BoxError;
use crate::http::answer::{self, DataResponse};
use crate::http::options::lookup_options;
use crate::http::problem::Problem;
use crate::keyspace::{Answer, Lookup};

/// Size of a result without its value.
const OUTCOME_BYTES: usize = 48;

/// The result for one key. `status` is what a request for this key alone would return.
#[derive(Serialize)]
struct Outcome<'a> {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    /// The value has expired; it is sent because the backend failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
    /// A row as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    /// Raw bytes in base64, if the row is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<Base64<'a>>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Encodes bytes while they are written, without a copy.
struct Base64<'a>(&'a [u8]);

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &STANDARD))
    }
}

/// Looks up all keys. A key without canonical form fails alone.
pub(in crate::http) async fn lookup<B>(
    request: BatchRequest<'_, B>,
    headers: &HeaderMap,
) -> Result<DataResponse, Problem>
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    let (mut keys, mut refused) = (Vec::new(), Vec::new());
    let (keyspace, settings) = (&request.served.keyspace, request.settings);
    let each = request.each_key(|raw| match raw.and_then(|raw| Ok(keyspace.key(raw)?)) {
        Ok(key) => {
            keys.push(key);
            refused.push(None);
        }
        Err(why) => refused.push(Some(Problem::from(why))),
    });
    let mut reserved = each.await?;
    let options = lookup_options(headers, |version| keyspace.has_applied(version), settings.honor_no_cache);
    let lookups = keyspace.lookup_all(keys, options, settings.max_batch_bytes, &mut reserved).await;
    let body = document(refused, lookups).map_err(|e| Problem::internal(&e))?;
    Ok(answer::batch("application/json", hold(reserved, body)?, keyspace.state(), keyspace.generation()))
}

/// `{"results":[…]}`. Drops each value once it is written.
fn document(refused: Vec<Option<Problem>>, lookups: Vec<Lookup>) -> serde_json::Result<Vec<u8>> {
    let values: usize =
        lookups.iter().filter_map(|lookup| Some(lookup.answer.as_ref().ok()?.value.as_ref()?.body.len())).sum();
    let mut body = Vec::with_capacity(values + refused.len() * OUTCOME_BYTES);
    body.extend_from_slice(b"{\"results\":[");
    let mut found = lookups.into_iter();
    let mut between = b"".as_slice();
    for refused in refused {
        body.extend_from_slice(between);
        between = b",";
        match refused {
            Some(problem) => serde_json::to_writer(&mut body, &failed(&problem))?,
            None => {
                let Some(lookup) = found.next() else { continue };
                serde_json::to_writer(&mut body, &outcome(&lookup))?;
            }
        }
    }
    body.extend_from_slice(b"]}");
    Ok(body)
}

fn outcome(lookup: &Lookup) -> Outcome<'_> {
    match &lookup.answer {
        Ok(Answer { value, source, stale }) => {
            let json = value.as_ref().filter(|v| v.content_type.is_json());
            // A row that turns out not to be JSON is sent as bytes.
            let json: Option<&RawValue> = json.and_then(|v| serde_json::from_slice(&v.body).ok());
            let bytes = value.as_ref().filter(|_| json.is_none()).map(|v| Base64(&v.body));
            let status = if value.is_some() { 200 } else { 404 };
            let stale = stale.map(|_| true);
            Outcome {
                status,
                source: Some(source.as_str()),
                stale,
                value: json,
                value_base64: bytes,
                problem: None,
                detail: None,
            }
        }
        Err(error) => failed(&Problem::from(error)),
    }
}

fn failed(problem: &Problem) -> Outcome<'static> {
    let (status, kind, detail) = problem.summary();
    Outcome {
        status,
        source: None,
        stale: None,
        value: None,
        value_base64: None,
        problem: Some(kind),
        detail: Some(detail),
    }
}
