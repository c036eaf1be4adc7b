//! Steps five to seven of a lookup: together, from the shared cache, from the backend.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::Keyspace;
use super::call::Row;
use super::error::LookupError;
use super::glance::Glance;
use super::outcome::{Answer, LookupOptions};
use super::single_flight::{Flight, Kind, Loaded, Part};
use crate::backend::FetchContext;
use crate::cache::{CacheError, Ending, Entry, HotEntry, Lease, Seen, Stamp};
use crate::clock::Moment;
use crate::key::{Key, KeyHash};
use crate::labels::{CacheResult, CacheTier, Source, Verdict};

/// What one load is about; fixed when it begins.
#[derive(Debug, Clone)]
pub(super) struct Errand {
    /// Canonical: what caches are asked for.
    pub(super) key: Key,
    /// The spelling that was given, where the backend may have the row under that only. Absences of the canonical form are no answer to it, and its own
    /// are not cached: the cache knows one key and the database may know two.
    pub(super) given: Option<Key>,
    pub(super) hash: KeyHash,
    pub(super) glance: Glance,
    pub(super) options: LookupOptions,
    /// Nobody asked: a value is loaded again ahead of its expiry.
    pub(super) refresh: bool,
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
    /// A value, expired or not.
    pub(super) value: bool,
    /// It has expired.
    pub(super) stale: bool,
    pub(super) mark: bool,
    /// The filter could reject when it was seen, and followed the log of the cache that it was seen in.
    pub(super) trusted: bool,
}

impl Keyspace {
    /// Waits for a load of the key, leading it where nobody does.
    pub(super) async fn load_together(self: &Arc<Self>, errand: &Errand) -> Loaded {
        let budget = errand.options.timeout.map_or(self.deadline, |t| t.min(self.deadline));
        let deadline = Instant::now() + budget;
        let answered = async {
            loop {
                match self.flights.join(errand.hash, errand.shared_as(), errand.kind()) {
                    Part::Lead(flight, ticket) => {
                        // A task of its own: whoever hangs up stops nobody else. It ends by the keyspace's deadline, and so is bounded.
                        tokio::spawn(Arc::clone(self).fly(flight, errand.clone(), false));
                        return ticket.result().await.unwrap_or(Err(LookupError::Cancelled));
                    }
                    Part::Join(ticket) => {
                        self.metrics.coalesced();
                        if let Some(loaded) = ticket.result().await {
                            return loaded;
                        }
                        if let Some(answer) = self.ask_hot(errand) {
                            return Ok(answer);
                        }
                    }
                }
            }
        };
        let mut answered = std::pin::pin!(answered);
        let loaded = timeout_at(deadline - self.reserve(budget), &mut answered).await.unwrap_or_else(|_| {
            // Whoever has no time left may come back for what is loaded; who hangs up does not, and leaves without a word.
            self.flights.keep(errand.hash, errand.shared_as(), errand.kind());
            Err(LookupError::Deadline(budget))
        });
        match loaded {
            Err(error) => self.or_stale(errand, error, deadline).await,
            answer => answer,
        }
    }

    /// Leads a load, round by round, until everybody who waits has been served. `again`: a round has been before.
    pub(super) async fn fly(self: Arc<Self>, flight: Flight, errand: Errand, mut again: bool) {
        let mut round = Some(flight);
        while let Some(flight) = round {
            flight.begin_read();
            let remembered = if again { self.ask_hot(&errand) } else { None };
            let mut lease = None;
            let loaded = match remembered {
                Some(answer) => Some((Ok(answer), Ending::Stored)),
                None => tokio::select! {
                    loaded = self.load(&errand, &mut lease) => Some(loaded),
                    () = flight.abandoned() => None,
                },
            };
            let ending = match loaded {
                Some((loaded, ending)) => {
                    round = flight.settle(&loaded, || self.fill_hot(&errand, &loaded));
                    ending
                }
                None => {
                    round = None;
                    // Nobody has learnt that the key can't be stored: the next one who waits claims the lease.
                    Ending::Stored
                }
            };
            if let Some(lease) = lease {
                self.give_back(&errand.key, &lease, ending).await;
            }
            again = true;
        }
    }

    /// With how it ended for the lease that it was loaded under. That is left with the caller from when it is asked for: a load may be given up anywhere.
    async fn load(self: &Arc<Self>, errand: &Errand, lease: &mut Option<Lease>) -> (Loaded, Ending) {
        let began = Instant::now();
        let held = match self.ask_shared(errand, began).await {
            Shared::Answer(answer) => return (Ok(answer), Ending::Stored),
            Shared::GoOn(held) => held,
        };
        if let Err(error) = self.backend_takes_calls(1) {
            return (Err(error), Ending::NotStored);
        }
        let shared = match held {
            // The other kinds must ask the backend themselves, whoever else does.
            Some(held) if errand.kind() == Kind::Plain => self.take_turn(errand, held, began, lease).await,
            held => Shared::GoOn(held),
        };
        match shared {
            Shared::Answer(answer) => (Ok(answer), Ending::Stored),
            Shared::GoOn(held) => self.load_from_backend(errand, held.as_ref(), began + self.deadline).await,
        }
    }

    async fn load_from_backend(
        self: &Arc<Self>,
        errand: &Errand,
        held: Option<&Held>,
        deadline: Instant,
    ) -> (Loaded, Ending) {
        let rows = self.ask_backend(&[errand.asked()], errand.context(), deadline).await;
        match rows.into_iter().next().unwrap_or(Err(LookupError::Cancelled)) {
            Ok(row) => {
                let (answer, ending) = self.conclude(errand, held, row, deadline).await;
                (Ok(answer), ending)
            }
            Err(error) => (Err(error), Ending::NotStored),
        }
    }

    /// Learns from what the backend said and keeps it.
    pub(super) async fn conclude(
        self: &Arc<Self>,
        errand: &Errand,
        held: Option<&Held>,
        row: Row,
        deadline: Instant,
    ) -> (Answer, Ending) {
        self.learn(errand, held.is_some_and(|held| held.value), row.value.is_some());
        let ending = match held {
            Some(held) => self.fill_shared_by(deadline, errand, &row, held).await,
            None => Ending::NotStored,
        };
        (Answer::fresh(row.value, Source::Backend), ending)
    }

    /// Step 4: the in-process tier.
    pub(super) fn ask_hot(&self, errand: &Errand) -> Option<Answer> {
        let found = self.look_hot(errand);
        if found.is_none() {
            self.count_hot_miss(errand);
        }
        found
    }

    /// [`Keyspace::ask_hot`] that leaves a miss to be counted by whoever goes on.
    pub(super) fn look_hot(&self, errand: &Errand) -> Option<Answer> {
        if errand.options.bypass {
            return None;
        }
        let found = match self.hot.get(errand.hash, &errand.key)? {
            HotEntry::Value(value) => Answer::fresh(Some(value), Source::Hot),
            HotEntry::Absence if self.may_serve_absence(errand) => Answer::fresh(None, Source::Hot),
            HotEntry::Absence => return None,
        };
        self.metrics.cache(CacheTier::Hot, cache_result(Some(&found)));
        Some(found)
    }

    pub(super) fn count_hot_miss(&self, errand: &Errand) {
        if !errand.options.bypass {
            self.metrics.cache(CacheTier::Hot, CacheResult::Miss);
        }
    }

    /// Step 6: Redis, or the cache in this process that stands in for it.
    async fn ask_shared(self: &Arc<Self>, errand: &Errand, began: Instant) -> Shared {
        let seen = self.within_patience(began, self.shared.get(&errand.key)).await;
        self.judge_shared(errand, seen)
    }

    /// What the shared cache answers, as long as that leaves the backend its time: one that hangs takes no more of a lookup than waiting for
    /// another's load may, however long `redis.timeout` is, and keeps no load alive past its deadline.
    pub(super) async fn within_patience<T>(
        &self,
        began: Instant,
        asked: impl Future<Output = Result<T, CacheError>>,
    ) -> Result<T, CacheError> {
        let patience = self.lease_times.patience;
        timeout_at(began + patience, asked).await.unwrap_or(Err(CacheError::Timeout(patience)))
    }

    /// What a read of the shared cache comes to, counted.
    pub(super) fn judge_shared(self: &Arc<Self>, errand: &Errand, seen: Result<Seen, CacheError>) -> Shared {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                tracing::debug!(%error, "the shared cache did not answer");
                self.metrics.cache(CacheTier::Redis, CacheResult::Error);
                return Shared::GoOn(None);
            }
        };
        if errand.options.bypass {
            // It reads the entry only to be able to replace it.
            return self.usable(errand, seen);
        }
        if let Some(expiry) = seen.expiry {
            self.refresh_if_due(errand, expiry, &seen.stamp);
        }
        let shared = self.usable(errand, seen);
        let answer = if let Shared::Answer(answer) = &shared { Some(answer) } else { None };
        self.metrics.cache(CacheTier::Redis, cache_result(answer));
        shared
    }

    /// What of an entry may be used.
    pub(super) fn usable(&self, errand: &Errand, seen: Seen) -> Shared {
        // In this order: who has just taken in another log is not trusted.
        let follows = self.follows(&seen.stamp);
        let held = Held {
            stamp: seen.stamp,
            value: matches!(seen.entry, Entry::Value(_) | Entry::Stale { .. }),
            stale: matches!(seen.entry, Entry::Stale { .. }),
            mark: matches!(seen.entry, Entry::Mark(_)),
            trusted: follows && self.glance(errand.hash, Moment::now()).trusted,
        };
        let value = match seen.entry {
            _ if errand.options.bypass => return Shared::GoOn(Some(held)),
            Entry::Value(value) => Some(value),
            // Asked after the right to reject, which comes back after what is believed is said.
            Entry::Absence
                if follows && self.may_serve_absence(errand) && self.shared.believes_absence(&held.stamp) =>
            {
                None
            }
            Entry::Absence | Entry::Mark(_) | Entry::Nothing | Entry::Stale { .. } => return Shared::GoOn(Some(held)),
        };
        Shared::Answer(Answer::fresh(value, Source::Redis))
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
    /// The key with the spelling that was given, for the backend.
    pub(super) fn asked(&self) -> Key {
        self.given.as_ref().map_or_else(|| self.key.clone(), |given| self.key.spelled(given))
    }

    /// Whether a value that was told by `source` is known to be of the canonical spelling.
    pub(super) fn may_keep(&self, source: Source) -> bool {
        self.given.is_none() || source == Source::Redis
    }

    /// What a load is shared under: one that tries another spelling is of no use to who did not give it, nor the other way round.
    pub(super) fn shared_as(&self) -> &Key {
        self.given.as_ref().unwrap_or(&self.key)
    }

    /// What the backend is told of the lookup.
    pub(super) fn context(&self) -> FetchContext {
        FetchContext { trace: self.options.trace.clone(), ..FetchContext::default() }
    }

    pub(super) fn kind(&self) -> Kind {
        match self.options {
            _ if self.refresh => Kind::Refresh,
            LookupOptions { bypass: true, .. } => Kind::Bypass,
            LookupOptions { unapplied_version: true, .. } => Kind::Fresh,
            _ => Kind::Plain,
        }
    }

    /// Whether the filter answers this lookup.
    pub(super) fn rejected(&self) -> bool {
        self.glance.probe.effective() == Verdict::Absent && !self.options.bypass && !self.options.unapplied_version
    }
}
