//! A circuit breaker: calls pass while it is closed, fail at once while it is open, and one call tries while it is half
//! open.
//!
//! Callers ask [`Breaker::begin`] for a [`CallGuard`], make their call, and report how it ended:
//! [`CallGuard::succeed`], [`CallGuard::fail`], [`CallGuard::trip`] or [`CallGuard::abandon`]. Below that lies the
//! state machine, which reads no clock: [`Breaker::try_call`] and the reports take the time.
//!
//! No crate: a hundred lines, and how trials, pauses and late reports behave is what the tests hold.

mod call;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::labels::BreakerState;

pub use call::CallGuard;

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct BreakerPolicy {
    /// Failures in a row that open it. At least 1.
    pub failures: u32,
    /// How long it stays open the first time; doubled each time it opens again without a call having succeeded in
    /// between.
    pub first_pause: Duration,
    /// The pause never grows beyond this. Also how long a trial may stay unreported before another one passes.
    pub longest_pause: Duration,
}

/// The right to make one call. Its report counts only while the breaker has not changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    period: u64,
}

/// No call passes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// A call may pass after this time.
    pub retry_in: Duration,
}

/// A circuit breaker.
///
/// The report of a call that began before the last change is ignored: it says nothing about now, since the connection
/// may be another one. A lock guards the state, held for a few instructions. The observer is called under it, so that
/// it sees the changes in their order. It must not block, and must not call the breaker.
pub struct Breaker {
    policy: BreakerPolicy,
    now: Mutex<StateMachine>,
    on_change: Box<dyn Fn(BreakerState) + Send + Sync>,
    /// A call dropped without a report is a failure if it ran for so long.
    unanswered_after: Option<Duration>,
}

#[derive(Debug)]
struct StateMachine {
    phase: Phase,
    /// Numbers the periods between changes; permits of an earlier period are void.
    period: u64,
    /// The pause that the next opening takes.
    next_pause: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen { since: Instant },
}

impl Breaker {
    /// A closed breaker. `on_change` is called with every new state.
    #[must_use]
    pub fn new(policy: BreakerPolicy, on_change: impl Fn(BreakerState) + Send + Sync + 'static) -> Self {
        let inner = StateMachine { phase: Phase::Closed { failures: 0 }, period: 0, next_pause: policy.first_pause };
        Self { policy, now: Mutex::new(inner), on_change: Box::new(on_change), unanswered_after: None }
    }

    /// The state as of the last call or report. An open breaker whose pause is over still says open: the next call
    /// tries it.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        match self.now.lock().phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Why a call would be rejected at `now`, without asking for one.
    #[must_use]
    pub fn rejects(&self, now: Instant) -> Option<Rejected> {
        let wait_until = self.now.lock().phase.wait_until(&self.policy)?;
        let retry_in = wait_until.saturating_duration_since(now);
        (!retry_in.is_zero()).then_some(Rejected { retry_in })
    }

    /// Asks to make a call at `now`. After the pause of an open breaker, the first caller gets the trial.
    ///
    /// # Errors
    /// [`Rejected`] while it is open, or while a trial is under way.
    pub fn try_call(&self, now: Instant) -> Result<Permit, Rejected> {
        let mut inner = self.now.lock();
        let Some(wait_until) = inner.phase.wait_until(&self.policy) else { return Ok(Permit { period: inner.period }) };
        let retry_in = wait_until.saturating_duration_since(now);
        if !retry_in.is_zero() {
            return Err(Rejected { retry_in });
        }
        self.change(&mut inner, Phase::HalfOpen { since: now });
        Ok(Permit { period: inner.period })
    }

    /// Reports that the call was answered. Closes a half-open breaker, and returns true if it did.
    pub fn succeed(&self, permit: Permit) -> bool {
        let mut inner = self.now.lock();
        if permit.period != inner.period {
            return false;
        }
        let closes = matches!(inner.phase, Phase::HalfOpen { .. });
        match &mut inner.phase {
            Phase::Closed { failures } => {
                *failures = 0;
                // Not on the trial's success: a dependency that answers trials and fails under load needs longer
                // pauses.
                inner.next_pause = self.policy.first_pause;
            }
            Phase::HalfOpen { .. } => self.change(&mut inner, Phase::Closed { failures: 0 }),
            Phase::Open { .. } => {}
        }
        closes
    }

    /// Reports that the call ended and showed nothing, as when it was cancelled. If it was the trial, the next caller
    /// gets the trial.
    pub fn give_up(&self, permit: Permit, now: Instant) {
        let mut inner = self.now.lock();
        if permit.period == inner.period && matches!(inner.phase, Phase::HalfOpen { .. }) {
            self.change(&mut inner, Phase::Open { until: now });
        }
    }

    /// Reports that the call failed. Opens a half-open breaker, and a closed one after enough failures in a row.
    /// Returns true if it did.
    pub fn fail(&self, permit: Permit, now: Instant) -> bool {
        self.failed(permit, now, self.policy.failures)
    }

    /// Reports a failure that further calls would meet too, such as a lost connection: opens without counting. Returns
    /// true if it did.
    pub fn trip(&self, permit: Permit, now: Instant) -> bool {
        self.failed(permit, now, 1)
    }

    fn failed(&self, permit: Permit, now: Instant, enough: u32) -> bool {
        let mut inner = self.now.lock();
        if permit.period != inner.period {
            return false;
        }
        let opens = match &mut inner.phase {
            Phase::Closed { failures } => {
                *failures += 1;
                *failures >= enough
            }
            Phase::HalfOpen { .. } => true,
            Phase::Open { .. } => false,
        };
        if opens {
            let pause = inner.next_pause;
            inner.next_pause = (pause * 2).min(self.policy.longest_pause);
            self.change(&mut inner, Phase::Open { until: now + pause });
        }
        opens
    }

    fn change(&self, inner: &mut StateMachine, phase: Phase) {
        inner.phase = phase;
        inner.period += 1;
        (self.on_change)(match phase {
            Phase::Closed { .. } => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        });
    }
}

impl Phase {
    /// Until when no further call passes.
    fn wait_until(&self, policy: &BreakerPolicy) -> Option<Instant> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { until } => Some(*until),
            // A trial that is never reported must not keep it half open for ever.
            Self::HalfOpen { since } => Some(*since + policy.longest_pause),
        }
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("policy", &self.policy).field("now", &self.now).finish_non_exhaustive()
    }
}
