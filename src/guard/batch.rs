//! Many keys at once: one look at the filter, one read of the shared cache, few calls of the backend. Each key is answered for itself.

use std::sync::Arc;
use std::time::Instant as StdInstant;

use futures_util::{StreamExt, future, stream};
use tokio::time::{Instant, timeout_at};

use super::load::{Errand, Held, Shared};
use super::single_flight::{Flight, Loaded, Part, Ticket};
use super::standing::Standing;
use super::{Guard, Lookup, LookupError, LookupOptions, Probe};
use crate::clock::Moment;
use crate::key::Key;
use crate::words::{State, Verdict};

/// What the filter said of a batch: one generation, one state for all of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Indices of the keys that are absent, ascending. Empty unless the keyspace enforces, and none outside `enforce_percent`.
    pub absent: Vec<usize>,
    /// How many keys were asked for.
    pub checked: usize,
    /// The generation that was asked; 0 while there is none.
    pub generation: u64,
    /// State of the keyspace at that moment.
    pub state: State,
}

/// A led load that the shared cache has not answered.
struct Pending {
    flight: Flight,
    errand: Errand,
    held: Option<Held>,
}

impl Guard {
    /// Asks the filter only, for all keys at one moment.
    #[must_use]
    pub fn check_all(&self, keys: &[Key]) -> Checked {
        // In this order: a swap in between can only make the answer stricter.
        let until = self.standing.trusted_until();
        let current = self.active.current();
        let trusted = current.is_some() && Moment::now() < until;
        let in_force = self.standing.enforcing.in_force();
        let state = Standing::state(in_force, current.is_some(), trusted);
        let mut absent = Vec::new();
        if let Some(generation) = &current {
            for (index, key) in keys.iter().enumerate() {
                let hash = self.secret.hash(key);
                let maybe = generation.filter.contains(hash.get());
                self.metrics.check(if maybe { Verdict::Maybe } else { Verdict::Absent });
                if !maybe {
                    self.observed.true_negative();
                    self.growth.true_negative(hash);
                    let enforced = state == State::Enforcing && in_force.covers(hash);
                    if enforced {
                        self.sample(key, hash, Probe { verdict: Verdict::Absent, state, enforced, generation: generation.number });
                        absent.push(index);
                    }
                }
            }
        }
        Checked { absent, checked: keys.len(), generation: current.map_or(0, |g| g.number), state }
    }

    /// Looks many keys up, coalesced with single lookups. Lasts no longer than the keyspace's deadline; what is not known by then has failed,
    /// each key for itself.
    pub async fn lookup_all(self: &Arc<Self>, keys: Vec<Key>, options: LookupOptions) -> Vec<Lookup> {
        let started = StdInstant::now();
        let budget = options.timeout.map_or(self.deadline, |t| t.min(self.deadline));
        let deadline = Instant::now() + budget;
        let errands: Vec<Errand> = keys.into_iter().map(|key| self.errand(key, options.clone())).collect();
        let mut answers: Vec<Option<Loaded>> = errands.iter().map(|errand| self.answer_at_once(errand)).collect();

        let (mut led, mut waiting) = (Vec::new(), Vec::new());
        for (index, errand) in errands.iter().enumerate().filter(|(index, _)| answers[*index].is_none()) {
            match self.flights.join(errand.hash, &errand.key, errand.kind()) {
                Part::Lead(flight, ticket) => {
                    led.push((flight, errand.clone()));
                    waiting.push((index, ticket));
                }
                Part::Join(ticket) => {
                    self.metrics.coalesced();
                    waiting.push((index, ticket));
                }
            }
        }
        if !led.is_empty() {
            // A task of its own, as for a single lookup: others may wait for these keys too.
            tokio::spawn(Arc::clone(self).fly_together(led));
        }
        for (index, ticket) in waiting {
            let waited = timeout_at(deadline, self.wait(ticket, &errands[index])).await;
            answers[index] = Some(waited.unwrap_or(Err(LookupError::Deadline(budget))));
        }
        let lookups = errands
            .iter()
            .zip(answers)
            .map(|(errand, answer)| Lookup { probe: errand.glance.probe, answer: answer.unwrap_or(Err(LookupError::Cancelled)) });
        lookups.inspect(|lookup| self.metrics.lookup(lookup.source(), lookup.result(), started.elapsed())).collect()
    }

    /// Who is told to look again does so for itself.
    async fn wait(self: &Arc<Self>, ticket: Ticket, errand: &Errand) -> Loaded {
        match ticket.result().await {
            Some(loaded) => loaded,
            None => self.load_together(errand.clone()).await,
        }
    }

    /// Leads the loads of a batch: one read of the shared cache, then the backend by chunks.
    async fn fly_together(self: Arc<Self>, led: Vec<(Flight, Errand)>) {
        let deadline = Instant::now() + self.deadline;
        led.iter().for_each(|(flight, _)| flight.begin_read());
        let keys: Vec<Key> = led.iter().map(|(_, errand)| errand.key.clone()).collect();
        let seen = match self.shared.get_many(&keys).await {
            Ok(seen) => seen.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); keys.len()],
        };
        let mut pending = Vec::new();
        for ((flight, errand), seen) in led.into_iter().zip(seen) {
            match self.judge_shared(&errand, seen) {
                Shared::Answer(answer) => self.land(flight, errand, &Ok(answer)),
                Shared::GoOn(held) => pending.push(Pending { flight, errand, held }),
            }
        }
        let mut chunks = Vec::new();
        while !pending.is_empty() {
            let rest = pending.split_off(pending.len().min(self.backend.batch_limit().max(1)));
            chunks.push(std::mem::replace(&mut pending, rest));
        }
        // A batch leaves three quarters of the backend to the others.
        stream::iter(chunks).for_each_concurrent(self.batch_share, |chunk| self.load_chunk(chunk, deadline)).await;
    }

    /// One call of the backend, within its cap.
    async fn load_chunk(self: &Arc<Self>, chunk: Vec<Pending>, deadline: Instant) {
        let keys: Vec<Key> = chunk.iter().map(|pending| pending.errand.key.clone()).collect();
        // They came in one request, but for those that others took over meanwhile.
        let trace = chunk.first().and_then(|pending| pending.errand.options.trace.clone());
        let rows = self.ask_backend(&keys, trace, deadline).await;
        let settled = chunk.into_iter().zip(rows).map(|(pending, row)| async move {
            let loaded = match row {
                Ok(row) => Ok(self.conclude(&pending.errand, pending.held.as_ref(), row, deadline).await.0),
                Err(error) => Err(error),
            };
            self.land(pending.flight, pending.errand, &loaded);
        });
        future::join_all(settled).await;
    }

    /// Ends a flight; those who joined too late to be told get a round of their own.
    fn land(self: &Arc<Self>, flight: Flight, errand: Errand, loaded: &Loaded) {
        if let Some(next) = flight.settle(loaded, || self.fill_hot(&errand, loaded)) {
            tokio::spawn(Arc::clone(self).fly(next, errand, true));
        }
    }
}
