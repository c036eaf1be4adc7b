//! Steps five to seven of a lookup: together, from the shared cache, from the backend.

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use tokio::time::{Instant, timeout_at};

use super::error::LookupError;
use super::outcome::{Answer, LookupOptions, Probe};
use super::single_flight::{Flight, Kind, Loaded, Part};
use super::{Glance, Guard};
use crate::backend::{FetchContext, Value};
use crate::cache::{CacheError, Entry, HotEntry, Mark, Seen, Stamp, Stored, jittered};
use crate::clock::Moment;
use crate::key::{Key, KeyHash};
use crate::words::{BackendOutcome, CacheResult, CacheTier, Source, State, Verdict};

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
    stamp: Stamp,
    value: bool,
    mark: bool,
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
        let value = self.ask_backend(errand, deadline).await?;
        self.learn(errand, value.is_some());
        if let Some(held) = held {
            self.fill_shared_by(deadline, errand, value.as_ref(), &held).await;
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

    /// Step 7: the backend, within its cap and the deadline. A failure is never an absence.
    async fn ask_backend(&self, errand: &Errand, deadline: Instant) -> Result<Option<Value>, LookupError> {
        let _permit = self.gate.enter(deadline).await.map_err(|reason| {
            self.metrics.shed(reason);
            LookupError::Shed(reason)
        })?;
        let started = StdInstant::now();
        let inflight = self.metrics.backend_inflight();
        let context = FetchContext { trace: errand.options.trace.clone(), deadline: Some(deadline) };
        let fetched = timeout_at(deadline, self.backend.fetch(&errand.key, &context)).await;
        drop(inflight);
        let outcome = match &fetched {
            Ok(Ok(Some(_))) => BackendOutcome::Found,
            Ok(Ok(None)) => BackendOutcome::Absent,
            Ok(Err(error)) => error.outcome(),
            Err(_) => BackendOutcome::Timeout,
        };
        self.metrics.backend(outcome, started.elapsed());
        match fetched {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.trouble.backend_failed(&error);
                Err(LookupError::Backend(Arc::new(error)))
            }
            Err(_) => Err(LookupError::Deadline(self.deadline)),
        }
    }

    /// What the backend's answer says of the filter.
    pub(super) fn learn(&self, errand: &Errand, found: bool) {
        let now = Moment::now();
        let probe = errand.glance.probe;
        if found {
            self.proven.found(errand.hash, &errand.key, now);
        }
        match (probe.generation, probe.verdict, found) {
            (0, ..) | (_, Verdict::Absent, false) => {}
            (_, Verdict::Maybe, true) => self.storm.found(now),
            (_, Verdict::Maybe, false) => {
                if !self.is_in_filter_by_right(errand, now) {
                    self.false_positive();
                    if let Some(believed) = self.storm.absent(errand.hash, &errand.key, now) {
                        self.storm_began(believed);
                    }
                }
            }
            (_, Verdict::Absent, true) => self.false_negative(errand, now),
        }
    }

    /// Whether the filter holds an absent key by right: one that was deleted, or whose row is still to come.
    pub(super) fn is_in_filter_by_right(&self, errand: &Errand, now: Moment) -> bool {
        self.recent.contains(errand.hash, now) || self.deleted.contains(errand.hash)
    }

    pub(super) fn false_positive(&self) {
        self.metrics.false_positive();
        self.observed.false_positive();
    }

    /// The filter had said absent of a row that exists.
    pub(super) fn false_negative(&self, errand: &Errand, now: Moment) {
        // An announce may have come between probe and read: then the filter knows the key by now and was never wrong.
        if self.active.probe(errand.hash.get()).is_none_or(|(maybe, _)| maybe) {
            return;
        }
        self.active.insert(errand.hash.get());
        self.metrics.false_negative();
        self.observed.false_negative();
        if self.standing.promises_every_key() {
            tracing::error!(keyspace = %self.name, "a row exists that the filter had called absent: the keyspace stops rejecting until a later scan");
            self.standing.broken(now, "a row was found that the filter had called absent; a rebuild mends it".into());
            self.hot.drop_all_absences();
            self.rebuild_wanted.notify_one();
        }
    }

    /// Takes back the absences that were cached before the storm was seen: they may be of rows that exist.
    fn storm_began(&self, believed: Vec<(KeyHash, Key)>) {
        tracing::error!(keyspace = %self.name, "most keys that pass the filter are absent at the backend: no absence is cached while it looks empty, lagging or broken");
        self.metrics.absence_storm();
        self.hot.drop_all_absences();
        let (shared, life) = (Arc::clone(&self.shared), self.recent.life());
        // Beside the lookup, which is not to wait for it; at most one of it a storm.
        tokio::spawn(async move {
            for (_, key) in believed {
                if let Err(error) = shared.put_mark(&key, Mark::Dropped, life).await {
                    tracing::warn!(%error, "an absence from the beginning of an absence storm may still be cached");
                }
            }
        });
    }

    /// What is not stored by the deadline is dropped: the answer is known and goes out.
    ///
    /// Nothing is sent once it has passed, as after a pause of the whole process: marks outlive a window by one deadline and no more.
    pub(super) async fn fill_shared_by(&self, deadline: Instant, errand: &Errand, value: Option<&Value>, held: &Held) {
        if Instant::now() < deadline {
            let _ = timeout_at(deadline, self.fill_shared(errand, value, held)).await;
        }
    }

    async fn fill_shared(&self, errand: &Errand, value: Option<&Value>, held: &Held) {
        let stored = match value {
            Some(value) if value.body.len() as u64 <= self.limits.max_value_bytes => {
                // In a mark's place a value lives at least as long, else another instance could store an absence where the mark forbade it.
                let shortest = if held.mark { self.recent.life() } else { Duration::ZERO };
                let ttl = jittered(self.limits.ttl, self.limits.jitter).max(shortest);
                self.shared.put_value(&errand.key, value, ttl, &held.stamp).await
            }
            // Only a bypass gets here past a value: the row is gone, though nobody said so.
            None if held.value => self.shared.put_mark(&errand.key, Mark::Dropped, self.recent.life()).await.map(|()| Stored::Yes),
            None if self.may_store_absence(errand) => {
                let ttl = jittered(self.limits.absent_ttl, self.limits.jitter).min(self.limits.longest_shared_absence);
                self.shared.put_absence(&errand.key, ttl, &held.stamp).await
            }
            _ => return,
        };
        if let Err(error) = stored {
            tracing::debug!(%error, "the shared cache did not store an answer");
        }
    }

    /// Runs under the flight's lock, so that no announce or drop can come between the check of the flight and the store.
    /// For an absence: store, then look at the memory again, in one stretch that nothing can cut; an announce remembers first and drops second,
    /// so one of the two sees the other.
    pub(super) fn fill_hot(&self, errand: &Errand, loaded: &Loaded) {
        if errand.options.bypass && loaded.is_ok() {
            self.hot.drop_entry(errand.hash);
        }
        match loaded {
            Ok(Answer { value: Some(value), source: Source::Redis | Source::Backend })
                if value.body.len() as u64 <= self.limits.max_value_bytes =>
            {
                self.hot.put_value(errand.hash, errand.key.clone(), value.clone(), jittered(self.limits.hot_ttl, self.limits.jitter));
            }
            Ok(Answer { value: None, source: Source::Redis | Source::Backend }) if self.may_store_absence(errand) => {
                let ttl = jittered(self.limits.hot_ttl, self.limits.jitter).min(self.limits.longest_hot_absence);
                self.hot.put_absence(errand.hash, errand.key.clone(), ttl);
                if !self.may_store_absence(errand) {
                    self.hot.drop_absence(errand.hash);
                }
            }
            _ => {}
        }
    }

    /// A cached absence counts only while the filter could reject and the key is not within its commit window.
    fn may_serve_absence(&self, errand: &Errand) -> bool {
        let now = Moment::now();
        !errand.options.unapplied_version
            && !errand.options.bypass
            && self.glance(errand.hash, now).trusted
            && !self.recent.contains(errand.hash, now)
    }

    /// An absence is stored only where a filter that could reject said maybe, then and now, the key is not within its commit window, and the
    /// backend does not look broken.
    fn may_store_absence(&self, errand: &Errand) -> bool {
        let now = Moment::now();
        let maybe = |glance: &Glance| glance.trusted && glance.probe.verdict == Verdict::Maybe;
        maybe(&errand.glance)
            && maybe(&self.glance(errand.hash, now))
            && !self.recent.contains(errand.hash, now)
            && !self.storm.is_raging(now)
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

/// Lifetimes and sizes that fills keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) ttl: Duration,
    pub(super) absent_ttl: Duration,
    pub(super) hot_ttl: Duration,
    pub(super) jitter: f64,
    pub(super) max_value_bytes: u64,
    /// Both tiers' absences together live no longer than `max_staleness`: half each at the most.
    pub(super) longest_shared_absence: Duration,
    pub(super) longest_hot_absence: Duration,
}
