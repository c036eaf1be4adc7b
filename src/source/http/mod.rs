//! Keys listed by an HTTP server: [`HttpSource`].

mod list;

use std::time::Duration;

use async_trait::async_trait;
use hyper::header::{CONTENT_TYPE, HeaderMap, LINK};
use hyper::{Method, StatusCode};

use self::list::KeyList;
use super::batch::Batcher;
use super::{KeyBatches, KeySource, SourceError};
use crate::client::{Client, ClientError, ClientResponse, Url, header_map};
use crate::config::{KeyListFormat, SourceConfig};
use crate::key::KeyForm;

/// A count and a scan do not overlap. One more for a cancelled scan that is not closed yet.
const CONNECTIONS: usize = 2;
/// A server that sends nothing for this long is abandoned. It may sort everything before the first key.
const LONGEST_SILENCE: Duration = Duration::from_secs(900);
/// How long the count may take. It only helps to size the filter.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers that may hold the number of keys, best first.
const COUNTS: [&str; 2] = ["bloomguard-count", "x-total-count"];

/// Reads keys from the answer to a `GET`, one a line. An incomplete answer is a failed scan.
#[derive(Debug)]
pub struct HttpSource {
    url: Url,
    client: Client,
    format: Option<KeyListFormat>,
    max_key_bytes: usize,
}

impl HttpSource {
    /// Reads the configuration and connects to nothing. `max_key_bytes`: the longest key that requests may have.
    ///
    /// # Errors
    /// [`SourceError::Invalid`] if URL or headers can never be used.
    pub fn new(config: &SourceConfig, max_key_bytes: usize) -> Result<Self, SourceError> {
        let url = Url::parse(config.url.expose()).map_err(|error| SourceError::Invalid(format!("the url {error}")))?;
        let headers = header_map(config.headers.iter().chain(config.secret_headers.iter()))
            .map_err(|error| SourceError::Invalid(error.to_string()))?;
        let client = Client::new(url.origin(), headers, config.ca.as_ref(), CONNECTIONS)?;
        Ok(Self { url, client, format: config.format, max_key_bytes })
    }

    async fn ask(&self, method: Method) -> Result<ClientResponse, ClientError> {
        self.client.send(method, self.url.target().clone(), HeaderMap::new()).await
    }

    /// Begins the scan, with an answer whose end can be recognised.
    async fn begin(&self) -> Result<ClientResponse, SourceError> {
        let answer = self.ask(Method::GET).await?;
        if ![StatusCode::OK, StatusCode::NON_AUTHORITATIVE_INFORMATION].contains(&answer.status()) {
            return Err(answer.refusal().into());
        }
        let invalid = |what: &str| Err(SourceError::Invalid(format!("{} answered with {what}", answer.origin())));
        if let Some(coding) = answer.coding() {
            return invalid(&format!("a body coded as {coding}, which nobody asked for"));
        }
        if is_one_page(answer.headers()) {
            return invalid(
                "one page of several (a Link header with rel=\"next\"): the key source must list every key in one answer",
            );
        }
        if !answer.tells_its_end() && counted(answer.headers()).is_none() {
            return invalid(
                "a body whose end can't be told from a broken connection: it has neither a content-length nor chunks, and no Bloomguard-Count",
            );
        }
        Ok(answer)
    }

    async fn read(&self, mut answer: ClientResponse, batcher: &mut Batcher) -> Result<(), SourceError> {
        let announced = counted(answer.headers());
        let mut list = KeyList::new(self.format_of(&answer)?, self.max_key_bytes);
        while let Some(chunk) = patiently(&self.url, answer.chunk()).await? {
            list.take(&chunk, batcher).await?;
        }
        let keys = list.end(batcher).await?;
        match announced {
            Some(announced) if keys < announced => Err(SourceError::Invalid(format!(
                "{} sent {keys} keys of {announced} that it announced: the list must be whole, in one answer",
                answer.origin()
            ))),
            _ => Ok(()),
        }
    }

    fn format_of(&self, answer: &ClientResponse) -> Result<KeyListFormat, SourceError> {
        let written = answer.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let essence = written.split(|b| *b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let shown = essence.escape_ascii();
        match (&essence[..], self.format) {
            // Such an answer is a page for people, as for a login or an error, whatever its status.
            (b"text/html", _) => Err(SourceError::Invalid(format!(
                "{} answered with {shown}, which is no list of keys",
                answer.origin()
            ))),
            (_, Some(format)) => Ok(format),
            (
                b"application/x-ndjson" | b"application/ndjson" | b"application/jsonl" | b"application/x-jsonlines",
                None,
            ) => Ok(KeyListFormat::Ndjson),
            (b"text/plain" | b"application/octet-stream" | b"", None) => Ok(KeyListFormat::Lines),
            _ => Err(SourceError::Invalid(format!(
                "{} answered with content type {shown}, which does not tell how keys are listed: set source.format",
                answer.origin()
            ))),
        }
    }
}

#[async_trait]
impl KeySource for HttpSource {
    async fn key_form(&self) -> Result<Option<KeyForm>, SourceError> {
        Ok(None)
    }

    /// From the answer to a `HEAD`, if that has it.
    async fn count(&self) -> Result<Option<u64>, SourceError> {
        match tokio::time::timeout(COUNT_TIMEOUT, self.ask(Method::HEAD)).await {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(counted(answer.headers())),
            Ok(Err(error @ ClientError::Unavailable(_))) => Err(error.into()),
            // A server need not support HEAD.
            Ok(Ok(_) | Err(ClientError::Invalid(_))) | Err(_) => Ok(None),
        }
    }

    async fn scan(&self, form: KeyForm, batches: KeyBatches) -> Result<u64, SourceError> {
        let mut batcher = Batcher::new(form, batches.clone());
        let scanned = async {
            let answer = patiently(&self.url, self.begin()).await?;
            self.read(answer, &mut batcher).await
        };
        tokio::select! {
            biased;
            scanned = scanned => scanned?,
            // A cancelled scan ends, however slow the server is.
            () = batches.closed() => return Err(SourceError::Cancelled),
        }
        // Another sender would keep the reader waiting for ever.
        drop(batches);
        batcher.finish().await
    }
}

/// Waits for the server, but not once it is silent.
async fn patiently<T, E: Into<SourceError>>(
    url: &Url,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, SourceError> {
    match tokio::time::timeout(LONGEST_SILENCE, step).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(SourceError::Unavailable(format!("{} sent nothing for {LONGEST_SILENCE:?}", url.origin()))),
    }
}

fn counted(headers: &HeaderMap) -> Option<u64> {
    COUNTS.iter().find_map(|name| headers.get(*name)?.to_str().ok()?.trim().parse().ok())
}

/// RFC 8288, as paginated APIs use it.
fn is_one_page(headers: &HeaderMap) -> bool {
    // Its URLs may contain anything.
    let links =
        headers.get_all(LINK).into_iter().map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase());
    links.into_iter().any(|links| links.split([',', ';']).any(is_rel_next))
}

fn is_rel_next(parameter: &str) -> bool {
    let Some(("rel", relations)) = parameter.split_once('=').map(|(name, value)| (name.trim(), value.trim())) else {
        return false;
    };
    relations.trim_matches('"').split_ascii_whitespace().any(|relation| relation == "next")
}

impl From<ClientError> for SourceError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unavailable(reason) => Self::Unavailable(reason),
            ClientError::Invalid(reason) => Self::Invalid(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(hyper::header::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn pages_are_known_by_their_link_to_the_next() {
        for link in ["<http://x?p=2>; rel=\"next\"", "<a>; rel=\"first\", <b>; Rel=next", "<a>; rel=\"last next\""] {
            assert!(is_one_page(&headers("link", link)), "{link}");
        }
        for link in ["<a>; rel = \"next\"", "<a>;rel=\"next \"", "<http://x/?q=\u{e9}>; rel=\"next\""] {
            assert!(is_one_page(&headers("link", link)), "{link}");
        }
        for link in ["<http://x/next>; rel=\"prev\"", "<a>; rel=preload; as=nextgen"] {
            assert!(!is_one_page(&headers("link", link)), "{link}");
        }
    }

    #[test]
    fn counts_that_are_none_are_ignored() {
        assert_eq!(counted(&headers("bloomguard-count", "42")), Some(42));
        assert_eq!(counted(&headers("x-total-count", " 7 ")), Some(7));
        for none in ["", "many", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(counted(&headers("x-total-count", none)), None, "{none}");
        }
    }
}
