//! The only place that maps the keyspace's errors to status codes. A failure is never a 404.

use axum::http::StatusCode;

use super::path::KeyPathError;
use super::problem::Problem;
use crate::backend::BackendError;
use crate::buffers::Overloaded;
use crate::fleet::LogError;
use crate::key::KeyError;
use crate::keyspace::{AnnounceError, DropError, LookupError, ParseError, SwitchError};
use crate::labels::ShedReason;
use crate::redis::Unreplicated;

impl From<&LookupError> for Problem {
    fn from(error: &LookupError) -> Self {
        let detail = public_lookup(error);
        match error {
            LookupError::Deadline(_) => Self::unavailable("deadline", "Deadline exceeded", detail),
            LookupError::Shed(reason) => Self::unavailable("shed", "Shed", detail).member("reason", reason.as_str()),
            LookupError::BreakerOpen(retry_in) => {
                let problem = Self::unavailable("backend-unavailable", "Backend unreachable", detail);
                problem.member("reason", ShedReason::BreakerOpen.as_str()).retry_after(*retry_in)
            }
            LookupError::Backend(error) => match **error {
                BackendError::Timeout(_) => Self::unavailable("backend-timeout", "Backend timeout", detail),
                BackendError::Unavailable(_) => Self::unavailable("backend-unavailable", "Backend unreachable", detail),
                BackendError::Invalid(_) => Self::unavailable("backend-invalid", "Unusable backend response", detail),
                // Only batches limit a call, and they retry by themselves.
                BackendError::NoRoom => Self::unavailable("cancelled", "Cancelled", detail),
            },
            LookupError::BatchFull(limit) => {
                Self::unavailable("batch-full", "Batch values too large", detail).member("limit", *limit)
            }
            LookupError::Overloaded(error) => Self::from(error),
            LookupError::SetTooOld => Self::unavailable("set-too-old", "Key set too old", detail),
            LookupError::Cancelled => Self::unavailable("cancelled", "Cancelled", detail),
        }
    }
}

impl From<&Overloaded> for Problem {
    fn from(error: &Overloaded) -> Self {
        Self::unavailable("overloaded", "Too many buffered bytes", error.to_string()).member("limit", error.limit)
    }
}

impl From<&AnnounceError> for Problem {
    fn from(error: &AnnounceError) -> Self {
        let detail = public_announce(error);
        match error {
            AnnounceError::Enrolling(enrolling) => Self::enrolling(detail).retry_after(enrolling.retry_in()),
            AnnounceError::Log(LogError::NotAdmitted) => Self::enrolling(LogError::NotAdmitted.to_string()),
            AnnounceError::Off(keyspace) => {
                let problem = Self::new(StatusCode::CONFLICT, "announces-off", "Announces are off", detail);
                problem.member("setting", format!("keyspaces.{keyspace}.announces"))
            }
            AnnounceError::Journal(_)
            | AnnounceError::Marker(_)
            | AnnounceError::Log(_)
            | AnnounceError::NoSecret
            | AnnounceError::Deadline(_) => {
                let problem =
                    Self::unavailable("not-durable", "Announce not durable: retry it before the commit", detail);
                problem.with_replicas(error.unreplicated())
            }
            AnnounceError::TooFast { limit, retry_in } => {
                Self::unavailable("announce-rate", "Announce rate exceeded: retry before the commit", detail)
                    .member("limit", *limit)
                    .retry_after(*retry_in)
            }
            AnnounceError::Full(limit) => {
                Self::unavailable("too-many-announces", "Too many pending announces: retry before the commit", detail)
                    .member("limit", *limit)
            }
        }
    }
}

impl From<&DropError> for Problem {
    fn from(error: &DropError) -> Self {
        let detail = public_drop(error);
        match error {
            DropError::Tombstone(_) | DropError::Log(_) | DropError::NoSecret => {
                let problem = Self::unavailable("not-dropped", "The shared cache may still hold the key", detail);
                problem.with_replicas(error.unreplicated())
            }
        }
    }
}

/// Details for clients of the data listener. They contain no text of a database, an API or Redis, which may name hosts,
/// users and statements. The log contains it.
fn public_lookup(error: &LookupError) -> String {
    match error {
        LookupError::Backend(error) => match **error {
            BackendError::Unavailable(_) => "the backend is unreachable; the log tells why".to_owned(),
            BackendError::Invalid(_) => "the backend's response can't be used; the log tells why".to_owned(),
            BackendError::Timeout(_) | BackendError::NoRoom => error.to_string(),
        },
        LookupError::Deadline(_)
        | LookupError::Shed(_)
        | LookupError::BreakerOpen(_)
        | LookupError::SetTooOld
        | LookupError::BatchFull(_)
        | LookupError::Overloaded(_)
        | LookupError::Cancelled => error.to_string(),
    }
}

/// As [`public_lookup`].
fn public_announce(error: &AnnounceError) -> String {
    match error {
        _ if error.unreplicated().is_some() => error.to_string(),
        AnnounceError::Journal(_) => "the announce could not be written to the journal; the log tells why".to_owned(),
        AnnounceError::Marker(_) => "the announce's marker could not be set in Redis; the log tells why".to_owned(),
        AnnounceError::Log(_) => "the announce could not be appended to the delta log; the log tells why".to_owned(),
        AnnounceError::Off(_)
        | AnnounceError::Enrolling(_)
        | AnnounceError::NoSecret
        | AnnounceError::Full(_)
        | AnnounceError::TooFast { .. }
        | AnnounceError::Deadline(_) => error.to_string(),
    }
}

/// As [`public_lookup`].
fn public_drop(error: &DropError) -> String {
    match error {
        _ if error.unreplicated().is_some() => error.to_string(),
        DropError::Tombstone(_) => "the tombstone could not be set in Redis; the log tells why".to_owned(),
        DropError::Log(_) => "the drop could not be appended to the delta log; the log tells why".to_owned(),
        DropError::NoSecret => error.to_string(),
    }
}

impl Problem {
    fn enrolling(detail: String) -> Self {
        Self::unavailable("enrolling", "This instance may not announce yet: retry before the commit", detail)
    }

    /// Adds how many replicas acknowledged, if too few did.
    fn with_replicas(self, few: Option<Unreplicated>) -> Self {
        match few {
            Some(few) => self.member("replicas_acked", few.acked).member("replicas_wanted", few.wanted),
            None => self,
        }
    }
}

impl From<SwitchError> for Problem {
    fn from(error: SwitchError) -> Self {
        let detail = error.to_string();
        match error {
            SwitchError::NoFleet => Self::new(StatusCode::CONFLICT, "no-fleet", "No fleet", detail),
            // The admin listener may show the cause.
            SwitchError::Log(_) => Self::unavailable("not-switched", "Fleet switch not confirmed", detail),
        }
    }
}

impl From<&ParseError> for Problem {
    fn from(error: &ParseError) -> Self {
        let detail = error.to_string();
        let reason = match error {
            ParseError::UnknownForm => return Self::unavailable("key-form-unknown", "Key form unknown", detail),
            ParseError::Key(KeyError::Empty) => "empty",
            ParseError::Key(KeyError::NotUtf8(_)) => "not-utf8",
            ParseError::Key(KeyError::ZeroByte(_)) => "zero-byte",
            ParseError::Key(KeyError::NotAnInteger) => "not-an-integer",
            ParseError::Key(KeyError::NotAUuid) => "not-a-uuid",
            ParseError::Key(KeyError::DotSegment) => "dot-segment",
        };
        bad_key(reason, detail)
    }
}

impl From<&KeyPathError> for Problem {
    fn from(error: &KeyPathError) -> Self {
        let detail = error.to_string();
        match error {
            KeyPathError::Empty => bad_key("empty", detail),
            KeyPathError::BadEscape => bad_key("bad-escape", detail),
            KeyPathError::TooLong { limit } => Self::key_too_long(*limit),
        }
    }
}

fn bad_key(reason: &'static str, detail: String) -> Problem {
    Problem::bad_request("bad-key", "Invalid key", detail).member("reason", reason)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use axum::http::Response;
    use bytes::Bytes;

    use super::*;
    use crate::cache::CacheError;
    use crate::key::KeyForm;
    use crate::keyspace::JournalError;

    fn document(problem: Problem) -> (Response<Bytes>, serde_json::Value) {
        let response = problem.response::<Bytes>();
        let document = serde_json::from_slice(response.body()).unwrap();
        (response, document)
    }

    #[test]
    fn a_failure_is_never_an_absence() {
        let failed: Vec<LookupError> = vec![
            LookupError::Deadline(Duration::from_millis(300)),
            LookupError::Shed(ShedReason::QueueFull),
            LookupError::Shed(ShedReason::QueueTimeout),
            Arc::new(BackendError::Timeout(Duration::from_millis(200))).into(),
            Arc::new(BackendError::Unavailable("connection refused".into())).into(),
            Arc::new(BackendError::Invalid("SQLSTATE 42P01".into())).into(),
            Arc::new(BackendError::NoRoom).into(),
            LookupError::BatchFull(7),
            Overloaded { limit: 7 }.into(),
            LookupError::SetTooOld,
            LookupError::Cancelled,
        ];
        let problems = failed.iter().map(Problem::from).chain([
            Problem::from(&AnnounceError::Journal(JournalError::Io("disk full".into()))),
            Problem::from(&AnnounceError::Full(7)),
            Problem::from(&AnnounceError::TooFast { limit: 7, retry_in: Duration::from_millis(20) }),
            Problem::from(&DropError::Tombstone(CacheError::Unavailable("down".into()))),
            Problem::from(&ParseError::UnknownForm),
        ]);
        for problem in problems {
            let (response, document) = document(problem);
            assert_eq!(response.status(), 503, "{document}");
            assert_eq!(response.headers()["retry-after"], "1");
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            assert_eq!(document["status"], 503);
            assert!(document["type"].as_str().unwrap().starts_with("/problems/"), "{document}");
        }
    }

    #[test]
    fn no_text_of_a_database_or_of_redis_is_told() {
        let text = || "hunter2".to_owned();
        let lookups: [LookupError; 2] =
            [Arc::new(BackendError::Unavailable(text())).into(), Arc::new(BackendError::Invalid(text())).into()];
        let problems = lookups.iter().map(Problem::from).chain([
            Problem::from(&AnnounceError::Journal(JournalError::Io(text()))),
            Problem::from(&AnnounceError::Marker(CacheError::Unavailable(text()))),
            Problem::from(&AnnounceError::Log(LogError::Refused(text()))),
            Problem::from(&DropError::Tombstone(CacheError::Unavailable(text()))),
            Problem::from(&DropError::Log(LogError::Unavailable(text()))),
        ]);
        for problem in problems {
            let (_, document) = document(problem);
            assert!(!document.to_string().contains("hunter2"), "{document}");
            assert!(document["detail"].as_str().unwrap().contains("the log tells why"), "{document}");
        }
    }

    #[test]
    fn a_bad_key_says_why() {
        for (error, reason) in [
            (KeyError::Empty, "empty"),
            (KeyError::NotUtf8(KeyForm::Text), "not-utf8"),
            (KeyError::ZeroByte(KeyForm::Text), "zero-byte"),
            (KeyError::NotAnInteger, "not-an-integer"),
            (KeyError::NotAUuid, "not-a-uuid"),
            (KeyError::DotSegment, "dot-segment"),
        ] {
            let (response, document) = document(Problem::from(&ParseError::Key(error.clone())));
            assert_eq!(response.status(), 400);
            assert_eq!(document["type"], "/problems/bad-key");
            assert_eq!(document["reason"], reason);
            assert_eq!(document["detail"], error.to_string());
        }
        let (response, document) = document(Problem::from(&KeyPathError::TooLong { limit: 1024 }));
        assert_eq!((response.status().as_u16(), &document["limit"]), (414, &1024.into()));
    }
}
