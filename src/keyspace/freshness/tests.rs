use super::*;
use crate::key::KeyHash;

const MINUTE: Duration = Duration::from_secs(60);

fn promise(freshness: Freshness, max_lag: Option<Duration>) -> Promise {
    let log = max_lag.map_or(LogRole::None, |max_lag| LogRole::Announces { max_lag });
    Promise { freshness, max_staleness: MINUTE, log }
}

fn tracker_with(promise: Promise, hold: Duration) -> FreshnessTracker {
    let mut config = KeyspaceConfig { enforcement: Enforcement::Enforce, ..KeyspaceConfig::default() };
    config.canary.hold = hold;
    let absences =
        CachedAbsences { hot: Arc::new(HotCache::new(1 << 20)), shared: Arc::new(crate::cache::NoCache::default()) };
    let metrics = crate::metrics::Metrics::new().keyspace("users");
    FreshnessTracker::new("users", &config, promise, false, absences, None, &metrics)
}

fn tracker(freshness: Freshness) -> FreshnessTracker {
    tracker_with(promise(freshness, None), Duration::ZERO)
}

fn trusted(tracker: &FreshnessTracker, now: Moment) -> bool {
    now < tracker.trusted_until()
}

#[test]
fn an_aged_filter_stops_rejecting_by_itself() {
    let tracker = tracker(Freshness::Rebuilt);
    let scan = Moment::from_nanos(5_000_000_000);
    assert_eq!(tracker.explain(scan).0, State::Cold);
    tracker.swapped(scan);
    assert!(trusted(&tracker, scan.plus(Duration::from_secs(59))));
    assert!(!trusted(&tracker, scan.plus(Duration::from_secs(60))));
    let (state, reason) = tracker.explain(scan.plus(Duration::from_secs(61)));
    assert_eq!(state, State::Degraded);
    assert!(reason.contains("max_staleness = 1m"), "{reason}");
}

#[test]
fn a_static_key_set_does_not_age() {
    let tracker = tracker(Freshness::Static);
    tracker.swapped(Moment::from_nanos(1));
    assert!(trusted(&tracker, Moment::from_nanos(u64::MAX - 1)));
}

#[test]
fn only_a_scan_that_began_later_mends_a_broken_promise() {
    let tracker = tracker(Freshness::Announced);
    tracker.swapped(Moment::from_nanos(100));
    tracker.revoke(Moment::from_nanos(200), UnprotectedReason::FalseNegative, "a row was found".into());
    assert!(!trusted(&tracker, Moment::from_nanos(201)));
    tracker.swapped(Moment::from_nanos(150));
    assert_eq!(tracker.explain(Moment::from_nanos(300)), (State::Degraded, "a row was found".into()));
    tracker.swapped(Moment::from_nanos(250));
    assert_eq!(tracker.explain(Moment::from_nanos(300)).0, State::Enforcing);
}

#[test]
fn a_missed_row_ends_the_rejecting_until_a_later_scan_and_for_its_hold() {
    let second = |n: u64| Moment::from_nanos(n * 1_000_000_000);
    let tracker = tracker_with(promise(Freshness::Announced, None), MINUTE);
    let lifted = |now: Moment| tracker.lift_finished_hold(now);
    tracker.swapped(second(1));
    tracker.revoke_and_hold(second(10), "a row was missed");
    tracker.revoke_and_hold(second(20), "a row was missed");
    tracker.swapped(second(15));
    assert!(!trusted(&tracker, second(21)), "the second row may be younger than the scan");
    tracker.swapped(second(25));
    assert!(!trusted(&tracker, second(69)) && !lifted(second(69)), "fixed, and held");
    assert_eq!(tracker.explain(second(69)).0, State::Degraded);
    assert!(lifted(second(70)) && trusted(&tracker, second(70)), "one fault, however many rows");
    tracker.revoke_and_hold(second(100), "a row was missed");
    assert!(lifted(second(220)) && !trusted(&tracker, second(220)), "no longer held, and not fixed");
    tracker.swapped(second(230));
    assert!(trusted(&tracker, second(230)));
}

#[test]
fn a_filter_is_as_fresh_as_the_last_complete_poll_after_its_scan() {
    let tracker = tracker(Freshness::Polled);
    let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
    let poll = |began, covers| tracker.polled(at(began), PollCoverage { covers: Some(at(covers)), hidden: None });
    tracker.polls_began(Some(at(5)));
    tracker.swapped(at(10));
    assert!(!trusted(&tracker, at(11)), "no poll yet");
    poll(9, 5);
    assert!(!trusted(&tracker, at(11)), "one that began before the scan");
    poll(12, 5);
    assert!(trusted(&tracker, at(71)) && !trusted(&tracker, at(72)));
    tracker.poll_failed("gone");
    assert_eq!(
        tracker.explain(at(73)).1,
        "the last complete poll began 1m 1s ago, longer than max_staleness = 1m: gone"
    );
    tracker.polls_began(Some(at(80)));
    poll(81, 80);
    let (state, reason) = tracker.explain(at(82));
    assert_eq!(
        (state, reason.as_str()),
        (State::Degraded, "polls began after the filter's scan; a rebuild fixes that")
    );
    tracker.swapped(at(83));
    poll(84, 80);
    assert_eq!(tracker.explain(at(85)).0, State::Enforcing);
    assert_eq!(tracker.fresh_since(), Some(at(84)));
}

#[test]
fn a_later_fault_does_not_shorten_an_earlier_quarantine() {
    let tracker = tracker(Freshness::Announced);
    tracker.revoke(Moment::from_nanos(500), UnprotectedReason::Journal, "the journal was damaged".into());
    tracker.revoke(Moment::from_nanos(200), UnprotectedReason::FalseNegative, "a row was found".into());
    tracker.swapped(Moment::from_nanos(300));
    assert!(!trusted(&tracker, Moment::from_nanos(301)));
    assert_eq!(tracker.explain(Moment::from_nanos(301)), (State::Degraded, "the journal was damaged".into()));
}

#[test]
fn a_key_form_that_does_not_fit_never_enforces() {
    let tracker = tracker(Freshness::Static);
    tracker.set_conflict(Some("the key column is CHAR(8)".into()));
    tracker.swapped(Moment::from_nanos(100));
    assert_eq!(tracker.explain(Moment::from_nanos(300)), (State::Degraded, "the key column is CHAR(8)".into()));
}

#[test]
fn a_log_that_is_not_read_ends_the_rejecting_by_itself() {
    let max_lag = Some(Duration::from_secs(2));
    let tracker = tracker_with(promise(Freshness::Announced, max_lag), Duration::ZERO);
    let (scan, read) = (Moment::from_nanos(5_000_000_000), Moment::from_nanos(6_000_000_000));
    tracker.swapped(scan);
    assert!(!trusted(&tracker, scan), "never read");
    tracker.log_failed("refused".into());
    assert_eq!(tracker.explain(scan).1, "the delta log has not been read to its end yet, redis.max_lag is 2s: refused");
    tracker.log_read(read);
    assert!(trusted(&tracker, read.plus(Duration::from_millis(1_999))));
    assert!(!trusted(&tracker, read.plus(Duration::from_secs(2))));
    assert_eq!(tracker.explain(read.plus(Duration::from_secs(2))).0, State::Degraded);
}

#[test]
fn the_stricter_of_two_limits_counts() {
    let max_lag = Some(Duration::from_secs(2));
    let promise = Promise { max_staleness: Duration::from_secs(1), ..promise(Freshness::Rebuilt, max_lag) };
    let tracker = tracker_with(promise, Duration::ZERO);
    tracker.swapped(Moment::from_nanos(5_000_000_000));
    tracker.log_read(Moment::from_nanos(5_000_000_000));
    assert!(!trusted(&tracker, Moment::from_nanos(6_500_000_000)));
}

#[test]
fn the_right_to_reject_comes_back_without_the_absences_of_before() {
    let tracker = tracker_with(promise(Freshness::Announced, Some(MINUTE)), Duration::ZERO);
    let (hash, key) = (KeyHash::from_bits(7), crate::key::KeyForm::Text.canonical(b"k").unwrap());
    let hot = Arc::clone(&tracker.absences.hot);
    let cache = || hot.put_absence(hash, key.clone(), Duration::from_secs(60));
    let is_cached = || hot.get(hash, &key).is_some();
    let scan = Moment::now();
    tracker.swapped(scan);
    cache();
    tracker.log_read(Moment::now());
    assert!(!is_cached(), "the first trust");
    cache();
    tracker.log_read(Moment::now());
    assert!(is_cached(), "the right has not been away");
    tracker.revoke(Moment::now(), UnprotectedReason::FalseNegative, "a row was found".into());
    tracker.swapped(scan);
    assert!(is_cached() && !trusted(&tracker, Moment::now()), "nothing came back");
    tracker.swapped(Moment::now());
    assert!(!is_cached() && trusted(&tracker, Moment::now()), "after a revocation");
    cache();
    tracker.set_conflict(Some("CHAR(8)".into()));
    tracker.set_conflict(None);
    assert!(!is_cached(), "after a conflict");
    cache();
    let hour = Duration::from_secs(3600);
    tracker.log_read(Moment::now().minus(hour).unwrap_or(Moment::NEVER));
    assert!(is_cached() && !trusted(&tracker, Moment::now()), "the log lags");
    tracker.log_read(Moment::now());
    assert!(!is_cached(), "after a lag");
}

#[test]
fn nothing_of_a_log_without_announces_ends_the_trust() {
    let promise = Promise { log: LogRole::DropsOnly, ..promise(Freshness::Rebuilt, None) };
    let tracker = tracker_with(promise, Duration::ZERO);
    let scan = Moment::from_nanos(5_000_000_000);
    tracker.swapped(scan);
    let (state, reason) = tracker.explain(scan);
    assert!(state == State::Degraded && reason.contains("enforcement setting"), "first the fleet's setting: {reason}");
    tracker.log_failed("connection refused".into());
    assert!(trusted(&tracker, scan.plus(MINUTE / 2)), "a start without Redis");
    tracker.log_read(scan);
    tracker.log_failed("connection refused".into());
    assert!(!tracker.log_lost(scan.plus(MINUTE), UnprotectedReason::LogLost, "the delta log was replaced".into()));
    assert!(tracker.marks_lost(scan.plus(MINUTE)));
    assert!(trusted(&tracker, scan.plus(MINUTE / 2)), "an outage, or a wipe");
    assert!(!trusted(&tracker, scan.plus(MINUTE)), "its age counts");
}

#[test]
fn a_filter_and_its_secret_are_exchanged_while_nothing_is_trusted() {
    let tracker = tracker(Freshness::Static);
    tracker.swapped(Moment::from_nanos(1));
    let mut meanwhile = true;
    tracker.exchanged(Moment::from_nanos(2), || meanwhile = trusted(&tracker, Moment::from_nanos(3)));
    assert!(!meanwhile && trusted(&tracker, Moment::from_nanos(3)));
}

#[test]
fn unprotected_time_counts_for_the_reason_that_status_shows() {
    use UnprotectedReason::{FalseNegative, Journal, KeyForm, LogLag, NoFilter, Stale};
    let tracker = tracker_with(promise(Freshness::Rebuilt, Some(Duration::from_secs(2))), MINUTE);
    let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
    assert_eq!(tracker.unprotected_by(at(10)), Some(NoFilter));
    tracker.swapped(at(10));
    assert_eq!(tracker.unprotected_by(at(11)), Some(LogLag));
    tracker.log_read(at(11));
    assert_eq!(tracker.unprotected_by(at(12)), None);
    assert_eq!(tracker.unprotected_by(at(71)), Some(Stale), "before the lag, as in the text");
    tracker.log_read(at(11));
    tracker.revoke_and_hold(at(11), "a row was missed");
    assert_eq!(tracker.unprotected_by(at(12)), Some(FalseNegative));
    tracker.revoke(at(20), Journal, "the journal was damaged".into());
    assert_eq!(tracker.unprotected_by(at(12)), Some(Journal));
    tracker.swapped(at(21));
    assert_eq!(tracker.unprotected_by(at(12)), Some(FalseNegative), "held");
    tracker.set_conflict(Some("CHAR(8)".into()));
    assert_eq!(tracker.unprotected_by(at(12)), Some(KeyForm));
    tracker.switch_instance(Some(EnforcementSetting { mode: Enforcement::Shadow, percent: 100 }));
    assert_eq!(tracker.unprotected_by(at(12)), Some(UnprotectedReason::Shadow));
}
