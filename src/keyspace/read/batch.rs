//! Looks up many keys at once: one read of the shared cache, few calls of the backend. Each key has its own answer.

use std::sync::Arc;
use std::time::Instant as StdInstant;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, future, stream};
use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::Reader;
use super::budget::{ByteBudget, Loads};
use super::shared::{CachedEntry, SharedRead};
use crate::backend::{BackendError, FetchContext};
use crate::buffers::{Buffers, Reservation};
use crate::cache::CacheError;
use crate::key::Key;
use crate::keyspace::backend::{Fetched, Priority};
use crate::keyspace::error::LookupError;
use crate::keyspace::outcome::{Lookup, LookupOptions};
use crate::keyspace::request::LookupRequest;
use crate::keyspace::single_flight::{Flight, Loaded, Role};

/// Minimum bytes of one read of the shared cache, so that small batches take one round trip.
const SHARED_ROOM: u64 = 16 << 20;

/// Keys loaded at the same time. Each has a flight and a waiter, which a list of 10,000 keys would otherwise have for
/// all at once. Far more than the backend is asked for at a time, so that it hardly ever waits for the next keys.
const KEYS_AT_A_TIME: usize = 2048;

/// Bytes of a row that was found.
fn bytes_of(row: &Result<Fetched, LookupError>) -> u64 {
    row.as_ref().ok().and_then(|row| row.value.as_ref()).map_or(0, |value| value.bytes() as u64)
}

/// A led load that the shared cache has not answered.
struct Pending {
    flight: Flight,
    request: LookupRequest,
    cached: Option<CachedEntry>,
}

impl Reader {
    /// Looks up many keys, coalesced with single lookups. Takes no longer than the keyspace's deadline; keys without an
    /// answer by then have failed, each by itself. So have keys whose values do not fit into `max_bytes` beside the
    /// others, or can't be added to `held`, which counts the values and the buffers they are written into.
    pub(crate) async fn lookup_all(
        self: &Arc<Self>,
        keys: Vec<Key>,
        options: LookupOptions,
        max_bytes: u64,
        held: &mut Reservation,
    ) -> Vec<Lookup> {
        let started = StdInstant::now();
        let time = options.timeout.map_or(self.deadline, |t| t.min(self.deadline));
        let end = Instant::now() + time;
        let deadline = end - self.stale_reserve(time);
        let requests: Vec<LookupRequest> = keys.into_iter().map(|key| self.request(key, options.clone())).collect();
        let mut budget = ByteBudget::new(max_bytes, held);
        let mut answers: Vec<Option<Loaded>> =
            requests.iter().map(|request| self.answer_first(request).map(|answer| budget.admit(answer))).collect();
        let mut open: Vec<usize> = (0..requests.len()).filter(|index| answers[*index].is_none()).collect();
        while !open.is_empty() && Instant::now() < deadline {
            for part in open.chunks(KEYS_AT_A_TIME) {
                for (index, answer) in self.load_all(&requests, part, &mut budget, deadline).await {
                    answers[index] = Some(answer);
                }
            }
            // Keys that must look again may be in the hot tier by now.
            open.retain(|index| answers[*index].is_none());
            for index in &open {
                answers[*index] = self.reread_hot(&requests[*index]).map(|answer| budget.admit(Ok(answer)));
            }
            open.retain(|index| answers[*index].is_none());
        }
        let late = LookupError::Deadline(time);
        self.or_stale_all(&requests, &mut answers, &mut budget, &late, end).await;
        let lookups = requests.iter().zip(answers).map(|(request, answer)| Lookup {
            probe: request.probed.probe,
            answer: answer.unwrap_or_else(|| Err(late.clone())),
        });
        lookups.inspect(|lookup| self.metrics.lookup(lookup.source(), lookup.result(), started.elapsed())).collect()
    }

    /// One round of loads: leads the loads of keys that have none, and waits for all. Returns no answer for keys that
    /// must look again or are too late.
    async fn load_all(
        self: &Arc<Self>,
        requests: &[LookupRequest],
        open: &[usize],
        budget: &mut ByteBudget<'_>,
        deadline: Instant,
    ) -> Vec<(usize, Loaded)> {
        let (mut led, waiting) = (Vec::new(), FuturesUnordered::new());
        for index in open.iter().copied() {
            let request = &requests[index];
            let (waiter, leads) = match self.flights.join(request.hash, request.flight_key(), request.kind()) {
                Role::Leader(flight, waiter) => {
                    led.push((flight, request.clone()));
                    (waiter, true)
                }
                Role::Follower(waiter) => {
                    self.metrics.coalesced();
                    (waiter, false)
                }
            };
            waiting.push(async move { (index, leads, waiter.result().await) });
        }
        if !led.is_empty() {
            // Spawned, as for a single lookup: other waiters may depend on these keys too.
            tokio::spawn(Arc::clone(self).run_loads(led, budget.loads()));
        }
        // In order of arrival, so that values without room are dropped at once.
        let mut waiting = std::pin::pin!(waiting);
        let mut answers = Vec::with_capacity(open.len());
        while let Ok(Some((index, leads, loaded))) = timeout_at(deadline, waiting.next()).await {
            match loaded {
                Some(loaded) => answers.push((index, budget.admit(loaded))),
                None if budget.is_full() => answers.push((index, Err(budget.refusal()))),
                None if leads => answers.push((index, Err(LookupError::Cancelled))),
                None => {}
            }
        }
        answers
    }

    /// Leads the loads of a batch: from the shared cache, then from the backend in chunks. Loads for which the batch
    /// has no more room are left to their other waiters.
    async fn run_loads(self: Arc<Self>, led: Vec<(Flight, LookupRequest)>, batch: Loads) {
        // Reserved by this task itself: a client disconnect drops the reservation of the request.
        let Some(_held) = batch.reserve_flights(led.len()) else { return };
        let began = Instant::now();
        let deadline = began + self.deadline;
        let mut pending = self.read_shared_together(led, &batch, began).await;
        // Never together: a key that the filter holds must not wait for, nor be shed with, those that it called absent.
        let low: Vec<Pending> =
            pending.extract_if(.., |pending| self.priority(&pending.request) == Priority::Low).collect();
        let mut classes = [(Priority::Normal, pending.into_iter()), (Priority::Low, low.into_iter())];
        // Each chunk is collected when it is due, in memory of its own size (`split_off` would keep the whole
        // allocation), and with the backend's current batch limit.
        let chunks = std::iter::from_fn(|| {
            let (priority, class) = classes.iter_mut().find(|(_, class)| class.len() > 0)?;
            Some((*priority, class.by_ref().take(self.backend.batch_limit()).collect::<Vec<Pending>>()))
        });
        // A batch leaves three quarters of the backend's capacity to other lookups.
        stream::iter(chunks)
            .for_each_concurrent(self.backend.batch_share(), |(priority, chunk)| {
                self.load_chunk(chunk, priority, &batch, deadline)
            })
            .await;
    }

    /// How many entries of maximum length fit into a batch's room.
    pub(super) fn entries_at_a_time(&self, room: u64) -> usize {
        let largest = self.limits.load().max_value_bytes.max(1);
        usize::try_from(room.max(SHARED_ROOM) / largest).unwrap_or(usize::MAX).max(1)
    }

    /// Reads the shared cache, as many entries of maximum length at a time as fit into the batch's room. Returns the
    /// keys without an answer.
    async fn read_shared_together(
        self: &Arc<Self>,
        led: Vec<(Flight, LookupRequest)>,
        batch: &Loads,
        mut began: Instant,
    ) -> Vec<Pending> {
        let (at_a_time, deadline) = (self.entries_at_a_time(batch.limit()), began + self.deadline);
        let mut led = led.into_iter();
        let mut pending = Vec::with_capacity(led.len());
        let mut failure = None;
        while !batch.is_full() {
            let part: Vec<_> = led.by_ref().take(at_a_time).collect();
            if part.is_empty() {
                break;
            }
            part.iter().for_each(|(flight, _)| flight.begin_read());
            let keys: Vec<Key> = part.iter().map(|(_, request)| request.key.clone()).collect();
            // Waiting for room does not count as time of the cache: otherwise the cache would seem to hang, and the
            // batch would load all keys from the backend.
            let wait_began = Instant::now();
            let room =
                async { if failure.is_none() { self.room_to_read(keys.len(), batch.buffers()).await } else { None } };
            let Ok(_room) = timeout_at(deadline, room).await else { break };
            began += wait_began.elapsed();
            let seen = match &failure {
                None => self.within_read_deadline(began, self.shared.get_many(&keys)).await,
                // A cache that failed once is not asked again in this batch.
                Some(error) => Err(CacheError::clone(error)),
            };
            let seen: Vec<_> = match seen {
                Ok(seen) => seen.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(failure.insert(error).clone()); part.len()],
            };
            for ((flight, request), seen) in part.into_iter().zip(seen) {
                match self.classify_shared(&request, seen) {
                    SharedRead::Answer(answer) => self.end_flight(flight, request, &Ok(answer), batch),
                    SharedRead::Miss(cached) => pending.push(Pending { flight, request, cached }),
                }
            }
        }
        pending
    }

    /// Waits until the reads of all batches together leave room for this many entries of maximum length.
    pub(super) async fn room_to_read<'a>(&self, keys: usize, buffers: &'a Buffers) -> Option<SemaphorePermit<'a>> {
        buffers.read(self.limits.load().max_value_bytes.saturating_mul(keys as u64)).await
    }

    /// One call of the backend, within its cap, and further ones if the rows do not fit into one. If the process has no
    /// room for rows, the flights end without an answer, and single lookups that wait for them look again.
    async fn load_chunk(
        self: &Arc<Self>,
        mut chunk: Vec<Pending>,
        priority: Priority,
        batch: &Loads,
        deadline: Instant,
    ) {
        let max_bytes = batch.limit() / self.backend.batch_share() as u64;
        loop {
            // The client of the batch may have disconnected.
            chunk.retain(|pending| !pending.flight.is_abandoned());
            if chunk.is_empty() || batch.is_full() {
                return;
            }
            let keys: Vec<Key> = chunk.iter().map(|pending| pending.request.backend_key()).collect();
            // They belong to one request, except keys that other requests wait for as well.
            let context = chunk.first().map(|pending| pending.request.context()).unwrap_or_default();
            let (rows, _room) = match self.backend.enter(keys.len(), priority, deadline).await {
                Ok(_permit) => {
                    // After the permit, so that calls that wait for one hold nothing.
                    let Some(mut room) = batch.reserve_rows(max_bytes) else { return };
                    let rows =
                        self.backend.call(&keys, FetchContext { room: Some(room.bytes()), ..context }, deadline).await;
                    room.shrink(rows.iter().map(bytes_of).sum());
                    (rows, Some(room))
                }
                Err(error) => (vec![Err(error); keys.len()], None),
            };
            let (mut finished, mut left_out) = (Vec::new(), Vec::new());
            for (pending, row) in chunk.into_iter().zip(rows) {
                match row {
                    Err(LookupError::Backend(error)) if matches!(*error, BackendError::NoRoom) => {
                        left_out.push(pending)
                    }
                    row => finished.push(self.finish_row(pending, row, batch, deadline)),
                }
            }
            future::join_all(finished).await;
            chunk = left_out;
        }
    }

    async fn finish_row(
        self: &Arc<Self>,
        pending: Pending,
        row: Result<Fetched, LookupError>,
        batch: &Loads,
        deadline: Instant,
    ) {
        let loaded = match row {
            Ok(row) => Ok(self.finish_load(&pending.request, pending.cached.as_ref(), row, deadline).await.0),
            Err(error) => Err(error),
        };
        self.end_flight(pending.flight, pending.request, &loaded, batch);
    }

    /// Ends a flight; waiters that joined too late for its result get their own round.
    fn end_flight(self: &Arc<Self>, flight: Flight, request: LookupRequest, loaded: &Loaded, batch: &Loads) {
        batch.count(loaded);
        if let Some(next) = flight.finish(loaded, || self.fill_hot(&request, loaded)) {
            tokio::spawn(Arc::clone(self).run_load(next, request, true));
        }
    }
}
