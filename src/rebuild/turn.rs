//! A scan's turn: where instances share a Redis, one of them at a time scans a keyspace's source, so that a rollout of a hundred is not a hundred
//! scans at once.
//!
//! The turn is a courtesy to the source. Nothing rests on it, so whatever is wrong with it, the scan goes on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::progress::Tracker;
use crate::fleet::{ScanHolder, ScanPermit};
use crate::keyspace::{Keyspace, Urgency};
use crate::labels::ScanTurn;
use crate::redis::LinkError;

/// How long a holder that died keeps the others waiting.
const LIFE: Duration = Duration::from_secs(10);
/// A renewal may fail twice before the permit ends.
const RENEW: Duration = Duration::from_secs(3);
/// How often those that wait ask, on average.
const ASK: Duration = Duration::from_secs(1);
/// A keyspace that does not reject waits no longer than this.
const LONGEST: Duration = Duration::from_secs(600);
/// Without an answer for so long, the scan begins without a permit.
const LONGEST_SILENCE: Duration = Duration::from_secs(3);

/// Takes turns with other instances.
pub(super) struct ScanSlots {
    permit: Option<Arc<dyn ScanPermit>>,
    max_staleness: Duration,
}

/// While it is held no other instance begins to scan, as far as it is not its own turn that ran out.
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

    /// Waits for this scan's turn, no longer than it may, and no longer than until an operator asks for it. Says how that ended.
    pub(super) async fn wait(&self, keyspace: &Keyspace, tracker: &Tracker) -> Option<(ScanSlot, ScanTurn)> {
        let permit = self.permit.as_ref()?;
        let holder = ScanHolder::random();
        // Spread downwards, so that those whose wait is over do not scan all at once either.
        let longest = self.longest_wait(keyspace).mul_f64(rand::random_range(0.5..=1.0));
        let waiting = Waiting { permit, holder, until: Instant::now() + longest };
        let ended = tokio::select! {
            ended = waiting.granted(keyspace, tracker) => ended,
            () = tracker.asked_for_at_once() => ScanTurn::Overridden,
        };
        keyspace.set_rebuild_wait(None);
        // Also without the permit: it is taken as soon as it is free, so that others wait for this scan.
        Some((ScanSlot::new(Arc::clone(permit), holder), ended))
    }

    /// While age alone will end the trust in the filter in force, as long as that lasts, less what a build takes. Otherwise waiting breaks no promise, but the
    /// keyspace may reject nobody meanwhile, which the backend has to bear.
    fn longest_wait(&self, keyspace: &Keyspace) -> Duration {
        let Urgency { ages_in, last_took, .. } = keyspace.urgency();
        // A source may be slower the next time.
        let build = Duration::from_secs_f64(last_took * 2.0);
        ages_in.map_or(self.max_staleness.min(LONGEST), |left| left.saturating_sub(build))
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
                    // Rights that are missing, as a rule: no later try is answered otherwise.
                    tracing::warn!(keyspace = keyspace.name(), %why, "Redis refuses the permit to scan: this instance scans beside the others");
                    return ScanTurn::Refused;
                }
                Err(_) if answered.elapsed() >= LONGEST_SILENCE => return ScanTurn::Unreachable,
                Err(_) => {}
            }
            if now >= self.until {
                return ScanTurn::TimedOut;
            }
            // Spread, so that none of them always comes second.
            let pause = ASK.mul_f64(rand::random_range(0.5..1.5));
            tokio::time::sleep(pause.min(self.until.saturating_duration_since(now))).await;
        }
    }
}

impl ScanSlot {
    /// One task renews and gives back: a renewal that is under way is over before the permit is released, so none takes it again.
    fn new(permit: Arc<dyn ScanPermit>, holder: ScanHolder) -> Self {
        let (held, mut ended) = oneshot::channel();
        tokio::spawn(async move {
            loop {
                if let Err(error) = permit.hold(holder, LIFE).await {
                    tracing::debug!(%error, "the permit to scan was not renewed");
                }
                if timeout(RENEW, &mut ended).await.is_ok() {
                    break;
                }
            }
            if let Err(error) = permit.release(holder).await {
                tracing::debug!(%error, "the permit to scan was not given back: it ends with its life");
            }
        });
        Self { _held: held }
    }
}
