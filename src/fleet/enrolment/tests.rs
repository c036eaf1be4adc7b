use super::*;

const TERMS: RollCallTerms = RollCallTerms { lease: Duration::from_secs(10), window: Duration::from_secs(30) };
const OLD: u64 = 3600;

fn log(number: u8) -> LogIdentity {
    LogIdentity([number; 16])
}

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

fn member(writer: u64, view: u64, confirmed: u64, serial: u64) -> Member {
    let writer = WriterId(writer);
    Member { writer, terms: TERMS, serial, confirmed, view, admitted: true, reported: false }
}

fn roster(members: &[Member]) -> Roster {
    let view = members.iter().map(|member| member.view).max().unwrap();
    Roster {
        version: String::new(),
        view,
        age: Duration::from_secs(OLD),
        members: members.to_vec(),
        has_strangers: false,
    }
}

/// Of a log of this age in seconds.
fn page(number: u8, age: u64) -> RosterPage {
    RosterPage { log: log(number), age: Duration::from_secs(age) }
}

fn answer(number: u8, own: Member, admitted: bool) -> Enrolled {
    Enrolled { log: log(number), member: Some(Member { admitted, ..own }), is_replicated: true }
}

/// Instance 1, enrolled at second 100 with view 5, not admitted.
fn fresh() -> (Enrolment, Member) {
    let mut fresh = Enrolment::new(WriterId(1), TERMS, false);
    assert!(fresh.due(None, at(99)).is_some());
    let own = member(1, 5, 0, 1);
    fresh.enrolled(answer(1, own, false), at(100), at(100));
    assert_eq!((fresh.log(), fresh.enrolling()), (Some(log(1)), Some(Enrolling::NotYet)));
    (fresh, own)
}

#[test]
fn a_fresh_writer_waits_for_every_reader_or_their_lease() {
    let (mut fresh, own) = fresh();
    let others = |confirmed: u64| roster(&[own, member(2, 1, 5, 7), member(3, 2, confirmed, 7)]);
    assert_eq!(fresh.applied(&page(1, OLD), &others(4), at(101)), None);
    assert_eq!(fresh.enrolling(), Some(Enrolling::Unconfirmed(1, Duration::from_secs(9))));
    assert_eq!(fresh.applied(&page(1, OLD), &others(5), at(101)), Some(RosterChange::Admit));
    assert_eq!(fresh.applied(&page(1, OLD), &others(4), at(109)), None);
    assert_eq!(fresh.applied(&page(1, OLD), &others(4), at(110)), Some(RosterChange::Admit), "its lease is over");
    fresh.admitted(answer(1, own, true));
    assert_eq!((fresh.enrolling(), fresh.is_waiting()), (None, false));
}

#[test]
fn a_fresh_writer_acknowledges_nothing_in_a_young_log() {
    let (mut fresh, own) = fresh();
    let alone = roster(&[own]);
    assert_eq!(fresh.applied(&page(1, 4), &alone, at(101)), None);
    assert_eq!(fresh.enrolling(), Some(Enrolling::YoungLog(Duration::from_secs(6))));
    assert_eq!(fresh.applied(&page(1, 10), &alone, at(107)), Some(RosterChange::Admit));
    let mut first = Enrolment::new(WriterId(1), TERMS, true);
    first.enrolled(answer(1, own, false), at(100), at(100));
    assert_eq!(first.applied(&page(1, 0), &alone, at(100)), Some(RosterChange::Admit), "by the operator's word");
    first.enrolled(answer(2, own, false), at(101), at(101));
    assert_eq!(first.applied(&page(2, 0), &alone, at(101)), None, "which holds for the first log only");
    let mut refused = Enrolment::new(WriterId(1), TERMS, true);
    refused.refuse_first_start();
    refused.enrolled(answer(1, own, false), at(100), at(100));
    assert_eq!(refused.applied(&page(1, 0), &alone, at(100)), None);
}

#[test]
fn a_fresh_writer_acknowledges_nothing_in_a_roster_that_was_lost_alone() {
    let (mut fresh, own) = fresh();
    let young = |seconds| Roster { age: Duration::from_secs(seconds), ..roster(&[own]) };
    assert_eq!(fresh.applied(&page(1, OLD), &young(1), at(101)), None);
    assert_eq!(fresh.enrolling(), Some(Enrolling::YoungLog(Duration::from_secs(9))));
    assert_eq!(fresh.applied(&page(1, OLD), &young(10), at(102)), Some(RosterChange::Admit));
}

#[test]
fn a_writer_that_was_admitted_lately_goes_on_in_another_log() {
    let (mut fresh, own) = fresh();
    let heritage = |enrolment: &Enrolment, second: u64| match enrolment.due(Some(log(2)), at(second)) {
        Some(RosterChange::Enrol { admitted_in, .. }) => admitted_in,
        other => panic!("{other:?}"),
    };
    assert_eq!(heritage(&fresh, 101), None, "it was not admitted");
    fresh.admitted(answer(1, own, true));
    assert_eq!((heritage(&fresh, 129), heritage(&fresh, 130)), (Some(log(1)), None), "for one window");
    fresh.enrolled(answer(1, Member { view: 8, ..own }, false), at(120), at(120));
    assert_eq!(heritage(&fresh, 121), None, "its field was gone from the same log");
    let unreplicated = Enrolled { is_replicated: false, ..answer(1, own, true) };
    fresh.enrolled(unreplicated, at(121), at(121));
    assert_eq!(heritage(&fresh, 122), None, "a failover may lose it");
}

#[test]
fn an_enrolment_is_renewed_four_times_a_lease_and_for_each_new_member() {
    let (mut fresh, own) = fresh();
    fresh.admitted(answer(1, own, true));
    let is_due = |enrolment: &Enrolment, millis: u64| {
        let now = Moment::from_nanos(100_000_000_000 + millis * 1_000_000);
        enrolment.due(Some(log(1)), now).is_some()
    };
    assert!(!is_due(&fresh, 2_499) && is_due(&fresh, 2_500));
    fresh.applied(&page(1, OLD), &roster(&[own, member(2, 6, 0, 1)]), at(100));
    let due = fresh.due(Some(log(1)), at(100));
    assert!(matches!(due, Some(RosterChange::Enrol { confirmed: Some((of, 6)), .. }) if of == log(1)), "{due:?}");
}

#[test]
fn a_silent_member_is_removed_after_a_window_and_not_sooner() {
    let (mut fresh, own) = fresh();
    fresh.admitted(answer(1, own, true));
    let mut look =
        |serial: u64, second: u64| fresh.applied(&page(1, OLD), &roster(&[own, member(2, 1, 9, serial)]), at(second));
    assert_eq!((look(7, 101), look(8, 120), look(8, 150)), (None, None, None));
    assert_eq!(look(8, 151), Some(RosterChange::Remove(WriterId(2), 8)));
}

#[test]
fn a_roster_that_was_lost_is_waited_for_anew() {
    let (mut fresh, own) = fresh();
    fresh.enrolled(answer(1, Member { serial: 2, ..own }, false), at(104), at(104));
    let silent = member(2, 4, 0, 7);
    let left = |fresh: &mut Enrolment| {
        assert_eq!(fresh.applied(&page(1, OLD), &roster(&[own, silent]), at(108)), None);
        fresh.enrolling()
    };
    assert_eq!(left(&mut fresh), Some(Enrolling::Unconfirmed(1, Duration::from_secs(2))), "a renewal is no beginning");
    // The same log and view, and the first serial number.
    fresh.enrolled(answer(1, own, false), at(108), at(108));
    assert_eq!(left(&mut fresh), Some(Enrolling::Unconfirmed(1, Duration::from_secs(10))));
}
