//! Breakdown: when an entry that everybody asks for expires, one instance of the fleet loads it and the others wait for what it stores.
//!
//! Waiting is nothing but reading the entry again, by the rules of any read, until it can be used; and what is stored after a wait is compared
//! with the entry as it was read last. So a wait can't make an answer older than a cached one may be, and whoever gives up waiting loads as if
//! there were no leases. The backend's cap holds for all of them.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::Reader;
use super::shared::{CachedEntry, SharedRead};
use crate::cache::{CacheError, Ending, Lease, LeaseState};
use crate::config::KeyspaceConfig;
use crate::key::Key;
use crate::keyspace::request::LookupRequest;
use crate::labels::LeaseWait;

/// What a holder may need beyond the backend's own timeout, to reach it and to store.
const MARGIN: Duration = Duration::from_millis(50);
/// Pauses between two looks grow from the first to the longest, so that a fast load is not waited for long and a slow one not asked often.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// How long leases live, and how long they are waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseTimes {
    pub(super) life: Duration,
    pub(super) read_deadline: Duration,
}

impl LeaseTimes {
    /// Who waits keeps a quarter of the deadline, or less where the backend needs less, to load for itself. A lease ends within that
    /// time, so one whose holder died costs nobody its answer.
    pub(crate) fn new(config: &KeyspaceConfig) -> Self {
        let read_deadline = config.deadline - (config.deadline / 4).min(config.backend.timeout);
        Self { life: (config.backend.timeout + MARGIN).min(read_deadline), read_deadline }
    }
}

impl Reader {
    /// Waits for the right to load, from `cached` on, which is what the shared cache had; what is left in `granted` must be given back.
    pub(super) async fn claim_lease(
        &self,
        request: &LookupRequest,
        mut cached: CachedEntry,
        began: Instant,
        granted: &mut Option<Lease>,
    ) -> SharedRead {
        let (lease, enough) = (Lease::random(), began + self.lease_times.read_deadline);
        let mut pause = FIRST_PAUSE;
        let mut waited = false;
        let told = |waited: bool, how| {
            if waited {
                self.metrics.lease_wait(how);
            }
        };
        loop {
            // Before it is known: a claim that is given up on its way may have been granted.
            *granted = Some(lease);
            let asked = self.shared.claim(&request.key, &lease, self.lease_times.life);
            let claim = match self.within_read_deadline(began, asked).await {
                Ok(claim) => claim,
                Err(error) => {
                    tracing::debug!(%error, "the shared cache grants no lease");
                    // The time may end between two looks, or in the middle of one.
                    told(waited, if Instant::now() >= enough { LeaseWait::TimedOut } else { LeaseWait::Error });
                    return SharedRead::Miss(Some(cached));
                }
            };
            *granted = (claim.state == LeaseState::Ours).then_some(lease);
            cached = match self.usable(request, claim.seen) {
                // Stored between our look and our claim, or while we waited.
                SharedRead::Miss(latest) => latest.unwrap_or(cached),
                answer => {
                    told(waited, LeaseWait::Filled);
                    return answer;
                }
            };
            match claim.state {
                LeaseState::Ours => told(waited, LeaseWait::TakenOver),
                LeaseState::Free => told(waited, LeaseWait::Freed),
                LeaseState::Theirs if Instant::now() + pause >= enough => told(true, LeaseWait::TimedOut),
                LeaseState::Theirs => {
                    waited = true;
                    // Those who began to wait together must not all look at the same moment.
                    tokio::time::sleep(pause.mul_f64(rand::random_range(0.75..1.25))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            }
            return SharedRead::Miss(Some(cached));
        }
    }

    /// Gives a lease back. Those who asked have their answer already, so nobody waits for this but the fleet.
    pub(super) async fn release(&self, key: &Key, lease: &Lease, ending: Ending) {
        let life = self.lease_times.life;
        // Once it has ended by itself there is nothing to give back.
        let released = timeout(life, self.shared.release(key, lease, ending, life)).await;
        if let Err(error) = released.unwrap_or(Err(CacheError::Timeout(life))) {
            tracing::debug!(%error, "a lease could not be given back: it ends by itself");
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
    fn a_lease_ends_while_those_who_wait_can_still_load() {
        assert_eq!(times(300, 200), (225, 225), "the defaults");
        assert_eq!(times(1000, 200), (250, 800));
        assert_eq!(times(300, 20), (70, 280));
        assert_eq!(times(300, 5000), (225, 225), "a backend slower than the deadline");
    }
}
