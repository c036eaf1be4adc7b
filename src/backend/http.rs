//! Rows of an HTTP API: [`HttpBackend`].

use std::time::Duration;

use async_trait::async_trait;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use serde::de::IgnoredAny;
use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3Default;

use super::{Backend, BackendError, ContentType, FetchContext, Value};
use crate::client::{Client, ClientError, ClientResponse, UrlTemplate, header_map};
use crate::config::{AbsentHeader, BackendConfig};
use crate::key::{Key, KeyError, KeyForm, KeyRef};

/// Longer bodies are not values.
const LONGEST_BODY: u64 = 16 << 20;
/// How much of an unused body is read, so that its connection can be reused.
const LONGEST_SKIPPED: u64 = 64 << 10;

/// Asks an API by `GET`. A status of `absent_status` is an absence, 200 and 203 are a value, everything else is a
/// failure.
#[derive(Debug)]
pub struct HttpBackend {
    url: UrlTemplate,
    client: Client,
    timeout: Duration,
    absent_status: Vec<u16>,
    absent_header: Option<AbsentHeader>,
    fingerprint: u64,
}

impl HttpBackend {
    /// Reads the configuration and connects to nothing: the API may be down.
    ///
    /// # Errors
    /// [`BackendError::Invalid`] if URL or headers can never be used.
    pub fn new(config: &BackendConfig) -> Result<Self, BackendError> {
        let url = UrlTemplate::parse(config.url.expose())
            .map_err(|error| BackendError::Invalid(format!("the url {error}")))?;
        let headers = header_map(config.headers.iter().chain(config.secret_headers.iter()))
            .map_err(|error| BackendError::Invalid(error.to_string()))?;
        let client = Client::new(url.origin(), headers, config.ca.as_ref(), config.max_concurrency)?;
        Ok(Self {
            fingerprint: fingerprint(&url, config),
            url,
            client,
            timeout: config.timeout,
            absent_status: config.absent_status.clone(),
            absent_header: config.absent_header.clone(),
        })
    }

    async fn ask(&self, key: &Key, context: &FetchContext) -> Result<Option<Value>, BackendError> {
        if !self.url.admits(key.as_bytes()) {
            return Err(BackendError::Invalid(KeyError::DotSegment.to_string()));
        }
        let target = self
            .url
            .target(key.as_bytes())
            .ok_or_else(|| BackendError::Invalid("the key is too long for a URL".into()))?;
        let answer = self.client.send(Method::GET, target, self.headers(context)).await?;
        let status = answer.status();
        if self.absent_status.contains(&status.as_u16()) {
            return self.absence(answer).await;
        }
        match status {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => value(answer).await.map(Some),
            _ => {
                let refusal = answer.refusal();
                // An overloaded server does not get new connections as well.
                answer.skip(LONGEST_SKIPPED).await?;
                Err(refusal.into())
            }
        }
    }

    /// What each request carries: its trace, and how long its answer is waited for.
    fn headers(&self, context: &FetchContext) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(trace) = &context.trace {
            trace.write(&mut headers);
        }
        let left = context
            .deadline
            .map_or(self.timeout, |deadline| self.timeout.min(deadline.saturating_duration_since(Instant::now())));
        if let Ok(value) = HeaderValue::try_from(format!("{}ms", left.as_millis().max(1))) {
            headers.insert(HeaderName::from_static("bloomguard-timeout"), value);
        }
        headers
    }

    async fn absence(&self, answer: ClientResponse) -> Result<Option<Value>, BackendError> {
        if let Some(demanded) = &self.absent_header
            && !demanded.is_in(answer.headers())
        {
            let said = format!(
                "{} answered {} without the header that backend.absent_header demands of an absence ({demanded}): did a proxy answer in its place?",
                answer.origin(),
                answer.status()
            );
            answer.skip(LONGEST_SKIPPED).await?;
            return Err(BackendError::Invalid(said));
        }
        answer.skip(LONGEST_SKIPPED).await?;
        Ok(None)
    }
}

#[async_trait]
impl Backend for HttpBackend {
    fn admits(&self, key: KeyRef<'_>) -> Result<(), KeyError> {
        if self.url.admits(key.as_bytes()) { Ok(()) } else { Err(KeyError::DotSegment) }
    }

    fn admits_all(&self, form: KeyForm) -> bool {
        // They consist of digits, letters and hyphens, which no server reads as a folder.
        matches!(form, KeyForm::Integer | KeyForm::Uuid)
    }

    async fn fetch(&self, key: &Key, context: &FetchContext) -> Result<Option<Value>, BackendError> {
        tokio::time::timeout(self.timeout, self.ask(key, context))
            .await
            .unwrap_or(Err(BackendError::Timeout(self.timeout)))
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

async fn value(answer: ClientResponse) -> Result<Value, BackendError> {
    let origin = answer.origin().to_owned();
    let invalid = |what: &str| BackendError::Invalid(format!("{origin} answered with {what}"));
    if let Some(coding) = answer.coding() {
        return Err(invalid(&format!("a body coded as {coding}, which nobody asked for")));
    }
    let content_type = match answer.headers().get(CONTENT_TYPE) {
        Some(text) => {
            ContentType::parse(text.as_bytes()).ok_or_else(|| invalid("a content type that can't be sent on"))?
        }
        None => ContentType::OctetStream,
    };
    let tells_its_end = answer.tells_its_end();
    let body = answer.body(LONGEST_BODY).await?;
    let whole = tells_its_end || (content_type.is_json() && ends_by_itself(&body));
    if !whole {
        return Err(invalid(
            "a body whose end can't be told from a broken connection: it has neither a content-length nor chunks, and is no JSON object or array",
        ));
    }
    Ok(Value { body, content_type })
}

/// Whether these bytes are a complete JSON object, array or string: these can't be cut without notice.
fn ends_by_itself(body: &[u8]) -> bool {
    matches!(body.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'))
        && serde_json::from_slice::<IgnoredAny>(body).is_ok()
}

impl From<ClientError> for BackendError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unavailable(reason) => Self::Unavailable(reason),
            ClientError::Invalid(reason) => Self::Invalid(reason),
        }
    }
}

/// Each part with its length, so that different parts never have the same bytes. Of secret headers only the names: a
/// new token reads the same rows.
fn fingerprint(url: &UrlTemplate, config: &BackendConfig) -> u64 {
    let mut parts = vec!["http".to_owned(), url.origin().to_string(), url.pattern()];
    parts.extend(config.absent_status.iter().map(u16::to_string));
    parts.push(config.absent_header.as_ref().map(ToString::to_string).unwrap_or_default());
    let names = config.headers.iter().chain(config.secret_headers.iter()).map(|(name, _)| name.to_lowercase());
    let plain = config.headers.plain().map(|(name, value)| format!("{}: {value}", name.to_lowercase()));
    let mut headers: Vec<String> = names.chain(plain).collect();
    headers.sort();
    parts.extend(headers);
    let mut hasher = Xxh3Default::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_shows_its_own_end_does() {
        for body in ["{}", " {\"a\":[1]}\n", "[1]", "\"x\""] {
            assert!(ends_by_itself(body.as_bytes()), "{body}");
        }
        for body in ["", "12", "true", "{", "{\"a\":1", "[1", "\"x", "{}{", "text"] {
            assert!(!ends_by_itself(body.as_bytes()), "{body}");
        }
    }
}
