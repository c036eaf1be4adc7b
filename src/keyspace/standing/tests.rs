use super::*;

fn standing(freshness: Freshness) -> Standing {
    Standing::new(Enforcement::Enforce, freshness, Duration::from_secs(60), None)
}

fn trusted(standing: &Standing, now: Moment) -> bool {
    now < standing.trusted_until()
}

#[test]
fn an_aged_filter_stops_rejecting_by_itself() {
    let standing = standing(Freshness::Rebuilt);
    let scan = Moment::from_nanos(5_000_000_000);
    assert_eq!(standing.explain(scan).0, State::Cold);
    standing.swapped(scan);
    assert!(trusted(&standing, scan.plus(Duration::from_secs(59))));
    assert!(!trusted(&standing, scan.plus(Duration::from_secs(60))));
    let (state, reason) = standing.explain(scan.plus(Duration::from_secs(61)));
    assert_eq!(state, State::Degraded);
    assert!(reason.contains("max_staleness = 1m"), "{reason}");
}

#[test]
fn a_static_key_set_does_not_age() {
    let standing = standing(Freshness::Static);
    standing.swapped(Moment::from_nanos(1));
    assert!(trusted(&standing, Moment::from_nanos(u64::MAX - 1)));
}

#[test]
fn only_a_scan_that_began_later_mends_a_broken_promise() {
    let standing = standing(Freshness::Announced);
    standing.swapped(Moment::from_nanos(100));
    standing.broken(Moment::from_nanos(200), "a row was found".into());
    assert!(!trusted(&standing, Moment::from_nanos(201)));
    standing.swapped(Moment::from_nanos(150));
    assert_eq!(standing.explain(Moment::from_nanos(300)), (State::Degraded, "a row was found".into()));
    standing.swapped(Moment::from_nanos(250));
    assert_eq!(standing.explain(Moment::from_nanos(300)).0, State::Enforcing);
}

#[test]
fn a_missed_row_ends_the_rejecting_until_a_later_scan_and_for_its_hold() {
    let second = |n: u64| Moment::from_nanos(n * 1_000_000_000);
    let standing = standing(Freshness::Announced).with_hold(Duration::from_secs(60));
    let lifted = |now: Moment| {
        let over = standing.hold_is_over(now);
        if over {
            standing.lift_hold();
        }
        over
    };
    standing.swapped(second(1));
    standing.missed_row(second(10), "a row was missed");
    standing.missed_row(second(20), "a row was missed");
    standing.swapped(second(15));
    assert!(!trusted(&standing, second(21)), "the second row may be younger than the scan");
    standing.swapped(second(25));
    assert!(!trusted(&standing, second(69)) && !lifted(second(69)), "mended, and held");
    assert_eq!(standing.explain(second(69)).0, State::Degraded);
    assert!(lifted(second(70)) && trusted(&standing, second(70)), "one fault, however many rows");
    standing.missed_row(second(100), "a row was missed");
    assert!(lifted(second(220)) && !trusted(&standing, second(220)), "no longer held, and not mended");
    standing.swapped(second(230));
    assert!(trusted(&standing, second(230)));
}

#[test]
fn a_filter_is_as_fresh_as_the_last_complete_poll_after_its_scan() {
    let standing = standing(Freshness::Polled);
    let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
    let poll = |began, covers| standing.polled(at(began), PollCoverage { covers: Some(at(covers)), hidden: None });
    standing.polls_began(Some(at(5)));
    standing.swapped(at(10));
    assert!(!trusted(&standing, at(11)), "no poll yet");
    poll(9, 5);
    assert!(!trusted(&standing, at(11)), "one that began before the scan");
    poll(12, 5);
    assert!(trusted(&standing, at(71)) && !trusted(&standing, at(72)));
    standing.poll_failed("gone");
    assert_eq!(
        standing.explain(at(73)).1,
        "the last complete poll began 1m 1s ago, longer than max_staleness = 1m: gone"
    );
    standing.polls_began(Some(at(80)));
    poll(81, 80);
    let (state, reason) = standing.explain(at(82));
    assert_eq!(
        (state, reason.as_str()),
        (State::Degraded, "polls began after the filter's scan, which a rebuild mends")
    );
    standing.swapped(at(83));
    poll(84, 80);
    assert_eq!(standing.explain(at(85)).0, State::Enforcing);
    assert_eq!(standing.fresh_since(), Some(at(84)));
}

#[test]
fn a_later_fault_does_not_shorten_an_earlier_quarantine() {
    let standing = standing(Freshness::Announced);
    standing.broken(Moment::from_nanos(500), "the journal was damaged".into());
    standing.broken(Moment::from_nanos(200), "a row was found".into());
    standing.swapped(Moment::from_nanos(300));
    assert!(!trusted(&standing, Moment::from_nanos(301)));
    assert_eq!(standing.explain(Moment::from_nanos(301)), (State::Degraded, "the journal was damaged".into()));
}

#[test]
fn a_key_form_that_does_not_fit_never_enforces() {
    let standing = standing(Freshness::Static);
    standing.conflict(Some("the key column is CHAR(8)".into()));
    standing.swapped(Moment::from_nanos(100));
    assert_eq!(standing.explain(Moment::from_nanos(300)), (State::Degraded, "the key column is CHAR(8)".into()));
}

#[test]
fn a_log_that_is_not_read_ends_the_rejecting_by_itself() {
    let standing = Standing::new(
        Enforcement::Enforce,
        Freshness::Announced,
        Duration::from_secs(60),
        Some(Duration::from_secs(2)),
    );
    let (scan, read) = (Moment::from_nanos(5_000_000_000), Moment::from_nanos(6_000_000_000));
    standing.swapped(scan);
    assert!(!trusted(&standing, scan), "never read");
    standing.log_failed("refused".into());
    assert_eq!(
        standing.explain(scan).1,
        "the delta log has not been read to its end yet, redis.max_lag is 2s: refused"
    );
    standing.log_read(read);
    assert!(trusted(&standing, read.plus(Duration::from_millis(1_999))));
    assert!(!trusted(&standing, read.plus(Duration::from_secs(2))));
    assert_eq!(standing.explain(read.plus(Duration::from_secs(2))).0, State::Degraded);
}

#[test]
fn the_stricter_of_two_limits_counts() {
    let standing =
        Standing::new(Enforcement::Enforce, Freshness::Rebuilt, Duration::from_secs(1), Some(Duration::from_secs(2)));
    standing.swapped(Moment::from_nanos(5_000_000_000));
    standing.log_read(Moment::from_nanos(5_000_000_000));
    assert!(!trusted(&standing, Moment::from_nanos(6_500_000_000)));
}
