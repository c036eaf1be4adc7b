//! Protection against cache breakdown: when an entry of a popular key expires, one instance of the fleet loads it. The
//! others wait for what it stores.
//!
//! Waiting means reading the entry again, by the rules of any read, until it can be used. A store after a wait is
//! compared with the entry as last read. So a wait never makes an answer older than a cached one may be, and a lookup
//! that stops waiting loads as if there were no leases. The backend's cap applies to all of them.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Reader;
use super::shared::{CachedEntry, SharedRead};
use crate::cache::{CacheError, Ending, Lease, LeaseState};
use crate::config::KeyspaceConfig;
use crate::key::Key;
use crate::keyspace::request::LookupRequest;
use crate::labels::LeaseWait;

/// Time that a holder may need beyond the backend's timeout, to reach it and to store.
const MARGIN: Duration = Duration::from_millis(50);
/// Pauses between two reads grow from the first to the longest: a fast load is noticed soon, and a slow one is not
/// polled often.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// How long leases live, and how long lookups wait for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseTimes {
    pub(super) life: Duration,
    pub(super) read_deadline: Duration,
}

impl LeaseTimes {
    /// A waiter keeps a quarter of the deadline (or the backend's timeout, if that is shorter) to load by itself. A
    /// lease ends before that, so a holder that died costs no lookup its answer.
    pub(crate) fn new(config: &KeyspaceConfig) -> Self {
        let read_deadline = config.deadline - (config.deadline / 4).min(config.backend.timeout);
        Self { life: (config.backend.timeout + MARGIN).min(read_deadline), read_deadline }
    }
}

impl Reader {
    /// Waits for the right to load. `cached` is the entry as the shared cache had it. The caller must release a lease
    /// left in `granted`.
    pub(super) async fn claim_lease(
        &self,
        request: &LookupRequest,
        mut cached: CachedEntry,
        began: Instant,
        granted: &mut Option<Lease>,
    ) -> SharedRead {
        let (lease, give_up) = (Lease::random(), began + self.lease_times.read_deadline);
        let mut pause = FIRST_PAUSE;
        let mut waited = false;
        let record = |waited: bool, how| {
            if waited {
                self.metrics.lease_wait(how);
            }
        };
        loop {
            // Set before the answer: a claim that is cancelled on its way may have been granted.
            *granted = Some(lease);
            let asked = self.shared.claim(&request.key, &lease, self.lease_times.life);
            let claim = match self.within_read_deadline(began, asked).await {
                Ok(claim) => claim,
                Err(error) => {
                    tracing::debug!(%error, "the shared cache grants no lease");
                    // The time may run out between two reads, or during one.
                    record(waited, if Instant::now() >= give_up { LeaseWait::TimedOut } else { LeaseWait::Error });
                    return SharedRead::Miss(Some(cached));
                }
            };
            *granted = (claim.state == LeaseState::Ours).then_some(lease);
            cached = match self.usable(request, claim.seen) {
                // Stored between our read and our claim, or while we waited.
                SharedRead::Miss(latest) => latest.unwrap_or(cached),
                answer => {
                    record(waited, LeaseWait::Filled);
                    return answer;
                }
            };
            match claim.state {
                LeaseState::Ours => record(waited, LeaseWait::TakenOver),
                LeaseState::Free => record(waited, LeaseWait::Freed),
                LeaseState::Theirs if Instant::now() + pause >= give_up => record(true, LeaseWait::TimedOut),
                LeaseState::Theirs => {
                    waited = true;
                    // Spread, so that waiters that began together do not all read at once.
                    tokio::time::sleep(pause.mul_f64(rand::random_range(0.75..1.25))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            }
            return SharedRead::Miss(Some(cached));
        }
    }

    /// Releases a lease. The lookups have their answer already; only the fleet waits for this.
    pub(super) async fn release(&self, key: &Key, lease: &Lease, ending: Ending) {
        let life = self.lease_times.life;
        // After its life it has expired by itself.
        let released = timeout(life, self.shared.release(key, lease, ending, life)).await;
        if let Err(error) = released.unwrap_or(Err(CacheError::Timeout(life))) {
            tracing::debug!(%error, "lease release failed: it expires by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(deadline: u64, timeout: u64) -> (u128, u128) {
        let mut config = KeyspaceConfig { deadline: Duration::from_millis(deadline), ..KeyspaceConfig::default() };
        config.backend.timeout = Duration::from_millis(timeout);
        let times = LeaseTimes::new(&config);
        (times.life.as_millis(), times.read_deadline.as_millis())
    }

    #[test]
    fn a_lease_ends_while_its_waiters_can_still_load() {
        assert_eq!(times(300, 200), (225, 225), "the defaults");
        assert_eq!(times(1000, 200), (250, 800));
        assert_eq!(times(300, 20), (70, 280));
        assert_eq!(times(300, 5000), (225, 225), "a backend slower than the deadline");
    }
}
