//! The searches of every test run: short ones with all rules, and one without each rule where that is noticed soonest.

use bloomguard_model::case::Case;
use bloomguard_model::rule::{Rule, Rules};
use bloomguard_model::search::Found;

/// Far more states than any short search has.
const MOST: usize = 3_000_000;

/// The scenario that notices the absence of a rule soonest. Rules not listed take longer, or are explained in
/// `docs/consistency.md`.
const NOTICED: &[(Rule, &str)] = &[
    (Rule::MemoryLastsADeadlineMore, "cached-at-a"),
    (Rule::WindowFromSending, "cached-at-a"),
    (Rule::RememberFirst, "build-at-a"),
    (Rule::MemoryForbidsServing, "two-at-a"),
    (Rule::LookAgain, "cached-at-a"),
    (Rule::LookAgainIsNotCut, "cached-at-a"),
    (Rule::AnnounceDropsHot, "cached-at-a"),
    (Rule::Mark, "cached-at-a"),
    (Rule::StoreInItsLog, "invalidate-flush"),
    (Rule::LongestWindowCounts, "lowered"),
    (Rule::WindowsAreRegistered, "lowered-crash"),
    (Rule::OtherFormIsALoss, "other-form"),
    (Rule::AbsenceOfThisScan, "cached-other-form"),
    (Rule::JournalTellsTheWindow, "alone-lowered"),
    (Rule::CompareAndSet, "invalidate-at-a"),
    (Rule::TombstoneFirst, "invalidate-at-a"),
    (Rule::DualInsert, "build-at-a"),
    (Rule::MemoryIntoCandidate, "build-at-a"),
    (Rule::MemoryIntoCandidateEarly, "build-at-a"),
    (Rule::AnotherLogIsALoss, "wipe"),
    (Rule::CountEntries, "trim"),
    (Rule::BeginAWindowAgo, "crash-of-b"),
    (Rule::BuildAfterFirstPage, "crash-of-b"),
    (Rule::ScanAWindowAfterLoss, "trim"),
    (Rule::LagEndsTrust, "cached-at-b"),
    (Rule::EffectBeforeCursor, "cached-at-b"),
    (Rule::NoBuildWhileUnheld, "full"),
    (Rule::FullMemoryIsAllKeys, "full"),
    (Rule::ReplayBeforeTrust, "snapshot"),
    (Rule::ReplayFromPlace, "snapshot"),
    (Rule::Journal, "alone"),
    (Rule::JournalIntoMemory, "alone"),
    (Rule::JournalUntilSnapshot, "alone-snapshot"),
    (Rule::AcknowledgeWithinDeadline, "roll-call"),
    (Rule::NewcomersWait, "roll-call"),
    (Rule::AdmissionIsAnswered, "roll-call"),
    (Rule::TellAfterAppend, "roll-call"),
    (Rule::HearEveryWriter, "roll-call"),
    (Rule::PageWithinLease, "roll-call"),
    (Rule::WritersStillRemember, "roll-call"),
    (Rule::UnheardStayRequired, "roll-call-twice"),
    (Rule::DescentEnds, "roll-call-twice"),
    (Rule::OnlyWholeBecomesPending, "roll-call-twice"),
    (Rule::HearEveryWriter, "wipe-called"),
    (Rule::AppendAgain, "wipe-called"),
];

fn searched(name: &str, rules: Rules) -> Found {
    let case = Case::short().find(|case| case.name() == name).unwrap_or_else(|| panic!("no short case {name}"));
    case.search(rules, MOST).found
}

/// Invariant: promises-hold-in-any-order
#[test]
fn no_interleaving_of_a_short_case_breaks_a_promise() {
    for case in Case::short() {
        assert_eq!(case.search(Rules::ALL, MOST).found, Found::Nothing, "{}", case.name());
    }
}

#[test]
fn the_absence_of_a_rule_is_noticed() {
    for (rule, name) in NOTICED {
        let found = searched(name, Rules::ALL.without(*rule));
        assert!(matches!(found, Found::Counterexample(_)), "{name} does not notice that {rule:?} is gone: {found:?}");
    }
}

#[test]
fn a_counterexample_is_described_step_by_step() {
    let Found::Counterexample(path) = searched("cached-at-a", Rules::ALL.without(Rule::Mark)) else {
        panic!("no counterexample")
    };
    assert_eq!(path.first().map(String::as_str), Some("A: PUT begins"));
    assert!(path.last().is_some_and(|last| last.ends_with("=> a row that exists is answered 404")), "{path:?}");
}

#[test]
fn a_search_that_is_cut_short_says_so() {
    let case = Case::short().next();
    assert_eq!(case.map(|case| case.search(Rules::ALL, 100).found), Some(Found::Unfinished));
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = Case::all().map(|case| case.name()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
