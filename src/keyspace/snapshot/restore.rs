//! Decides whether a process may start from a snapshot, and what must happen before it trusts the filter.
//!
//! A snapshot's filter contains every key that it had to contain when its copy began. Later keys come from the
//! positions that are validated here: announces from the delta log, or from the journal if there is none; rows from
//! polls. If only a scan counts, the scan's age counts on. So the filter becomes active at once, and the freshness
//! tracker, which knows none of these yet, keeps it from answering 404 until they have come.

use std::path::Path;
use std::time::Duration;

use super::age;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::filter::snapshot::{
    HASH, Header, Hex, JournalMark, LogMark, PollMark, ReadError, RestoreError, WatermarkText, open,
};
use crate::filter::{Filter, GrowthBudget};
use crate::fleet::{EntryId, LogPlace};
use crate::key::{KeyForm, KeySecret};
use crate::keyspace::journal::Extent;
use crate::keyspace::polls::PollPlace;
use crate::redis::LogIdentity;
use crate::source::Watermark;

/// What a snapshot must fit.
#[derive(Debug, Clone)]
pub struct Expected {
    /// The keyspace that it must belong to.
    pub keyspace: String,
    /// Fingerprint of what the promise depends on.
    pub basis: u64,
    /// The configured form of keys; `None`: the form of the source's column.
    pub form: Option<KeyForm>,
    /// What the promise depends on.
    pub freshness: Freshness,
    /// The oldest scan that keeps the promise, if it depends on scans.
    pub max_staleness: Duration,
    /// False if nothing is announced: neither log nor journal has to complete the filter.
    pub announces: bool,
    /// True if instances share announces through the delta log.
    pub has_log: bool,
    /// Sources that are polled.
    pub polled_sources: usize,
    /// The records that the journal holds; `None`: unknown.
    pub journal: Option<Extent>,
}

/// A filter to start from.
#[derive(Debug)]
pub struct Restored {
    pub(crate) filter: Filter,
    pub(crate) generation: u64,
    pub(crate) secret: KeySecret,
    pub(crate) counted: Vec<u64>,
    /// True if its keyspace had finished a proof.
    pub(crate) proven: bool,
    pub(crate) validated: Validated,
}

impl Restored {
    /// The secret under which its keys are hashed.
    #[must_use]
    pub const fn secret(&self) -> &KeySecret {
        &self.secret
    }
}

/// Why a process does not start from a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no room for its filter.
    #[error("its filter does not fit: {0}")]
    Memory(String),
    /// It makes no filter.
    #[error(transparent)]
    Filter(#[from] RestoreError),
    /// It is of another keyspace.
    #[error("it is of keyspace {0:?}")]
    Keyspace(String),
    /// Its keys are hashed by another function.
    #[error("its keys are hashed by {0:?}")]
    Hash(String),
    /// Its keys have another form.
    #[error("its keys have the form {0:?}")]
    Form(String),
    /// Its keyspace had another configuration.
    #[error("source, backend, filter or promise of the keyspace were configured differently when it was taken")]
    Basis,
    /// Its age is unknown.
    #[error("it was taken in the future: a clock was set back")]
    Future,
    /// Its scan is too old for the promise.
    #[error("its scan began {} ago, longer than max_staleness", in_seconds(*.0))]
    Aged(Duration),
    /// Nothing would show that the key set was replaced meanwhile.
    #[error("with freshness \"static\" only a scan shows whether the keys are still the same")]
    Static,
    /// Later announces are missing.
    #[error("the announce journal does not hold what was announced since")]
    Journal,
    /// The journal is missing, is another one, or ends before records that the snapshot needs.
    #[error("the announce journal ends before records that it held when the snapshot was taken")]
    JournalLost,
    /// The journal is damaged.
    #[error("the announce journal is damaged")]
    DamagedJournal,
    /// It lacks a position to continue from.
    #[error("it lacks the position from which {0}")]
    Place(&'static str),
    /// The fleet hashes under another secret.
    #[error("the fleet hashes its keys under another secret")]
    Secret,
    /// The process had to serve.
    #[error("reading the snapshots took too long")]
    Late,
    /// Reading it was not finished.
    #[error("reading it panicked")]
    Panicked,
    /// The fleet's secret is not known.
    #[error("the secret under which the fleet hashes its keys could not be read from Redis")]
    NoSecret,
}

impl Refused {
    /// Returns true if no later process may start from it either, even under the earlier configuration: announces and
    /// drops since then are unknown.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Basis | Self::Form(_) | Self::Secret | Self::DamagedJournal | Self::JournalLost)
    }
}

fn in_seconds(duration: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_secs(duration.as_secs()))
}

/// Reads and validates the snapshot at `path`, if there is one. `room` receives the bytes of each layer, decides
/// whether there is memory for them, and returns the budget from which the filter grows.
///
/// # Errors
/// [`Refused`].
pub fn restore(
    path: &Path,
    expected: &Expected,
    room: impl FnOnce(&[u64]) -> Result<GrowthBudget, String>,
) -> Result<Option<Restored>, Refused> {
    let opened = match open(path) {
        Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // Before the words are read: a filter that can't be used needs none.
    let validated = validate(&opened.header, expected, Moment::now())?;
    let room = room(&opened.sizes()).map_err(Refused::Memory)?;
    let snapshot = opened.load()?;
    let Header { secret, generation, counted, proven, .. } = &snapshot.header;
    let (secret, generation, counted, proven) = (KeySecret::new(secret.0), *generation, counted.clone(), *proven);
    let filter = snapshot.into_filter(room)?;
    Ok(Some(Restored { filter, generation, secret, counted, proven, validated }))
}

/// The header, in this process's terms.
#[derive(Debug)]
pub(crate) struct Validated {
    pub(crate) form: KeyForm,
    pub(crate) scan_started: Moment,
    /// Since the copy began.
    pub(crate) age: Duration,
    pub(crate) log: Option<LogPlace>,
    pub(crate) polls: Vec<PollPlace>,
    pub(crate) journal_next: u64,
}

fn validate(header: &Header, expected: &Expected, now: Moment) -> Result<Validated, Refused> {
    if header.keyspace != expected.keyspace {
        return Err(Refused::Keyspace(header.keyspace.clone()));
    }
    if header.hash != HASH {
        return Err(Refused::Hash(header.hash.clone()));
    }
    let form = KeyForm::ALL.into_iter().find(|form| form.as_str() == header.key_form);
    let form = form.filter(|form| expected.form.is_none_or(|configured| configured == *form));
    let form = form.ok_or_else(|| Refused::Form(header.key_form.clone()))?;
    if header.basis.0 != expected.basis.to_be_bytes() {
        return Err(Refused::Basis);
    }
    if expected.freshness == Freshness::Static {
        return Err(Refused::Static);
    }
    let age = age::since(&header.taken, now).ok_or(Refused::Future)?;
    let ago = |nanos: u64| now.minus(age.saturating_add(Duration::from_nanos(nanos))).ok_or(Refused::Future);
    let scan_started = ago(header.scan_age)?;
    let scan_age = now.since(scan_started);
    if expected.freshness == Freshness::Rebuilt && scan_age >= expected.max_staleness {
        return Err(Refused::Aged(scan_age));
    }
    let polls = header.polls.iter().flatten();
    let polls = polls
        .map(|mark| Ok(PollPlace { began: ago(mark.age)?, ..place(mark)? }))
        .collect::<Result<Vec<_>, Refused>>()?;
    if expected.freshness == Freshness::Polled && polls.len() != expected.polled_sources {
        return Err(Refused::Place("its sources are to be polled"));
    }
    let log = header.log.as_ref().filter(|_| expected.has_log).map(log_place);
    let JournalMark { id, next } = &header.journal;
    if expected.has_log {
        // All later announces are in the log; the follower checks that it reaches back far enough.
        log.ok_or(Refused::Place("the delta log is to be read"))?;
    } else if expected.announces {
        let journal = expected
            .journal
            .filter(|journal| journal.id == id.0 && *next <= journal.next)
            .ok_or(Refused::JournalLost)?;
        (journal.first <= *next).then_some(()).ok_or(Refused::Journal)?;
    }
    Ok(Validated { form, scan_started, age, log, polls, journal_next: *next })
}

fn log_place(mark: &LogMark) -> LogPlace {
    let LogMark { identity, millis, sequence, made } = *mark;
    LogPlace { identity: LogIdentity(identity.0), applied: EntryId { millis, sequence }, made }
}

/// Everything but its start.
fn place(mark: &PollMark) -> Result<PollPlace, Refused> {
    let from = match &mark.watermark {
        WatermarkText::Integer(digits) => {
            Watermark::Integer(digits.parse().map_err(|_| Refused::Place("its sources are to be polled"))?)
        }
        WatermarkText::Timestamp(micros) => Watermark::Timestamp(*micros),
        WatermarkText::Text(text) => Watermark::Text(text.clone()),
    };
    Ok(PollPlace { from, began: Moment::NEVER, open_for: Duration::from_nanos(mark.open_for) })
}

/// The inverse of `log_place`.
pub(crate) fn log_mark(place: LogPlace) -> LogMark {
    LogMark {
        identity: Hex(place.identity.0),
        millis: place.applied.millis,
        sequence: place.applied.sequence,
        made: place.made,
    }
}

pub(crate) fn poll_mark(place: &PollPlace, now: Moment) -> PollMark {
    let watermark = match &place.from {
        Watermark::Integer(number) => WatermarkText::Integer(number.to_string()),
        Watermark::Timestamp(micros) => WatermarkText::Timestamp(*micros),
        Watermark::Text(text) => WatermarkText::Text(text.clone()),
    };
    PollMark { watermark, age: nanos(now.since(place.began)), open_for: nanos(place.open_for) }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
