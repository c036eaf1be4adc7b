use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const POLICY: BreakerPolicy =
    BreakerPolicy { failures: 3, first_pause: Duration::from_millis(100), longest_pause: Duration::from_millis(350) };

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
    assert_eq!(breaker.try_call(now), Err(Rejected { retry_in: ms(350) }), "a trial alone must not shorten the pause");
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

fn failing_after(unanswered_after: Duration) -> Breaker {
    breaker().0.unanswered_after(unanswered_after)
}

#[tokio::test(start_paused = true)]
async fn each_call_is_reported_once() {
    let (breaker, _) = breaker();
    for _ in 0..2 {
        assert!(!breaker.begin().unwrap().fail());
    }
    assert!(breaker.begin().unwrap().fail(), "the third failure opens it");
    assert_eq!(breaker.rejects_now(), Some(Rejected { retry_in: ms(100) }));
    tokio::time::advance(ms(100)).await;
    let trial = breaker.begin().unwrap();
    assert!(breaker.begin().is_err(), "a second call passed beside the trial");
    assert!(trial.succeed(), "the trial closes it");
    assert!(!breaker.begin().unwrap().succeed(), "it is closed already");
    assert!(breaker.begin().unwrap().trip());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_a_failure_only_if_it_ran_for_long() {
    let breaker = failing_after(ms(50));
    for _ in 0..10 {
        let dropped = breaker.begin().unwrap();
        tokio::time::advance(ms(49)).await;
        drop(dropped);
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
    for _ in 0..3 {
        let dropped = breaker.begin().unwrap();
        tokio::time::advance(ms(50)).await;
        assert_eq!(dropped.elapsed(), ms(50));
        drop(dropped);
    }
    assert_eq!(breaker.state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_is_abandoned_or_dropped_goes_to_the_next_caller() {
    let (breaker, _) = breaker();
    assert!(breaker.begin().unwrap().trip());
    tokio::time::advance(ms(100)).await;
    breaker.begin().unwrap().abandon();
    drop(breaker.begin().unwrap());
    tokio::time::advance(ms(1000)).await;
    assert!(breaker.begin().unwrap().succeed(), "without a limit no dropped call is a failure");
}

#[tokio::test(start_paused = true)]
async fn calls_under_one_permit_count_while_nothing_has_changed() {
    let (breaker, _) = breaker();
    let permit = breaker.try_call(Instant::now()).unwrap();
    drop(breaker.begin_under(permit));
    assert!(!breaker.begin_under(permit).fail());
    assert!(breaker.begin_under(permit).trip());
    assert!(!breaker.begin_under(permit).trip(), "it is of an earlier period");
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
    /// Whatever is asked and reported in whatever order: no call passes while it is open, at most one per pause tries,
    /// a rejection's `retry_in` is kept, and it never stays shut.
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
