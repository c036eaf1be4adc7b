//! Steps five to seven of a lookup: together, from the shared cache, from the backend.

use std::sync::Arc;

use tokio::time::Instant;

use super::call::Row;
use super::error::LookupError;
use super::outcome::{Answer, LookupOptions, Probe};
use super::single_flight::{Flight, Kind, Loaded, Part};
use super::{Glance, Guard};
use crate::cache::{CacheError, Entry, HotEntry, Seen, Stamp};
use crate::key::{Key, KeyHash};
use crate::words::{CacheResult, CacheTier, Source, State, Verdict};

/// What one load is about; fixed when it begins.
#[derive(Debug, Clone)]
pub(super) struct Errand {
    pub(super) key: Key,
    pub(super) hash: KeyHash,
    pub(super) glance: Glance,
    pub(super) options: LookupOptions,
}

/// What the shared cache told.
pub(super) enum Shared {
    Answer(Answer),
    /// Go on to the backend; what a fill needs to know of the entry, `None` where the cache did not answer.
    GoOn(Option<Held>),
}

/// The entry that a fill may replace.
pub(super) struct Held {
    pub(super) stamp: Stamp,
    pub(super) value: bool,
    pub(super) mark: bool,
}

impl Guard {
    /// Waits for a load of the key, leading it where nobody does.
    pub(super) async fn load_together(self: &Arc<Self>, errand: Errand) -> Loaded {
        let budget = errand.options.timeout.map_or(self.deadline, |t| t.min(self.deadline));
        let answered = async {
            loop {
                match self.flights.join(&errand.key, errand.kind()) {
                    Part::Lead(flight, ticket) => {
                        // A task of its own: whoever hangs up stops nobody. It ends by the keyspace's deadline, and so is bounded.
                        tokio::spawn(Arc::clone(self).fly(flight, errand.clone(), false));
                        return ticket.result().await.unwrap_or(Err(LookupError::Cancelled));
                    }
                    Part::Join(ticket) => {
                        self.metrics.coalesced();
                        if let Some(loaded) = ticket.result().await {
                            return loaded;
                        }
                        if let Some(answer) = self.ask_hot(&errand) {
                            return Ok(answer);
                        }
                    }
                }
            }
        };
        tokio::time::timeout(budget, answered).await.unwrap_or(Err(LookupError::Deadline(budget)))
    }

    /// Leads a load, round by round, until everybody who waits has been served. `again`: a round has been before.
    pub(super) async fn fly(self: Arc<Self>, flight: Flight, errand: Errand, mut again: bool) {
        let mut round = Some(flight);
        while let Some(flight) = round {
            flight.begin_read();
            let remembered = if again { self.ask_hot(&errand) } else { None };
            let loaded = match remembered {
                Some(answer) => Ok(answer),
                None => self.load(&errand).await,
            };
            round = flight.settle(&loaded, || self.fill_hot(&errand, &loaded));
            again = true;
        }
    }

    async fn load(&self, errand: &Errand) -> Loaded {
        let deadline = Instant::now() + self.deadline;
        let held = match self.ask_shared(errand).await {
            Shared::Answer(answer) => return Ok(answer),
            Shared::GoOn(held) => held,
        };
        let rows = self.ask_backend(std::slice::from_ref(&errand.key), errand.options.trace.clone(), deadline).await;
        let row = rows.into_iter().next().unwrap_or(Err(LookupError::Cancelled));
        self.conclude(errand, held.as_ref(), row, deadline).await
    }

    /// Learns from what the backend said and keeps it.
    pub(super) async fn conclude(&self, errand: &Errand, held: Option<&Held>, row: Row, deadline: Instant) -> Loaded {
        let value = row?;
        self.learn(errand, value.is_some());
        if let Some(held) = held {
            self.fill_shared_by(deadline, errand, value.as_ref(), held).await;
        }
        Ok(Answer { value, source: Source::Backend })
    }

    /// Step 4: the in-process tier.
    pub(super) fn ask_hot(&self, errand: &Errand) -> Option<Answer> {
        if errand.options.bypass {
            return None;
        }
        let found = match self.hot.get(errand.hash, &errand.key) {
            Some(HotEntry::Value(value)) => Some(Answer { value: Some(value), source: Source::Hot }),
            Some(HotEntry::Absence) if self.may_serve_absence(errand) => Some(Answer { value: None, source: Source::Hot }),
            _ => None,
        };
        self.metrics.cache(CacheTier::Hot, cache_result(found.as_ref()));
        found
    }

    /// Step 6: Redis, or the cache in this process that stands in for it.
    async fn ask_shared(&self, errand: &Errand) -> Shared {
        self.judge_shared(errand, self.shared.get(&errand.key).await)
    }

    pub(super) fn judge_shared(&self, errand: &Errand, seen: Result<Seen, CacheError>) -> Shared {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                tracing::debug!(%error, "the shared cache did not answer");
                self.metrics.cache(CacheTier::Redis, CacheResult::Error);
                return Shared::GoOn(None);
            }
        };
        let held = Held { stamp: seen.stamp, value: matches!(seen.entry, Entry::Value(_)), mark: matches!(seen.entry, Entry::Mark(_)) };
        let answer = match seen.entry {
            // A bypass reads the entry only to be able to replace it.
            _ if errand.options.bypass => return Shared::GoOn(Some(held)),
            Entry::Value(value) => Some(Answer { value: Some(value), source: Source::Redis }),
            Entry::Absence if self.may_serve_absence(errand) => Some(Answer { value: None, source: Source::Redis }),
            Entry::Absence | Entry::Mark(_) | Entry::Nothing => None,
        };
        self.metrics.cache(CacheTier::Redis, cache_result(answer.as_ref()));
        answer.map_or(Shared::GoOn(Some(held)), Shared::Answer)
    }
}

fn cache_result(answer: Option<&Answer>) -> CacheResult {
    match answer {
        Some(Answer { value: Some(_), .. }) => CacheResult::Hit,
        Some(_) => CacheResult::Absent,
        None => CacheResult::Miss,
    }
}

impl Errand {
    pub(super) fn kind(&self) -> Kind {
        match self.options {
            LookupOptions { bypass: true, .. } => Kind::Bypass,
            LookupOptions { unapplied_version: true, .. } => Kind::Fresh,
            _ => Kind::Plain,
        }
    }

    /// Whether the filter answers this lookup.
    pub(super) fn rejected(&self) -> bool {
        let Probe { state, .. } = self.glance.probe;
        state == State::Enforcing && self.glance.probe.verdict == Verdict::Absent && !self.options.bypass && !self.options.unapplied_version
    }
}
