//! Refresh ahead: a value that is read shortly before its expiry is reloaded in the background, so that a key in
//! constant use never expires.
//!
//! Whether a read refreshes is drawn at random, as in XFetch (Vattani, Chierichetti, Lowenstein: *Optimal Probabilistic
//! Cache Stampede Prevention*, PVLDB 8(8), 2015). With the remaining life `r`, the time the backend took `δ` and a
//! scale `s`, a read refreshes if
//!
//! ```text
//! r ≤ w   and   δ − s·ln(u) ≥ r,   u uniform in (0, 1];   so with probability   exp(−(r − δ) / s)   for δ < r ≤ w
//! w = refresh_ahead · ttl,   s = max(δ, w/4)                                     all times in seconds
//! ```
//!
//! The paper's own rule is `−δ·β·ln(u) ≥ r`: with β = 1 and a δ of a millisecond it acts within the last milliseconds
//! only, which a key read a hundred times a second misses. Hence the window `w`, and a scale (the paper's δ·β) of a
//! quarter of it. A read refreshes with 2 % at the window's begin, 37 % at its last quarter, and always once the
//! remaining life is no longer than a load takes. The exponential keeps the paper's main property: instances that know
//! nothing of each other seldom refresh at the same moment.
//!
//! Values stay in the hot tier for at most a sixteenth of the window. So an instance that reads a key all the time
//! reaches the shared cache often enough: it misses the window less than once in a hundred times, and other instances
//! read the key as well.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Reader;
use super::shared::CachedEntry;
use crate::cache::{Ending, Expiry, Lease, LeaseState, Stamp};
use crate::keyspace::outcome::{Answer, LookupOptions};
use crate::keyspace::request::LookupRequest;
use crate::keyspace::single_flight::{Flight, Kind, Role};
use crate::labels::RefreshOutcome;

/// Reads per window that the hot tier lets through.
pub(super) const READS_PER_WINDOW: u32 = 16;

/// Returns true if a read refreshes; `draw` is uniform in [0, 1).
fn is_due(expiry: Expiry, window: Duration, draw: f64) -> bool {
    let (left, cost, window) = (expiry.left.as_secs_f64(), expiry.cost.as_secs_f64(), window.as_secs_f64());
    left <= window && cost - cost.max(window / 4.0) * (1.0 - draw).ln() >= left
}

impl Reader {
    /// Draws whether this read of a value refreshes it, and starts the refresh. The read itself waits for nothing.
    pub(super) fn refresh_if_due(self: &Arc<Self>, request: &LookupRequest, expiry: Expiry, stamp: &Stamp) {
        let window = self.limits.load().refresh_window;
        if window.is_zero() || !is_due(expiry, window, rand::random()) {
            return;
        }
        let request = LookupRequest { options: LookupOptions::default(), refresh: true, ..request.clone() };
        let Role::Leader(flight, _) = self.flights.join(request.hash, request.flight_key(), Kind::Refresh) else {
            return;
        };
        // Acquired before the task is spawned, which bounds the number of tasks.
        match Arc::clone(&self.refreshes).try_acquire_owned() {
            Ok(permit) => drop(tokio::spawn(Arc::clone(self).refresh(flight, request, stamp.clone(), permit))),
            Err(_) => self.metrics.refresh(RefreshOutcome::Skipped),
        }
    }

    async fn refresh(
        self: Arc<Self>,
        flight: Flight,
        request: LookupRequest,
        stamp: Stamp,
        _permit: OwnedSemaphorePermit,
    ) {
        let lease = Lease::random();
        let asked = self.shared.claim(&request.key, &lease, self.lease_times.life);
        let claim = match self.within_read_deadline(Instant::now(), asked).await {
            // One instance of the fleet, and not one that looked before another had finished.
            Ok(claim) if claim.state == LeaseState::Ours => claim,
            // The holder stores it. A key without a holder was loaded a moment ago, without success.
            Ok(_) => return self.metrics.refresh(RefreshOutcome::Skipped),
            Err(error) => {
                tracing::debug!(%error, "refresh skipped: no lease from the shared cache");
                self.metrics.refresh(RefreshOutcome::Skipped);
                // The lease may have been granted despite the error.
                return self.release(&request.key, &lease, Ending::Stored).await;
            }
        };
        let (outcome, ending) = if claim.seen.stamp.saw_the_same(&stamp) {
            self.reload(flight, &request, stamp).await
        } else {
            (RefreshOutcome::Skipped, Ending::Stored)
        };
        self.metrics.refresh(outcome);
        self.release(&request.key, &lease, ending).await;
    }

    /// Reloads the value and stores it in both tiers, unless its key was announced or dropped meanwhile.
    async fn reload(
        self: &Arc<Self>,
        flight: Flight,
        request: &LookupRequest,
        stamp: Stamp,
    ) -> (RefreshOutcome, Ending) {
        // The entry is unchanged, so its readers need not wait for this lease.
        let Some(call) = self.backend.spare_call() else { return (RefreshOutcome::Skipped, Ending::Stored) };
        let deadline = Instant::now() + self.deadline;
        let Ok(row) = call.fetch_counted(request.backend_key()).await else {
            return (RefreshOutcome::Error, Ending::NotStored);
        };
        let cached = CachedEntry { stamp, value: true, stale: false, mark: false, trusted: false };
        let (answer, ending) = self.finish_load(request, Some(&cached), row, deadline).await;
        let outcome = match (&answer, ending) {
            (Answer { value: None, .. }, _) => RefreshOutcome::Absent,
            (_, Ending::Stored) => RefreshOutcome::Refreshed,
            (_, Ending::NotStored) => RefreshOutcome::Skipped,
        };
        if ending == Ending::Stored {
            let hot = || {
                if outcome == RefreshOutcome::Absent {
                    self.hot.drop_entry(request.hash)
                } else {
                    self.fill_hot(request, &Ok(answer.clone()))
                }
            };
            // A refresh has no waiters, so there is no further round.
            drop(flight.finish(&Ok(answer.clone()), hot));
        }
        (outcome, ending)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const WINDOW: Duration = Duration::from_secs(40);

    /// Share of 100,000 reads that refresh.
    fn share(left: f64, cost: f64) -> f64 {
        let mut draws = StdRng::seed_from_u64(1);
        let expiry = Expiry { left: Duration::from_secs_f64(left), cost: Duration::from_secs_f64(cost) };
        let due = (0..100_000).filter(|_| is_due(expiry, WINDOW, draws.random())).count();
        due as f64 / 100_000.0
    }

    #[test]
    fn reads_refresh_as_often_as_the_formula_says() {
        // A quarter of the window is 10 s. A load of a millisecond changes nothing; one of 20 s is the scale itself.
        for (left, cost, scale) in
            [(40.0, 0.001, 10.0), (20.0, 0.001, 10.0), (10.0, 0.001, 10.0), (1.0, 0.001, 10.0), (30.0, 20.0, 20.0)]
        {
            let expected = f64::exp(-(left - cost) / scale);
            // Six standard deviations of 100,000 draws.
            let slack = 6.0 * (expected * (1.0 - expected) / 100_000.0).sqrt();
            let share = share(left, cost);
            assert!((share - expected).abs() <= slack, "{left} s left: {share} of the reads, not {expected}");
        }
    }

    #[test]
    fn none_refreshes_before_the_window_and_all_do_at_its_end() {
        assert_eq!(share(40.001, 0.001), 0.0);
        assert_eq!(share(40.001, 60.0), 0.0, "however long a load takes");
        assert_eq!(share(2.0, 2.0), 1.0);
        assert_eq!(share(0.0, 0.0), 1.0);
    }
}
