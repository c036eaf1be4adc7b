//! Whether a process may start from a snapshot, and what it has to do before it may believe its filter.
//!
//! The filter in a snapshot holds every key that it had to hold when its copy began. What came later is found by what is judged here: announces in the
//! delta log, or in the journal where there is none; rows by polls; and where nothing but a scan tells, by the scan's age, which goes on counting. So the
//! filter is put in force at once, and the keyspace's standing, which knows of none of these yet, keeps it from rejecting until they have come.

use std::path::Path;
use std::time::Duration;

use super::age;
use crate::clock::Moment;
use crate::config::Freshness;
use crate::filter::snapshot::{
    HASH, Header, Hex, JournalMark, LogMark, PollMark, ReadError, RestoreError, WatermarkText, open,
};
use crate::filter::{Filter, Room};
use crate::fleet::{EntryId, LogPlace};
use crate::key::{KeyForm, KeySecret};
use crate::keyspace::{Extent, PollPlace};
use crate::redis::LogIdentity;
use crate::source::Watermark;

/// What a snapshot must fit.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Whose it must be.
    pub keyspace: String,
    /// Fingerprint of what the promise rests on.
    pub basis: u64,
    /// The configured form of keys; `None`: the source tells it.
    pub form: Option<KeyForm>,
    /// What the promise rests on.
    pub freshness: Freshness,
    /// For how long, where it rests on scans.
    pub max_staleness: Duration,
    /// Whether instances tell each other of announces.
    pub has_log: bool,
    /// Sources that are polled.
    pub polled_sources: usize,
    /// Which announces the journal holds; `None`: that is not known.
    pub journal: Option<Extent>,
}

/// A filter to start from.
#[derive(Debug)]
pub struct Restored {
    pub(crate) filter: Filter,
    pub(crate) generation: u64,
    pub(crate) secret: KeySecret,
    pub(crate) counted: Vec<u64>,
    /// Its keyspace had proven a filter.
    pub(crate) proven: bool,
    pub(crate) judged: Judged,
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
    /// Its keys are hashed otherwise.
    #[error("its keys are hashed by {0:?}")]
    Hash(String),
    /// Its keys are written otherwise.
    #[error("its keys are of form {0:?}")]
    Form(String),
    /// Its keyspace was configured otherwise.
    #[error("source, backend, filter or promise of the keyspace were configured otherwise when it was taken")]
    Basis,
    /// Nobody knows how old it is.
    #[error("it was taken in the future: a clock was set back")]
    Future,
    /// Its scan is too old for the promise.
    #[error("its scan began {} ago, longer than max_staleness", humantime::format_duration(Duration::from_secs(.0.as_secs())))]
    Aged(Duration),
    /// Nothing would tell that the key set was replaced meanwhile.
    #[error("with freshness \"static\" only a scan tells whether the keys are still the same")]
    Static,
    /// What was announced since is not known.
    #[error("the announce journal does not hold what was announced since")]
    Journal,
    /// The journal is gone, is another one, or ends before what the snapshot knows of it.
    #[error("the announce journal ends before records that it held when the snapshot was taken")]
    JournalLost,
    /// The journal is damaged.
    #[error("the announce journal is damaged")]
    DamagedJournal,
    /// It does not tell from where to go on.
    #[error("it does not tell from where on {0}")]
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
    #[error("Redis has not told the secret under which the fleet hashes its keys")]
    NoSecret,
}

impl Refused {
    /// Whether no later process may start from it either, were it configured as before again: what was announced to whom meanwhile nobody knows.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Basis | Self::Form(_) | Self::Secret | Self::DamagedJournal | Self::JournalLost)
    }
}

/// Reads the snapshot at `path`, where there is one, and judges it. `room` is told how many bytes each layer takes, says whether there is memory for
/// them, and gives what the filter asks when it grows.
///
/// # Errors
/// [`Refused`].
pub fn restore(
    path: &Path,
    expected: &Expected,
    room: impl FnOnce(&[u64]) -> Result<Room, String>,
) -> Result<Option<Restored>, Refused> {
    let opened = match open(path) {
        Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // Before the words: nobody waits for those of a filter that can't be used.
    let judged = judge(&opened.header, expected, Moment::now())?;
    let room = room(&opened.sizes()).map_err(Refused::Memory)?;
    let snapshot = opened.load()?;
    let Header { secret, generation, counted, proven, .. } = &snapshot.header;
    let (secret, generation, counted, proven) = (KeySecret::new(secret.0), *generation, counted.clone(), *proven);
    let filter = snapshot.into_filter(room)?;
    Ok(Some(Restored { filter, generation, secret, counted, proven, judged }))
}

/// What the header says, in this process's terms.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) form: KeyForm,
    pub(crate) scan_started: Moment,
    /// Since the copy began.
    pub(crate) age: Duration,
    pub(crate) log: Option<LogPlace>,
    pub(crate) polls: Vec<PollPlace>,
    pub(crate) journal_next: u64,
}

fn judge(header: &Header, expected: &Expected, now: Moment) -> Result<Judged, Refused> {
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
        // All that was announced since stands in the log, to whichever instance; the follower sees whether it does.
        log.ok_or(Refused::Place("the delta log is to be read"))?;
    } else {
        let journal = expected
            .journal
            .filter(|journal| journal.id == id.0 && *next <= journal.next)
            .ok_or(Refused::JournalLost)?;
        (journal.first <= *next).then_some(()).ok_or(Refused::Journal)?;
    }
    Ok(Judged { form, scan_started, age, log, polls, journal_next: *next })
}

fn log_place(mark: &LogMark) -> LogPlace {
    let LogMark { identity, millis, sequence, made } = *mark;
    LogPlace { identity: LogIdentity(identity.0), applied: EntryId { millis, sequence }, made }
}

/// All but when it began.
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

/// The inverse of what the judge reads.
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
