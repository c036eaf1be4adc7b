use super::super::roster::Member;
use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TERMS: RollCallTerms = RollCallTerms { lease: Duration::from_secs(10), window: Duration::from_secs(30) };
const SLACK: Duration = Duration::from_secs(2);

fn log(number: u8) -> LogIdentity {
    LogIdentity([number; 16])
}

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

fn member(writer: u64, reported: bool) -> Member {
    let writer = WriterId(writer);
    Member { writer, terms: TERMS, serial: 1, confirmed: 0, view: 1, admitted: true, reported }
}

fn roster(members: &[Member]) -> Roster {
    Roster {
        version: String::new(),
        view: 9,
        age: Duration::from_secs(3600),
        members: members.to_vec(),
        has_strangers: false,
    }
}

/// Reader 1, which has read log 1 with these members to its end at second 100.
fn reader(members: &[u64]) -> RollCall {
    let mut reader = RollCall::new(WriterId(1), TERMS);
    reader.enrolled(log(1), at(99));
    let members: Vec<Member> = members.iter().map(|writer| member(*writer, true)).collect();
    assert_eq!(reader.applied(log(1), &roster(&members), at(100), at(100), SLACK), RollCallState::Idle);
    reader
}

fn page(reader: &mut RollCall, log: LogIdentity, members: &[Member], second: u64) -> RollCallState {
    reader.applied(log, &roster(members), at(second), at(second), SLACK)
}

#[test]
fn a_new_log_is_trusted_once_every_writer_of_the_old_one_has_reported() {
    let mut reader = reader(&[1, 2, 3]);
    assert!(reader.log_replaced(log(1), true, at(101)));
    let waits = |writers: &[u64]| RollCallState::Waiting(writers.iter().copied().map(WriterId).collect());
    assert_eq!(page(&mut reader, log(2), &[], 101), waits(&[1, 2, 3]));
    assert_eq!(page(&mut reader, log(2), &[member(1, true), member(2, false)], 102), waits(&[2, 3]), "each by itself");
    assert_eq!(page(&mut reader, log(2), &[member(1, true), member(2, true)], 103), waits(&[3]));
    assert_eq!(
        page(&mut reader, log(2), &[member(3, true)], 104),
        RollCallState::Complete,
        "what is heard stays heard"
    );
    assert_eq!(page(&mut reader, log(2), &[member(3, true)], 105), RollCallState::Idle);
}

#[test]
fn only_a_whole_reader_judges_another_log() {
    assert!(!reader(&[1, 2]).log_replaced(log(1), false, at(101)), "something was lost of the log");
    assert!(!reader(&[1, 2]).log_replaced(log(7), true, at(101)), "no page of that log was read to its end");
    assert!(!reader(&[2, 3]).log_replaced(log(1), true, at(101)), "it is not in the roster");
    let mut never = RollCall::new(WriterId(1), TERMS);
    assert_eq!(page(&mut never, log(1), &[member(1, true)], 100), RollCallState::Idle);
    assert!(!never.log_replaced(log(1), true, at(101)), "not enrolled");
}

#[test]
fn an_enrolment_judges_for_its_lease_only() {
    assert!(reader(&[1, 2]).log_replaced(log(1), true, at(108)));
    assert!(!reader(&[1, 2]).log_replaced(log(1), true, at(109)));
}

#[test]
fn a_renewal_without_a_page_proves_nothing() {
    let mut reader = reader(&[1, 2]);
    reader.enrolled(log(1), at(108));
    assert!(!reader.log_replaced(log(1), true, at(109)));
}

#[test]
fn reports_that_come_too_late_do_not_stand_in_for_a_scan() {
    let mut reader = reader(&[1, 2]);
    assert!(reader.log_replaced(log(1), true, at(101)));
    let all = [member(1, true), member(2, true)];
    assert!(matches!(page(&mut reader, log(2), &all, 129), RollCallState::Failed(_)));
    assert_eq!(page(&mut reader, log(2), &all, 130), RollCallState::Idle);
}

#[test]
fn two_changes_in_a_row_forget_no_writer() {
    let mut reader = reader(&[1, 2, 3]);
    assert!(reader.log_replaced(log(1), true, at(101)));
    reader.enrolled(log(2), at(101));
    page(&mut reader, log(2), &[member(1, true), member(2, true), member(4, false)], 102);
    assert!(reader.log_replaced(log(2), false, at(103)), "while reports are awaited it is not whole by itself");
    let two = [member(1, true), member(2, true)];
    let waits = |writers: &[u64]| RollCallState::Waiting(writers.iter().copied().map(WriterId).collect());
    assert_eq!(page(&mut reader, log(3), &two, 104), waits(&[3, 4]), "of the first log, and of the second");
    let late = [member(1, true), member(2, true), member(3, true), member(4, true)];
    assert!(matches!(page(&mut reader, log(3), &late, 129), RollCallState::Failed(_)), "counted from the first log");
}

#[test]
fn an_instance_on_other_terms_ends_the_roll_call() {
    let other = Member { terms: RollCallTerms { lease: SECOND, ..TERMS }, ..member(2, true) };
    let mut before = RollCall::new(WriterId(1), TERMS);
    before.enrolled(log(1), at(99));
    page(&mut before, log(1), &[member(1, true), other], 100);
    assert!(!before.log_replaced(log(1), true, at(101)));
    let mut after = reader(&[1]);
    assert!(after.log_replaced(log(1), true, at(101)));
    assert!(matches!(page(&mut after, log(2), &[member(1, true), other], 102), RollCallState::Failed(_)));
    let mut strangers = reader(&[1]);
    assert!(strangers.log_replaced(log(1), true, at(101)));
    let roster = Roster { has_strangers: true, ..roster(&[member(1, true)]) };
    let state = strangers.applied(log(2), &roster, at(102), at(102), SLACK);
    assert!(matches!(state, RollCallState::Failed(_)), "{state:?}");
}
