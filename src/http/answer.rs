//! Turns outcomes of the keyspace into responses. On the data listener 404 means "this key is absent" and nothing else.

use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;

use super::middleware::Reserved;
use super::problem::Problem;
use crate::fleet::Version;
use crate::keyspace::{Answer, Lookup, Probe, Staleness};
use crate::labels::{Source, State, Verdict};

/// Response type of the data routes.
pub(super) type DataResponse = Response<Full<Bytes>>;

static SOURCE: HeaderName = HeaderName::from_static("bloomguard-source");
static VERDICT: HeaderName = HeaderName::from_static("bloomguard-verdict");
static STATE: HeaderName = HeaderName::from_static("bloomguard-state");
static GENERATION: HeaderName = HeaderName::from_static("bloomguard-generation");
static VERSION: HeaderName = HeaderName::from_static("bloomguard-version");
static CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// What response headers depend on besides the outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AnswerOptions {
    /// The lookup skipped filter and caches.
    pub(super) bypass: bool,
    /// Whether `Cache-Status` is sent.
    pub(super) cache_status: bool,
}

/// The response to a guarded read.
pub(super) fn lookup(lookup: Lookup, options: AnswerOptions) -> DataResponse {
    let source = lookup.source();
    let stale = lookup.answer.as_ref().ok().and_then(|answer| answer.stale);
    let mut response = match lookup.answer {
        Ok(Answer { value: Some(value), .. }) => {
            let content_type = value.content_type.header();
            let mut response = Response::new(Full::new(value.body));
            response.headers_mut().insert(CONTENT_TYPE, content_type);
            response
        }
        Ok(Answer { value: None, .. }) => absent(),
        Err(error) => Problem::from(&error).response(),
    };
    describe(response.headers_mut(), lookup.probe, source, options);
    if let Some(stale) = stale.filter(|_| options.cache_status)
        && let Ok(status) = HeaderValue::try_from(stale_cache_status(source, stale))
    {
        response.headers_mut().insert(&CACHE_STATUS, status);
    }
    response
}

/// The response to a check. `as_maybe`: the caller has seen a version that this instance may not have applied.
pub(super) fn check(probe: Probe, as_maybe: bool, options: AnswerOptions) -> DataResponse {
    let mut response = match probe.effective() {
        Verdict::Absent if !as_maybe => absent(),
        Verdict::Absent | Verdict::Maybe => empty(StatusCode::NO_CONTENT),
    };
    describe(response.headers_mut(), probe, Source::Filter, options);
    response
}

/// A status without a body.
pub(super) fn empty(status: StatusCode) -> DataResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// 204 of an announce, with the version from which on every instance knows it.
pub(super) fn announced(version: Option<&Version>) -> DataResponse {
    let mut response = empty(StatusCode::NO_CONTENT);
    if let Some(version) = version.and_then(|version| HeaderValue::try_from(version.to_string()).ok()) {
        response.headers_mut().insert(&VERSION, version);
    }
    response
}

/// Private, so that every 404 passes through [`describe`].
fn absent() -> DataResponse {
    let mut response = empty(StatusCode::NOT_FOUND);
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    response
}

/// The response to a batch. Its body is reserved in the budget already.
pub(super) fn batch(media_type: &'static str, body: Bytes, state: State, generation: u64) -> DataResponse {
    let mut response = Response::new(Full::new(body));
    response.extensions_mut().insert(Reserved);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(&STATE, HeaderValue::from_static(state.as_str()));
    headers.insert(&GENERATION, HeaderValue::from(generation));
    response
}

fn describe(headers: &mut HeaderMap, probe: Probe, source: Source, options: AnswerOptions) {
    if source != Source::None {
        headers.insert(&SOURCE, HeaderValue::from_static(source.as_str()));
    }
    headers.insert(&VERDICT, HeaderValue::from_static(probe.verdict.as_str()));
    headers.insert(&STATE, HeaderValue::from_static(probe.state.as_str()));
    headers.insert(&GENERATION, HeaderValue::from(probe.generation));
    if options.cache_status {
        headers.insert(&CACHE_STATUS, HeaderValue::from_static(cache_status(source, options.bypass)));
    }
}

/// RFC 9211: `hit` if the backend was not asked, else why the request was forwarded.
const fn cache_status(source: Source, bypass: bool) -> &'static str {
    match source {
        Source::Filter => "bloomguard; hit; detail=filter",
        Source::Hot => "bloomguard; hit; detail=hot",
        Source::Redis => "bloomguard; hit; detail=redis",
        Source::Backend if bypass => "bloomguard; fwd=bypass; detail=backend",
        Source::Backend => "bloomguard; fwd=miss; detail=backend",
        // It is not known whether the backend was asked before the failure, so neither `hit` nor `fwd` is claimed.
        Source::None => "bloomguard; detail=none",
    }
}

/// RFC 9211: an expired value is a `hit` only if the backend was not asked; its `ttl` is negative.
fn stale_cache_status(source: Source, stale: Staleness) -> String {
    let how = if stale.forwarded { "fwd=stale" } else { "hit" };
    // A value that has just expired is not fresh either.
    format!("bloomguard; {how}; ttl=-{}; detail={source}", stale.past.as_secs().max(1))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use std::time::Duration;

    use super::*;
    use crate::backend::{ContentType, Value};
    use crate::keyspace::LookupError;

    const OPTIONS: AnswerOptions = AnswerOptions { bypass: false, cache_status: true };

    fn probe(verdict: Verdict, state: State) -> Probe {
        Probe { verdict, state, enforced: state == State::Enforcing, generation: 7 }
    }

    fn header<'a>(response: &'a DataResponse, name: &str) -> Option<&'a str> {
        response.headers().get(name).map(|v| v.to_str().unwrap())
    }

    async fn body(response: DataResponse) -> Bytes {
        response.into_body().collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn an_absence_is_an_empty_404_that_names_its_source() {
        for source in [Source::Filter, Source::Hot, Source::Redis, Source::Backend] {
            let probe =
                probe(if source == Source::Filter { Verdict::Absent } else { Verdict::Maybe }, State::Enforcing);
            let response = lookup(Lookup { probe, answer: Ok(Answer::fresh(None, source)) }, OPTIONS);
            assert_eq!(response.status(), 404);
            assert_eq!(header(&response, "bloomguard-source"), Some(source.as_str()));
            assert_eq!(header(&response, "bloomguard-verdict"), Some(probe.verdict.as_str()));
            assert_eq!(header(&response, "bloomguard-state"), Some("enforcing"));
            assert_eq!(header(&response, "bloomguard-generation"), Some("7"));
            assert_eq!(header(&response, "content-length"), Some("0"));
            assert_eq!(header(&response, "content-type"), None);
            assert_eq!(body(response).await, "");
        }
    }

    #[tokio::test]
    async fn a_value_is_sent_as_it_is() {
        let stored = Bytes::from_static(b"{\"name\":\"x\"}");
        let value = Value { body: stored.clone(), content_type: ContentType::Json };
        let probe = probe(Verdict::Absent, State::Shadow);
        let response = lookup(Lookup { probe, answer: Ok(Answer::fresh(Some(value), Source::Backend)) }, OPTIONS);
        assert_eq!(response.status(), 200);
        assert_eq!(header(&response, "content-type"), Some("application/json"));
        assert_eq!(
            header(&response, "bloomguard-verdict"),
            Some("absent"),
            "the raw verdict, also where it decides nothing"
        );
        assert_eq!(header(&response, "cache-status"), Some("bloomguard; fwd=miss; detail=backend"));
        let sent = body(response).await;
        assert_eq!((&sent, sent.as_ptr()), (&stored, stored.as_ptr()), "no copy of it");
    }

    #[test]
    fn a_failure_is_a_503_without_source() {
        let answer = Err(LookupError::Deadline(Duration::from_millis(1)));
        let response = lookup(Lookup { probe: probe(Verdict::Maybe, State::Cold), answer }, OPTIONS);
        assert_eq!(response.status(), 503);
        assert_eq!(header(&response, "bloomguard-source"), None);
        assert_eq!(header(&response, "bloomguard-state"), Some("cold"));
        assert_eq!(header(&response, "retry-after"), Some("1"));
    }

    #[test]
    fn cache_status_tells_hits_misses_and_bypasses_and_can_be_off() {
        let answer = |source, options| {
            let answer = Ok(Answer::fresh(None, source));
            lookup(Lookup { probe: probe(Verdict::Maybe, State::Enforcing), answer }, options)
        };
        let bypass = AnswerOptions { bypass: true, ..OPTIONS };
        for (source, options, expected) in [
            (Source::Hot, OPTIONS, Some("bloomguard; hit; detail=hot")),
            (Source::Redis, OPTIONS, Some("bloomguard; hit; detail=redis")),
            (Source::Filter, OPTIONS, Some("bloomguard; hit; detail=filter")),
            (Source::Backend, OPTIONS, Some("bloomguard; fwd=miss; detail=backend")),
            (Source::Backend, bypass, Some("bloomguard; fwd=bypass; detail=backend")),
            (Source::Hot, AnswerOptions::default(), None),
        ] {
            assert_eq!(header(&answer(source, options), "cache-status"), expected);
        }
    }

    #[test]
    fn an_expired_value_says_so_and_whether_the_backend_was_asked() {
        let value = Value { body: Bytes::from_static(b"{}"), content_type: ContentType::Json };
        let answer = |forwarded, past| {
            let stale = Some(Staleness { past: Duration::from_millis(past), forwarded });
            let answer = Ok(Answer { value: Some(value.clone()), source: Source::Redis, stale });
            lookup(Lookup { probe: probe(Verdict::Maybe, State::Enforcing), answer }, OPTIONS)
        };
        assert_eq!(header(&answer(true, 90_500), "cache-status"), Some("bloomguard; fwd=stale; ttl=-90; detail=redis"));
        assert_eq!(header(&answer(false, 10), "cache-status"), Some("bloomguard; hit; ttl=-1; detail=redis"));
        assert_eq!(
            (answer(true, 0).status().as_u16(), header(&answer(true, 0), "bloomguard-source")),
            (200, Some("redis"))
        );
    }

    #[test]
    fn a_check_answers_the_effective_verdict() {
        for (verdict, state, as_maybe, status) in [
            (Verdict::Absent, State::Enforcing, false, 404),
            (Verdict::Absent, State::Enforcing, true, 204),
            (Verdict::Maybe, State::Enforcing, false, 204),
            (Verdict::Absent, State::Shadow, false, 204),
            (Verdict::Absent, State::Degraded, false, 204),
            (Verdict::Maybe, State::Cold, false, 204),
        ] {
            let response = check(probe(verdict, state), as_maybe, OPTIONS);
            assert_eq!(response.status(), status, "{verdict} {state} {as_maybe}");
            assert_eq!(header(&response, "bloomguard-source"), Some("filter"));
            assert_eq!(header(&response, "bloomguard-verdict"), Some(verdict.as_str()));
        }
    }
}
