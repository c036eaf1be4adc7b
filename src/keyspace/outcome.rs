//! The result of a lookup: one type that becomes status, headers and metrics.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{TraceContext, Value};
use crate::labels::{LookupResult, Source, State, Verdict};

use super::error::LookupError;

/// The filter's answer for a key at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The raw verdict of the filter; `maybe` while there is none.
    pub verdict: Verdict,
    /// State of the keyspace at that moment.
    pub state: State,
    /// True if the filter may answer for this key: the keyspace is enforcing, and the key is among those of
    /// `enforce_percent`.
    pub enforced: bool,
    /// The generation that answered; 0 if there is none.
    pub generation: u64,
}

impl Probe {
    /// The effective verdict: absent only if the keyspace enforces and the key is among those of `enforce_percent`.
    #[must_use]
    pub fn effective(&self) -> Verdict {
        if self.enforced { self.verdict } else { Verdict::Maybe }
    }
}

/// An answer and its source. `value: None` is an absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The value; `None`: the key is absent.
    pub value: Option<Value>,
    /// The source of the answer.
    pub source: Source,
    /// The value had expired, and is answered because the backend gave no answer.
    pub stale: Option<Staleness>,
}

/// How stale an expired value is that is served all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staleness {
    /// How long ago it has expired.
    pub past: Duration,
    /// The backend was asked first, and failed.
    pub forwarded: bool,
}

impl Answer {
    /// A value or an absence that has not expired.
    #[must_use]
    pub const fn fresh(value: Option<Value>, source: Source) -> Self {
        Self { value, source, stale: None }
    }
}

/// A finished lookup.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// The filter's answer.
    pub probe: Probe,
    /// The answer, or why there is none.
    pub answer: Result<Answer, LookupError>,
}

impl Lookup {
    /// The label that metrics use.
    #[must_use]
    pub fn result(&self) -> LookupResult {
        match &self.answer {
            Ok(Answer { value: Some(_), .. }) => LookupResult::Found,
            Ok(Answer { value: None, .. }) => LookupResult::Absent,
            Err(_) => LookupResult::Error,
        }
    }

    /// The source of the answer; `none` if there is none.
    #[must_use]
    pub fn source(&self) -> Source {
        self.answer.as_ref().map_or(Source::None, |a| a.source)
    }
}

/// Options of a lookup beyond its key.
#[derive(Debug, Clone, Default)]
pub struct LookupOptions {
    /// Skip filter and every cache, refill them; still coalesced and capped.
    pub bypass: bool,
    /// The caller has seen a version that this instance may not have applied: treat the key as `maybe`, use no cached
    /// absence, join no earlier load.
    pub unapplied_version: bool,
    /// Shortens the keyspace's deadline; never lengthens it.
    pub timeout: Option<Duration>,
    /// The trace that the request belongs to, for the backend.
    pub trace: Option<Arc<TraceContext>>,
}
