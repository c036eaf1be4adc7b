//! Steps 5 to 7 of a lookup: one load per key, from the shared cache, else from the backend.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::Reader;
use super::shared::{CachedEntry, SharedRead};
use crate::cache::{Ending, Lease};
use crate::keyspace::backend::Fetched;
use crate::keyspace::error::LookupError;
use crate::keyspace::outcome::Answer;
use crate::keyspace::request::LookupRequest;
use crate::keyspace::single_flight::{Flight, Kind, Loaded, Role};
use crate::labels::Source;

impl Reader {
    /// Waits for the load of the key and starts it if none runs. An outage is answered by an expired value, if one may
    /// be served.
    pub(super) async fn load(self: &Arc<Self>, request: &LookupRequest) -> Loaded {
        let budget = request.options.timeout.map_or(self.deadline, |t| t.min(self.deadline));
        let deadline = Instant::now() + budget;
        // Before anything is spent on it: an attack must cost neither a task nor a read of the shared cache, which has
        // no value of such a key but in the time after lost announces.
        if let Err(error) = self.backend.check_place(self.priority(request)) {
            return self.or_stale(request, error, deadline).await;
        }
        // Pinned: the waiter must outlive the call of `keep`, else the load is abandoned between the two.
        let mut load = std::pin::pin!(self.join_load(request));
        let loaded = timeout_at(deadline - self.stale_reserve(budget), &mut load).await;
        let loaded = loaded.unwrap_or_else(|_| {
            // A client that runs out of time may come back for the result; one that hangs up does not.
            self.flights.keep(request.hash, request.flight_key(), request.kind());
            Err(LookupError::Deadline(budget))
        });
        match loaded {
            Err(error) => self.or_stale(request, error, deadline).await,
            answer => answer,
        }
    }

    /// Step 5: leads the load of the key, or follows.
    async fn join_load(self: &Arc<Self>, request: &LookupRequest) -> Loaded {
        loop {
            match self.flights.join(request.hash, request.flight_key(), request.kind()) {
                Role::Leader(flight, waiter) => {
                    // Spawned, so that a client disconnect does not cancel the load for other waiters. Bounded by the
                    // deadline.
                    tokio::spawn(Arc::clone(self).run_load(flight, request.clone(), false));
                    return waiter.result().await.unwrap_or(Err(LookupError::Cancelled));
                }
                Role::Follower(waiter) => {
                    self.metrics.coalesced();
                    if let Some(loaded) = waiter.result().await {
                        return loaded;
                    }
                    if let Some(answer) = self.reread_hot(request) {
                        return Ok(answer);
                    }
                }
            }
        }
    }

    /// Leads a load, round by round, until all waiters are served. `again`: this is not the first round.
    pub(super) async fn run_load(self: Arc<Self>, flight: Flight, request: LookupRequest, mut again: bool) {
        let mut round = Some(flight);
        while let Some(flight) = round {
            flight.begin_read();
            let remembered = if again { self.reread_hot(&request) } else { None };
            let mut lease = None;
            let loaded = match remembered {
                Some(answer) => Some((Ok(answer), Ending::Stored)),
                None => tokio::select! {
                    loaded = self.load_once(&request, &mut lease) => Some(loaded),
                    () = flight.abandoned() => None,
                },
            };
            // An abandoned load ends its lease as if it had stored: the next instance that waits claims it.
            let ending = loaded.as_ref().map_or(Ending::Stored, |(_, ending)| *ending);
            round = loaded.and_then(|(loaded, _)| flight.finish(&loaded, || self.fill_hot(&request, &loaded)));
            if let Some(lease) = lease {
                self.release(&request.key, &lease, ending).await;
            }
            again = true;
        }
    }

    /// Steps 6 and 7. Returns how the load ended for its lease, which is left in `lease` from the moment it is claimed:
    /// the caller may cancel the load anywhere.
    async fn load_once(self: &Arc<Self>, request: &LookupRequest, lease: &mut Option<Lease>) -> (Loaded, Ending) {
        let began = Instant::now();
        // 6 the shared cache
        let cached = match self.read_shared(request, began).await {
            SharedRead::Answer(answer) => return (Ok(answer), Ending::Stored),
            SharedRead::Miss(cached) => cached,
        };
        if let Err(error) = self.backend.check_breaker(1) {
            return (Err(error), Ending::NotStored);
        }
        // Across the fleet one instance loads and the others wait; other kinds must ask the backend themselves.
        let cached = match cached {
            Some(cached) if request.kind() == Kind::Plain => {
                match self.claim_lease(request, cached, began, lease).await {
                    SharedRead::Answer(answer) => return (Ok(answer), Ending::Stored),
                    SharedRead::Miss(cached) => cached,
                }
            }
            cached => cached,
        };
        // 7 the backend
        let deadline = began + self.deadline;
        let (key, priority) = (request.backend_key(), self.priority(request));
        let rows = self.backend.fetch(&[key], request.context(), priority, deadline).await;
        match rows.into_iter().next().unwrap_or(Err(LookupError::Cancelled)) {
            Ok(row) => {
                let (answer, ending) = self.finish_load(request, cached.as_ref(), row, deadline).await;
                (Ok(answer), ending)
            }
            Err(error) => (Err(error), Ending::NotStored),
        }
    }

    /// Records what the backend answered and stores it in the shared cache.
    pub(super) async fn finish_load(
        self: &Arc<Self>,
        request: &LookupRequest,
        cached: Option<&CachedEntry>,
        row: Fetched,
        deadline: Instant,
    ) -> (Answer, Ending) {
        let was_cached = cached.is_some_and(|cached| cached.value);
        self.audit.record_answer(request, was_cached, row.value.is_some());
        let ending = match cached {
            Some(cached) => self.fill_shared_by(deadline, request, &row, cached).await,
            None => Ending::NotStored,
        };
        (Answer::fresh(row.value, Source::Backend), ending)
    }
}
