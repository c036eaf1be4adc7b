//! One call behind a breaker, reported exactly once.

use std::time::{Duration, Instant};

use super::{Breaker, Permit, Rejected};

/// A call under way. Its user ends it by one of the methods that consume it.
///
/// Dropped without a report, as by a cancelled task, it counts as a failure if it ran for
/// [`Breaker::unanswered_after`], and as abandoned otherwise. The time is Tokio's, which tests can pause.
#[derive(Debug)]
#[must_use = "a call that is dropped counts as abandoned"]
pub struct CallGuard<'a> {
    breaker: &'a Breaker,
    /// `None` once it was reported.
    permit: Option<Permit>,
    began: Instant,
}

impl Breaker {
    /// Counts a call that is dropped without a report as a failure if it ran for at least this long. By default it
    /// never counts.
    #[must_use]
    pub fn unanswered_after(mut self, unanswered_after: Duration) -> Self {
        self.unanswered_after = Some(unanswered_after);
        self
    }

    /// Asks to make a call now.
    ///
    /// # Errors
    /// [`Rejected`] as for [`Breaker::try_call`].
    pub fn begin(&self) -> Result<CallGuard<'_>, Rejected> {
        Ok(self.begin_under(self.try_call(now())?))
    }

    /// Begins one of several calls under one permit, such as the commands over one connection.
    pub fn begin_under(&self, permit: Permit) -> CallGuard<'_> {
        CallGuard { breaker: self, permit: Some(permit), began: now() }
    }

    /// Why a call would be rejected now, without asking for one.
    #[must_use]
    pub fn rejects_now(&self) -> Option<Rejected> {
        self.rejects(now())
    }
}

impl CallGuard<'_> {
    /// How long the call has been under way.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.began)
    }

    /// Reports that the call was answered. Returns true if that closed the breaker: the dependency answers again.
    pub fn succeed(mut self) -> bool {
        self.permit.take().is_some_and(|permit| self.breaker.succeed(permit))
    }

    /// Reports that the call failed. Returns true if that opened the breaker.
    pub fn fail(mut self) -> bool {
        self.permit.take().is_some_and(|permit| self.breaker.fail(permit, now()))
    }

    /// Reports a failure that further calls would meet too, such as a lost connection. Returns true if that opened the
    /// breaker.
    pub fn trip(mut self) -> bool {
        self.permit.take().is_some_and(|permit| self.breaker.trip(permit, now()))
    }

    /// Reports that the call ended and showed nothing about the dependency.
    pub fn abandon(mut self) {
        if let Some(permit) = self.permit.take() {
            self.breaker.give_up(permit, now());
        }
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        if self.breaker.unanswered_after.is_some_and(|enough| self.elapsed() >= enough) {
            self.breaker.fail(permit, now());
        } else {
            self.breaker.give_up(permit, now());
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
