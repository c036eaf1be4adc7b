//! A circuit breaker: calls pass while it is closed, fail at once while it is open, and one call tries while it is half open.
//!
//! It knows nobody: callers ask [`Breaker::try_call`], do their call, and report with the [`Permit`] they got. The clock is passed in.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::labels::BreakerState;

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct BreakerPolicy {
    /// Failures in a row that open it. At least 1.
    pub failures: u32,
    /// How long it stays open the first time; doubled each time it opens again without a call having succeeded in between.
    pub first_pause: Duration,
    /// The pause never grows beyond this. Also how long a trial may go unreported before another one is let through.
    pub longest_pause: Duration,
}

/// The right to make one call. Its report counts only while the breaker has not changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    period: u64,
}

/// No call now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    /// Asking earlier than this is in vain.
    pub retry_in: Duration,
}

/// A circuit breaker.
///
/// A report of a call that began before the last change says nothing about now (the connection may be another one), so it is
/// ignored. The state sits under a lock that is held for a few instructions; the observer is called under it, so that it sees the
/// changes in their order, and must not block or come back.
pub struct Breaker {
    policy: BreakerPolicy,
    now: Mutex<Inner>,
    on_change: Box<dyn Fn(BreakerState) + Send + Sync>,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    /// Numbers the stretches between changes; permits of an earlier one are void.
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
    /// A closed breaker. `on_change` hears of every new state.
    #[must_use]
    pub fn new(policy: BreakerPolicy, on_change: impl Fn(BreakerState) + Send + Sync + 'static) -> Self {
        let inner = Inner { phase: Phase::Closed { failures: 0 }, period: 0, next_pause: policy.first_pause };
        Self { policy, now: Mutex::new(inner), on_change: Box::new(on_change) }
    }

    /// The state as of the last call or report. An open breaker whose pause is over still says open: the next call tries it.
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

    /// Asks to make a call at `now`. After the pause of an open breaker, the first to ask gets the trial.
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

    /// Reports that the call was answered. Closes a half-open breaker; says whether it did.
    pub fn succeed(&self, permit: Permit) -> bool {
        let mut inner = self.now.lock();
        if permit.period != inner.period {
            return false;
        }
        let closes = matches!(inner.phase, Phase::HalfOpen { .. });
        match &mut inner.phase {
            Phase::Closed { failures } => {
                *failures = 0;
                // Not on the trial's success: a dependency that answers trials and fails under load shall get longer pauses.
                inner.next_pause = self.policy.first_pause;
            }
            Phase::HalfOpen { .. } => self.change(&mut inner, Phase::Closed { failures: 0 }),
            Phase::Open { .. } => {}
        }
        closes
    }

    /// Reports that the call ended without telling anything, as where nobody waits for it any more. The next to ask gets the trial that it was.
    pub fn give_up(&self, permit: Permit, now: Instant) {
        let mut inner = self.now.lock();
        if permit.period == inner.period && matches!(inner.phase, Phase::HalfOpen { .. }) {
            self.change(&mut inner, Phase::Open { until: now });
        }
    }

    /// Reports that the call failed. Opens a half-open breaker, and a closed one after enough failures in a row. Says whether it did.
    pub fn fail(&self, permit: Permit, now: Instant) -> bool {
        self.failed(permit, now, self.policy.failures)
    }

    /// Reports a failure that no further call could mend, such as a lost connection: opens without counting. Says whether it did.
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

    fn change(&self, inner: &mut Inner, phase: Phase) {
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
    /// Until when no call passes, but for the one that may be under way.
    fn wait_until(&self, policy: &BreakerPolicy) -> Option<Instant> {
        match self {
            Self::Closed { .. } => None,
            Self::Open { until } => Some(*until),
            // A trial that was never reported, as by a cancelled task, must not keep it half open for ever.
            Self::HalfOpen { since } => Some(*since + policy.longest_pause),
        }
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker").field("policy", &self.policy).field("now", &self.now).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    const POLICY: BreakerPolicy = BreakerPolicy {
        failures: 3,
        first_pause: Duration::from_millis(100),
        longest_pause: Duration::from_millis(350),
    };

    fn breaker() -> (Breaker, Arc<Mutex<Vec<BreakerState>>>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        (Breaker::new(POLICY, move |state| log.lock().push(state)), seen)
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_does_not() {
        let (breaker, seen) = breaker();
        let start = Instant::now();
        let permit = breaker.try_call(start).unwrap();
        for _ in 0..10 {
            assert!(!breaker.fail(permit, start));
            assert!(!breaker.fail(permit, start));
            breaker.succeed(permit);
        }
        assert!(!breaker.fail(permit, start));
        assert!(!breaker.fail(permit, start));
        assert!(breaker.fail(permit, start));
        assert_eq!(breaker.try_call(start + ms(40)), Err(Rejected { retry_in: ms(60) }));
        assert_eq!(*seen.lock(), [BreakerState::Open]);
    }

    #[test]
    fn one_call_tries_and_its_success_closes() {
        let (breaker, seen) = breaker();
        let start = Instant::now();
        assert!(breaker.trip(breaker.try_call(start).unwrap(), start));
        let trial = breaker.try_call(start + ms(100)).unwrap();
        assert!(breaker.try_call(start + ms(100)).is_err(), "a second call passed beside the trial");
        breaker.succeed(trial);
        assert!(breaker.try_call(start + ms(101)).is_ok());
        assert_eq!(*seen.lock(), [BreakerState::Open, BreakerState::HalfOpen, BreakerState::Closed]);
    }

    #[test]
    fn pauses_double_up_to_the_longest_until_a_call_succeeds() {
        let (breaker, _) = breaker();
        let mut now = Instant::now();
        breaker.trip(breaker.try_call(now).unwrap(), now);
        for pause in [100, 200, 350, 350] {
            assert_eq!(breaker.try_call(now), Err(Rejected { retry_in: ms(pause) }));
            now += ms(pause);
            breaker.fail(breaker.try_call(now).unwrap(), now);
        }
        now += ms(350);
        breaker.succeed(breaker.try_call(now).unwrap());
        breaker.trip(breaker.try_call(now).unwrap(), now);
        assert_eq!(
            breaker.try_call(now),
            Err(Rejected { retry_in: ms(350) }),
            "a trial alone must not shorten the pause"
        );
        now += ms(350);
        breaker.succeed(breaker.try_call(now).unwrap());
        breaker.succeed(breaker.try_call(now).unwrap());
        breaker.trip(breaker.try_call(now).unwrap(), now);
        assert_eq!(breaker.try_call(now), Err(Rejected { retry_in: ms(100) }));
    }

    #[test]
    fn reports_from_before_a_change_are_ignored() {
        let (breaker, _) = breaker();
        let start = Instant::now();
        let old = breaker.try_call(start).unwrap();
        breaker.trip(old, start);
        breaker.succeed(old);
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.succeed(breaker.try_call(start + ms(100)).unwrap());
        for _ in 0..10 {
            assert!(!breaker.fail(old, start + ms(100)));
            assert!(!breaker.trip(old, start + ms(100)));
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn trial_that_is_never_reported_gives_way_to_another() {
        let (breaker, _) = breaker();
        let start = Instant::now();
        breaker.trip(breaker.try_call(start).unwrap(), start);
        let lost = breaker.try_call(start + ms(100)).unwrap();
        assert!(breaker.try_call(start + ms(449)).is_err());
        let next = breaker.try_call(start + ms(450)).unwrap();
        breaker.succeed(lost);
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        breaker.succeed(next);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn trial_that_is_given_up_goes_to_the_next_who_asks() {
        let (breaker, _) = breaker();
        let start = Instant::now();
        let before = breaker.try_call(start).unwrap();
        breaker.give_up(before, start);
        assert_eq!(breaker.state(), BreakerState::Closed, "a call that tells nothing is no failure");
        breaker.trip(before, start);
        assert_eq!(breaker.rejects(start + ms(40)), Some(Rejected { retry_in: ms(60) }));
        assert_eq!(breaker.rejects(start + ms(100)), None);
        let given_up = breaker.try_call(start + ms(100)).unwrap();
        assert_eq!(breaker.rejects(start + ms(100)), Some(Rejected { retry_in: ms(350) }), "the trial is taken");
        breaker.give_up(given_up, start + ms(110));
        let next = breaker.try_call(start + ms(110)).unwrap();
        breaker.give_up(given_up, start + ms(110));
        assert!(breaker.succeed(next));
        assert!(!breaker.succeed(next), "it is closed already");
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Wait(u64),
        Call,
        Succeed(prop::sample::Index),
        Fail(prop::sample::Index),
        Trip(prop::sample::Index),
        GiveUp(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        let any_permit = any::<prop::sample::Index>;
        prop_oneof![
            1 => (0..400u64).prop_map(Step::Wait),
            3 => Just(Step::Call),
            1 => any_permit().prop_map(Step::Succeed),
            2 => any_permit().prop_map(Step::Fail),
            1 => any_permit().prop_map(Step::Trip),
            1 => any_permit().prop_map(Step::GiveUp),
        ]
    }

    proptest! {
        /// Whatever is asked and reported in whatever order: no call passes while it is open, at most one per pause tries, a
        /// rejection's `retry_in` is kept, and it never stays shut.
        #[test]
        fn state_machine_keeps_its_promises(steps in prop::collection::vec(step(), 1..80)) {
            let (breaker, _) = breaker();
            let start = Instant::now();
            let mut now = start;
            let mut permits = vec![breaker.try_call(now).unwrap()];
            for step in steps {
                let before = breaker.state();
                match step {
                    Step::Wait(n) => now += ms(n),
                    Step::GiveUp(i) => {
                        breaker.give_up(*i.get(&permits), now);
                        let opened = before == BreakerState::HalfOpen && breaker.state() == BreakerState::Open;
                        prop_assert!(opened || breaker.state() == before, "giving up told something");
                        prop_assert!(!opened || breaker.rejects(now).is_none(), "nobody may take the trial's place");
                    }
                    Step::Call => match (breaker.rejects(now), breaker.try_call(now)) {
                        (told, Ok(permit)) => {
                            prop_assert_eq!(told, None);
                            let expected = if before == BreakerState::Closed { before } else { BreakerState::HalfOpen };
                            prop_assert_eq!(breaker.state(), expected);
                            if expected == BreakerState::HalfOpen {
                                prop_assert!(breaker.try_call(now).is_err(), "two trials at once");
                            }
                            permits.push(permit);
                        }
                        (told, Err(rejected)) => {
                            prop_assert_eq!(told, Some(rejected));
                            prop_assert_ne!(before, BreakerState::Closed);
                            prop_assert_eq!(breaker.state(), before);
                            prop_assert!(rejected.retry_in > Duration::ZERO && rejected.retry_in <= POLICY.longest_pause);
                        }
                    },
                    Step::Succeed(i) => {
                        breaker.succeed(*i.get(&permits));
                        prop_assert!(before != BreakerState::Open || breaker.state() == before, "a report closed an open breaker");
                    }
                    Step::Fail(i) => {
                        let opened = breaker.fail(*i.get(&permits), now);
                        prop_assert_eq!(opened, before != BreakerState::Open && breaker.state() == BreakerState::Open);
                    }
                    Step::Trip(i) => {
                        let opened = breaker.trip(*i.get(&permits), now);
                        prop_assert_eq!(opened, before != BreakerState::Open && breaker.state() == BreakerState::Open);
                    }
                }
            }
            prop_assert!(breaker.try_call(now + POLICY.longest_pause).is_ok(), "it stayed shut");
        }
    }
}
