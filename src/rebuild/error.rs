//! Why a build failed.

use std::borrow::Cow;

use super::memory::NoMemory;
use crate::backend::SetError;
use crate::filter::AllocError;
use crate::key::Key;
use crate::keyspace::CantBegin;
use crate::labels::RebuildOutcome;
use crate::source::SourceError;

/// Why a build did not end with a swap.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The source could not be read to its end.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The key form is neither configured nor known from the source.
    #[error(
        "the source's column type does not determine the form of the keys: set `key` in the keyspace's configuration"
    )]
    UnknownForm,
    /// The number of keys is neither configured nor known from the source.
    #[error("the source can't count its keys before the scan: set filter.expected_keys")]
    UnknownSize,
    /// No filter of that size.
    #[error(transparent)]
    Filter(#[from] AllocError),
    /// Filter, candidate and caches would not fit the memory limit.
    #[error(transparent)]
    Memory(#[from] NoMemory),
    /// A key can't be held in the set.
    #[error(transparent)]
    Set(#[from] SetError),
    /// No keys at all.
    #[error("the source has no keys; if that is right, set source.allow_empty = true")]
    Empty,
    /// Far fewer keys than before.
    #[error(
        "{} has {keys} keys, fewer than min_keys_ratio = {ratio} of the {reference} {of}; if that is right, rebuild \
         once with {{\"accept_fewer\": true}}",
        name_of(*member)
    )]
    Collapsed {
        /// Which of several sources; `None`: all of them.
        member: Option<usize>,
        /// Keys read.
        keys: u64,
        /// Keys to compare with.
        reference: u64,
        /// Where the reference is from.
        of: &'static str,
        /// The setting.
        ratio: f64,
    },
    /// The filter is fuller than its capacity.
    #[error(
        "the candidate holds about {items} keys but was sized for {capacity}: the key set grew during the scan, or \
         filter.expected_keys is too low"
    )]
    Overfull {
        /// Keys in it.
        items: u64,
        /// Its capacity.
        capacity: u64,
    },
    /// Existing rows are not in the candidate.
    #[error(
        "{count} keys that the backend holds are not among the source's, first {first:?}: does source.query list \
         every key that backend.query finds?"
    )]
    MissingKeys {
        /// How many.
        count: usize,
        /// One of them.
        first: Key,
    },
    /// Source and backend disagree on keys.
    #[error("{0}")]
    Mismatch(String),
    /// The backend did not answer a check.
    #[error("the backend did not answer a check of the candidate: {0}")]
    Backend(#[from] crate::backend::BackendError),
    /// The build could not begin.
    #[error(transparent)]
    Begin(#[from] CantBegin),
    /// The build was cancelled, or its fill thread died.
    #[error("the build was cancelled")]
    Cancelled,
}

impl BuildError {
    /// The label that metrics use.
    #[must_use]
    pub const fn outcome(&self) -> RebuildOutcome {
        match self {
            Self::Source(_) | Self::UnknownForm | Self::UnknownSize | Self::Set(_) => RebuildOutcome::SourceFailed,
            Self::Filter(_) | Self::Memory(_) | Self::Begin(CantBegin::Unheld) => RebuildOutcome::NoMemory,
            Self::Empty => RebuildOutcome::Empty,
            Self::Collapsed { .. } => RebuildOutcome::Collapsed,
            Self::Overfull { .. } => RebuildOutcome::Overfull,
            Self::MissingKeys { .. } => RebuildOutcome::MissingKeys,
            Self::Mismatch(_) => RebuildOutcome::Mismatch,
            Self::Backend(_) => RebuildOutcome::BackendFailed,
            Self::Begin(CantBegin::NoSecret) => RebuildOutcome::NoSecret,
            Self::Begin(CantBegin::NoLog) => RebuildOutcome::NoLog,
            Self::Begin(CantBegin::Busy(_)) | Self::Cancelled => RebuildOutcome::Cancelled,
        }
    }

    /// The reason for the telemetry listener: without database error text.
    #[must_use]
    pub fn public_reason(&self) -> Cow<'static, str> {
        match self {
            Self::Memory(error) => error.to_string().into(),
            _ => self.reason().into(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Source(error) => error.public_reason(),
            Self::Begin(CantBegin::Busy(_)) | Self::Cancelled => "the build was cancelled",
            Self::Begin(CantBegin::Unheld) => {
                "more announces of other instances are within their commit window than fit: a build would lack some"
            }
            Self::Begin(CantBegin::NoSecret) => "the keyspace secret could not be read from Redis yet",
            Self::Begin(CantBegin::NoLog) => "the delta log could not be read from Redis yet",
            Self::UnknownSize => "the number of keys is not known: set filter.expected_keys",
            Self::UnknownForm => "the key form is not known: set `key`",
            Self::Set(_) => "a key can't be held in the set; the log and the admin API show why",
            Self::Filter(_) | Self::Memory(_) => "filter and keys do not fit the memory limit",
            Self::Empty => "the source has no keys",
            Self::Collapsed { .. } => {
                "the source has far fewer keys than filter.expected_keys or the last count: lower or remove that, or \
                 accept fewer once by the admin API"
            }
            Self::Overfull { .. } => "the key set grew during the scan, or filter.expected_keys is too low",
            Self::MissingKeys { .. } => "the source lacks keys that the backend holds",
            Self::Mismatch(_) => "source and backend disagree on keys",
            Self::Backend(_) => "the backend did not answer a check",
        }
    }
}

fn name_of(member: Option<usize>) -> String {
    member.map_or_else(|| "the source".to_owned(), |index| format!("source[{index}]"))
}
