//! Many keys looked up at once: one read of the shared cache, few calls of the backend. Each key is answered for itself.

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
use crate::keyspace::backend::Fetched;
use crate::keyspace::error::LookupError;
use crate::keyspace::outcome::{Lookup, LookupOptions};
use crate::keyspace::request::LookupRequest;
use crate::keyspace::single_flight::{Flight, Loaded, Role};

/// Bytes that one read of the shared cache may bring at the least, so that small batches cost one round trip.
const SHARED_ROOM: u64 = 16 << 20;

/// Keys whose loads are under way together: each of them has a flight and a waiter, which a list of 10,000 keys would have for all at once. Far more than the
/// backend is asked for at a time, so that it is hardly ever left waiting for the next ones.
const KEYS_UNDER_WAY: usize = 2048;

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
    /// Looks many keys up, coalesced with single lookups. Lasts no longer than the keyspace's deadline; what is not known by then has failed,
    /// each key for itself. So have those whose values do not fit into `max_bytes` beside the others, or can't be added to `held`: the values and what they
    /// will be written into.
    pub(crate) async fn lookup_all(
        self: &Arc<Self>,
        keys: Vec<Key>,
        options: LookupOptions,
        max_bytes: u64,
        held: &mut Reservation,
    ) -> Vec<Lookup> {
        let started = StdInstant::now();
        let time = options.timeout.map_or(self.deadline, |t| t.min(self.deadline));
        let whole = Instant::now() + time;
        let deadline = whole - self.stale_reserve(time);
        let requests: Vec<LookupRequest> = keys.into_iter().map(|key| self.request(key, options.clone())).collect();
        let mut budget = ByteBudget::new(max_bytes, held);
        let mut answers: Vec<Option<Loaded>> =
            requests.iter().map(|request| self.answer_first(request).map(|answer| budget.admit(answer))).collect();
        let mut open: Vec<usize> = (0..requests.len()).filter(|index| answers[*index].is_none()).collect();
        while !open.is_empty() && Instant::now() < deadline {
            for part in open.chunks(KEYS_UNDER_WAY) {
                for (index, answer) in self.load_all(&requests, part, &mut budget, deadline).await {
                    answers[index] = Some(answer);
                }
            }
            // Who was told to look again finds hot what others have loaded meanwhile.
            open.retain(|index| answers[*index].is_none());
            for index in &open {
                answers[*index] = self.reread_hot(&requests[*index]).map(|answer| budget.admit(Ok(answer)));
            }
            open.retain(|index| answers[*index].is_none());
        }
        let late = LookupError::Deadline(time);
        self.or_stale_all(&requests, &mut answers, &mut budget, &late, whole).await;
        let lookups = requests.iter().zip(answers).map(|(request, answer)| Lookup {
            probe: request.probed.probe,
            answer: answer.unwrap_or_else(|| Err(late.clone())),
        });
        lookups.inspect(|lookup| self.metrics.lookup(lookup.source(), lookup.result(), started.elapsed())).collect()
    }

    /// One round of loads: leads those of the keys that nobody loads, and waits for all. Without an answer are left those that are to look
    /// again, or are too late.
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
            // A task of its own, as for a single lookup: others may wait for these keys too.
            tokio::spawn(Arc::clone(self).run_loads(led, budget.loads()));
        }
        // In the order in which they come, so that what has no room is dropped at once.
        let mut waiting = std::pin::pin!(waiting);
        let mut told = Vec::with_capacity(open.len());
        while let Ok(Some((index, leads, loaded))) = timeout_at(deadline, waiting.next()).await {
            match loaded {
                Some(loaded) => told.push((index, budget.admit(loaded))),
                None if budget.is_full() => told.push((index, Err(budget.refusal()))),
                None if leads => told.push((index, Err(LookupError::Cancelled))),
                None => {}
            }
        }
        told
    }

    /// Leads the loads of a batch: from the shared cache, then from the backend by chunks. Loads that the batch has no more room for are left
    /// to those who wait for them besides.
    async fn run_loads(self: Arc<Self>, led: Vec<(Flight, LookupRequest)>, batch: Loads) {
        // Of its own: the client may hang up, and with it goes what the request had reserved.
        let Some(_held) = batch.reserve_flights(led.len()) else { return };
        let began = Instant::now();
        let deadline = began + self.deadline;
        let mut pending = self.read_shared_together(led, &batch, began).await.into_iter();
        // Each when its turn has come, and in memory of its own size: what `split_off` leaves behind keeps the room for all that was there. So it is also no
        // longer than the backend by then takes.
        let chunks = std::iter::from_fn(|| {
            let chunk: Vec<Pending> = pending.by_ref().take(self.backend.batch_limit()).collect();
            (!chunk.is_empty()).then_some(chunk)
        });
        // A batch leaves three quarters of the backend to the others.
        stream::iter(chunks)
            .for_each_concurrent(self.backend.batch_share(), |chunk| self.load_chunk(chunk, &batch, deadline))
            .await;
    }

    /// Entries that fit into a batch's room however long they are.
    pub(super) fn entries_at_a_time(&self, room: u64) -> usize {
        let largest = self.limits.load().max_value_bytes.max(1);
        usize::try_from(room.max(SHARED_ROOM) / largest).unwrap_or(usize::MAX).max(1)
    }

    /// Reads the shared cache, as many entries at a time as fit into the batch's room however long they are. Returns what it has no answer for.
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
            // What others read takes none of the cache's time: who took it for a cache that hangs would load all from the backend.
            let waits = Instant::now();
            let room =
                async { if failure.is_none() { self.room_to_read(keys.len(), batch.buffers()).await } else { None } };
            let Ok(_room) = timeout_at(deadline, room).await else { break };
            began += waits.elapsed();
            let seen = match &failure {
                None => self.within_read_deadline(began, self.shared.get_many(&keys)).await,
                // Who did not answer once is not waited for again.
                Some(error) => Err(CacheError::clone(error)),
            };
            let seen: Vec<_> = match seen {
                Ok(seen) => seen.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(failure.insert(error).clone()); part.len()],
            };
            for ((flight, request), seen) in part.into_iter().zip(seen) {
                match self.classify_shared(&request, seen) {
                    SharedRead::Answer(answer) => self.land(flight, request, &Ok(answer), batch),
                    SharedRead::Miss(cached) => pending.push(Pending { flight, request, cached }),
                }
            }
        }
        pending
    }

    /// Waits until the reads of all batches together leave room for one of so many entries of the shared cache, however long they are.
    pub(super) async fn room_to_read<'a>(&self, keys: usize, buffers: &'a Buffers) -> Option<SemaphorePermit<'a>> {
        buffers.read(self.limits.load().max_value_bytes.saturating_mul(keys as u64)).await
    }

    /// One call of the backend, within its cap; further ones where the rows do not fit into one. Where the process has no room for rows, the flights end without
    /// an answer: single lookups that wait for them look again.
    async fn load_chunk(self: &Arc<Self>, mut chunk: Vec<Pending>, batch: &Loads, deadline: Instant) {
        let most = batch.limit() / self.backend.batch_share() as u64;
        loop {
            // Whoever sent the batch may have hung up.
            chunk.retain(|pending| !pending.flight.is_abandoned());
            if chunk.is_empty() || batch.is_full() {
                return;
            }
            let keys: Vec<Key> = chunk.iter().map(|pending| pending.request.backend_key()).collect();
            // They came in one request, but for those that others took over meanwhile.
            let context = chunk.first().map(|pending| pending.request.context()).unwrap_or_default();
            let (rows, _room) = match self.backend.enter(keys.len(), deadline).await {
                Ok(_turn) => {
                    // Not before the turn: those that wait for one hold nothing.
                    let Some(mut room) = batch.reserve_rows(most) else { return };
                    let rows =
                        self.backend.call(&keys, FetchContext { room: Some(room.bytes()), ..context }, deadline).await;
                    room.shrink(rows.iter().map(bytes_of).sum());
                    (rows, Some(room))
                }
                Err(error) => (vec![Err(error); keys.len()], None),
            };
            let (mut settled, mut left_out) = (Vec::new(), Vec::new());
            for (pending, row) in chunk.into_iter().zip(rows) {
                match row {
                    Err(LookupError::Backend(error)) if matches!(*error, BackendError::NoRoom) => {
                        left_out.push(pending)
                    }
                    row => settled.push(self.land_row(pending, row, batch, deadline)),
                }
            }
            future::join_all(settled).await;
            chunk = left_out;
        }
    }

    async fn land_row(
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
        self.land(pending.flight, pending.request, &loaded, batch);
    }

    /// Ends a flight; those who joined too late to be told get a round of their own.
    fn land(self: &Arc<Self>, flight: Flight, request: LookupRequest, loaded: &Loaded, batch: &Loads) {
        batch.note(loaded);
        if let Some(next) = flight.settle(loaded, || self.fill_hot(&request, loaded)) {
            tokio::spawn(Arc::clone(self).run_load(next, request, true));
        }
    }
}
