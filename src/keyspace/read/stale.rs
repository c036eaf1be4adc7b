//! `cache.stale_if_error`: if the backend gives no answer, an expired value is better than none (RFC 5861).
//!
//! The shared cache keeps values that much longer than they may be served. A failed load reads the entry once more: an
//! announce or drop since the load began has replaced the value with a mark. So no value is served that an acknowledged
//! drop has removed. Expired absences are not kept, and no expired value enters the hot tier.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::Reader;
use super::budget::ByteBudget;
use crate::cache::{Entry, Seen};
use crate::key::Key;
use crate::keyspace::error::LookupError;
use crate::keyspace::outcome::{Answer, Staleness};
use crate::keyspace::request::LookupRequest;
use crate::keyspace::single_flight::Loaded;
use crate::labels::Source;

/// One part in this many of a lookup's time is kept for the second read.
const SHARE: u32 = 8;

impl Reader {
    /// How long before its deadline a lookup stops waiting for the load.
    pub(super) fn stale_reserve(&self, budget: Duration) -> Duration {
        if self.limits.load().stale_if_error.is_zero() { Duration::ZERO } else { budget / SHARE }
    }

    /// The expired value, or one stored meanwhile, in place of the error.
    pub(super) async fn or_stale(&self, request: &LookupRequest, error: LookupError, deadline: Instant) -> Loaded {
        if !self.may_serve_stale(request, &error) {
            return Err(error);
        }
        match timeout_at(deadline, self.shared.get(&request.key)).await {
            Ok(Ok(seen)) => self.stale(seen, &error).ok_or(error),
            Ok(Err(_)) | Err(_) => Err(error),
        }
    }

    /// The same for a batch, for as many keys at a time as fit into its room.
    pub(super) async fn or_stale_all(
        &self,
        requests: &[LookupRequest],
        answers: &mut [Option<Loaded>],
        budget: &mut ByteBudget<'_>,
        late: &LookupError,
        deadline: Instant,
    ) {
        let failed = |index: &usize| match answers[*index].as_ref() {
            Some(Ok(_)) => false,
            Some(Err(error)) => self.may_serve_stale(&requests[*index], error),
            None => self.may_serve_stale(&requests[*index], late),
        };
        let failed: Vec<usize> = (0..requests.len()).filter(failed).collect();
        for part in failed.chunks(self.entries_at_a_time(budget.limit())) {
            let keys: Vec<Key> = part.iter().map(|index| requests[*index].key.clone()).collect();
            let read = async {
                let _room = self.room_to_read(keys.len(), budget.buffers()).await;
                self.shared.get_many(&keys).await
            };
            let Ok(Ok(seen)) = timeout_at(deadline, read).await else { return };
            for (index, seen) in part.iter().zip(seen) {
                let error = answers[*index].as_ref().and_then(|loaded| loaded.as_ref().err()).unwrap_or(late);
                if let Some(answer) = self.stale(seen, error) {
                    answers[*index] = Some(budget.admit(Ok(answer)));
                }
            }
            if budget.is_full() {
                return;
            }
        }
    }

    /// A bypass uses no cache. A caller with an unapplied version may know that the value has changed.
    fn may_serve_stale(&self, request: &LookupRequest, error: &LookupError) -> bool {
        let options = &request.options;
        !self.limits.load().stale_if_error.is_zero()
            && !options.bypass
            && !options.unapplied_version
            && error.is_outage()
    }

    fn stale(&self, seen: Seen, error: &LookupError) -> Option<Answer> {
        match seen.entry {
            Entry::Value(value) => Some(Answer::fresh(Some(value), Source::Redis)),
            Entry::Stale { value, past } if past <= self.limits.load().stale_if_error => {
                self.metrics.stale_answer();
                let stale = Staleness { past, forwarded: error.is_of_a_call() };
                Some(Answer { value: Some(value), source: Source::Redis, stale: Some(stale) })
            }
            Entry::Stale { .. } | Entry::Absence | Entry::Mark(_) | Entry::Nothing => None,
        }
    }
}
