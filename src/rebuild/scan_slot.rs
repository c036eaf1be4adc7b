//! Scan slots: if instances share a Redis, one of them at a time scans a keyspace's source, so that a rollout of a
//! hundred instances is not a hundred scans at once.
//!
//! A slot only protects the source. Correctness does not depend on it, so a scan starts without one after any failure.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::progress::Tracker;
use crate::fleet::{ScanHolder, ScanPermit};
use crate::keyspace::{Keyspace, Urgency};
use crate::labels::ScanTurn;
use crate::redis::LinkError;

/// How long the others wait for a holder that died.
const LIFE: Duration = Duration::from_secs(10);
/// A renewal may fail twice before the permit ends.
const RENEW: Duration = Duration::from_secs(3);
/// Average interval at which a waiting instance asks.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The longest wait of a keyspace whose trust does not depend on the age of its scan.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// After this time without an answer the scan begins without a slot.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);

/// Acquires slots, which all instances share.
pub(super) struct ScanSlots {
    permit: Option<Arc<dyn ScanPermit>>,
    max_staleness: Duration,
}

/// While it is held, no other instance begins to scan, unless that instance's wait has timed out.
#[must_use]
pub(super) struct ScanSlot {
    /// Closed by the drop, which ends the renewals.
    _held: oneshot::Sender<()>,
}

impl ScanSlots {
    pub(super) fn new(max_staleness: Duration) -> Self {
        Self { permit: None, max_staleness }
    }

    pub(super) fn share(&mut self, permit: Option<Arc<dyn ScanPermit>>) {
        self.permit = permit;
    }

    /// Waits for a slot, for a bounded time, and no longer than until an operator asks for the scan. Returns how the
    /// wait ended.
    pub(super) async fn wait(&self, keyspace: &Keyspace, tracker: &Tracker) -> Option<(ScanSlot, ScanTurn)> {
        let permit = self.permit.as_ref()?;
        let holder = ScanHolder::random();
        // Spread downwards, so that instances whose wait is over do not scan all at once.
        let longest = self.longest_wait(keyspace).mul_f64(rand::random_range(0.5..=1.0));
        let waiting = Waiting { permit, holder, until: Instant::now() + longest };
        let ended = tokio::select! {
            ended = waiting.granted(keyspace, tracker) => ended,
            () = tracker.requested() => ScanTurn::Overridden,
        };
        keyspace.set_rebuild_wait(None);
        // Also without the permit: the slot acquires it as soon as it is free, so that others wait for this scan.
        Some((ScanSlot::new(Arc::clone(permit), holder), ended))
    }

    /// If only age will end the trust in the active filter, the wait may last until then, less the duration of a build.
    /// Otherwise a wait breaks no promise, but the filter may answer no lookup meanwhile, and the backend has to serve
    /// them.
    fn longest_wait(&self, keyspace: &Keyspace) -> Duration {
        let Urgency { ages_in, last_took, .. } = keyspace.urgency();
        // The source may be slower this time.
        let build = Duration::from_secs_f64(last_took * 2.0);
        ages_in.map_or(self.max_staleness.min(LONGEST_WAIT), |left| left.saturating_sub(build))
    }
}

struct Waiting<'a> {
    permit: &'a Arc<dyn ScanPermit>,
    holder: ScanHolder,
    until: Instant,
}

impl Waiting<'_> {
    async fn granted(&self, keyspace: &Keyspace, tracker: &Tracker) -> ScanTurn {
        let mut answered = Instant::now();
        loop {
            let now = Instant::now();
            match self.permit.hold(self.holder, LIFE).await {
                Ok(true) => return ScanTurn::Granted,
                Ok(false) => {
                    answered = now;
                    keyspace.set_rebuild_wait(Some("another instance scans"));
                    tracker.waits();
                }
                Err(LinkError::Refused(why)) => {
                    // Usually missing permissions: no later attempt would succeed.
                    tracing::warn!(keyspace = keyspace.name(), %why, "scan permit refused by Redis: scanning beside \
                        other instances");
                    return ScanTurn::Refused;
                }
                Err(_) if answered.elapsed() >= LONGEST_SILENCE => return ScanTurn::Unreachable,
                Err(_) => {}
            }
            if now >= self.until {
                return ScanTurn::TimedOut;
            }
            // Spread, so that no instance always comes second.
            let pause = ASK_EVERY.mul_f64(rand::random_range(0.5..1.5));
            tokio::time::sleep(pause.min(self.until.saturating_duration_since(now))).await;
        }
    }
}

impl ScanSlot {
    /// One task renews and releases: a renewal in progress ends before the release, so none acquires the permit again.
    fn new(permit: Arc<dyn ScanPermit>, holder: ScanHolder) -> Self {
        let (held, mut ended) = oneshot::channel();
        tokio::spawn(async move {
            loop {
                if let Err(error) = permit.hold(holder, LIFE).await {
                    tracing::debug!(%error, "scan permit not renewed");
                }
                if timeout(RENEW, &mut ended).await.is_ok() {
                    break;
                }
            }
            if let Err(error) = permit.release(holder).await {
                tracing::debug!(%error, "scan permit not released: it expires by itself");
            }
        });
        Self { _held: held }
    }
}
