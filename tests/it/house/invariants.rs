//! The page `tests/INVARIANTS.md`: what must always hold, and the tests that hold it.
//!
//! A test says so itself, by a line `/// Invariant: <name>` in its documentation. `make invariants` writes the page.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::suite::files;
use crate::support::long_run::given;

/// Set, the page is written and not compared.
const WRITE: &str = "BLOOMGUARD_WRITE_INVARIANTS";

/// Before the name of an invariant, above a test.
const MARK: &str = "/// Invariant: ";

const HEAD: &str = "\
# Invariants

What must always hold, and the tests that hold it. `make invariants` writes this page from the lines `/// Invariant:`
above the tests and from the table in `tests/it/house/invariants.rs`; a test compares.

| invariant | held by |
|---|---|
";

/// Each invariant: its name and what it says.
const INVARIANTS: &[(&str, &str)] = &[
    (
        "announced-never-404",
        "A key whose announce was acknowledged is never answered 404 once its row is committed: not during a \
         build, a swap, a restart or an outage.",
    ),
    (
        "announced-never-cached-absent",
        "No cached absence outlives an acknowledged announce of its key, and none is stored within the commit window.",
    ),
    (
        "announced-found-by-fleet",
        "Another instance finds an announced key at once with the version of the announce, and within \
         `max_lag` without it.",
    ),
    (
        "announced-survives-interleavings",
        "No announce is lost by a swap, or beside the plain stores of a scan, in any interleaving of threads.",
    ),
    (
        "promises-hold-in-any-order",
        "No promise about announces, drops and cached absences is broken in any order of events.",
    ),
    (
        "acknowledged-is-durable",
        "An announce is acknowledged only if it is durable everywhere, and on as many replicas as are configured.",
    ),
    ("lost-log-is-noticed", "A reader notices each entry of the delta log that it lost."),
    (
        "new-primary-is-new-log",
        "A failover makes a new log, under Sentinel and in a cluster, and loses no acknowledged announce.",
    ),
    (
        "mixed-fleet-does-no-harm",
        "Instances of different configurations do no harm to each other: another form of keys is a loss, and \
         the longest window counts.",
    ),
    (
        "polls-find-every-row",
        "The next poll finds a row that no caller announced, also if it commits late, shares its watermark or \
         has one in the future.",
    ),
    (
        "polled-rows-outlive-builds",
        "A polled row stays found through builds and cached absences; a keyspace whose polls fail stops \
         answering 404 from the filter.",
    ),
    (
        "restart-knows-what-it-missed",
        "A restarted instance enforces before any scan only with every key that was announced or became \
         visible meanwhile; else it waits for a scan.",
    ),
    (
        "damaged-journal-degrades",
        "A journal that lacks acknowledged announces keeps the keyspace from answering 404 for their window.",
    ),
    ("damaged-snapshot-refused", "A damaged snapshot, or one of another filter, is not restored."),
    (
        "only-enforcing-rejects",
        "Only an enforcing keyspace answers 404 from the filter, and a keyspace that cannot show its \
         freshness is not enforcing.",
    ),
    ("same-share-at-every-instance", "`enforce_percent` covers the same keys at every instance."),
    (
        "fleet-switch-lasts",
        "A switch of the fleet reaches instances that start later and survives a Redis that forgets.",
    ),
    (
        "lost-log-is-no-false-negative",
        "A row that the filter lacks while announces are known to be lost is not counted as a mistake of the filter.",
    ),
    (
        "absent-keys-wait-behind-present-ones",
        "In front of the backend, keys that the filter called absent wait behind those it holds, and are shed first.",
    ),
    (
        "wrong-404-is-noticed",
        "A row that the filter called absent is noticed while the filter answers, and degrades the keyspace.",
    ),
    (
        "proved-before-enforcing",
        "A new filter answers 404 only after its absences were compared with the backend and none was a row.",
    ),
    (
        "no-absence-while-not-enforcing",
        "No cached absence is served or stored while the filter could not enforce, and none lives longer than \
         `max_staleness`.",
    ),
    ("failure-is-no-absence", "A failure of the backend or the source is never an absence, and is never cached."),
    ("undecodable-is-a-miss", "A cached entry that cannot be decoded is a miss and never an absence."),
    (
        "flood-leaves-nothing",
        "A flood of absent keys costs the backend only false positives and leaves nothing behind.",
    ),
    (
        "empty-backend-is-doubted",
        "A backend that lost its rows is not believed: its absences are not cached. A flood of absent keys \
         does not look like one.",
    ),
    (
        "rebuilds-stay-rare",
        "A filter that is too small is rebuilt seldom, however many keys are announced or asked for.",
    ),
    (
        "builds-touch-no-active-filter",
        "A build never changes the active filter: no reader waits for it and no present key is missed across swaps.",
    ),
    (
        "bounded-memory",
        "Queues, caches, labels and buffers are bounded, and a build that does not fit the memory limit is refused.",
    ),
    ("bad-input-changes-nothing", "A bad reload, snapshot or scan changes nothing but a counter and a log line."),
    ("fingerprint-guards-values", "A cached value of another backend or query is a miss."),
    (
        "one-call-a-key",
        "One backend call loads a key for all callers, in the process and in the fleet; a wait for it ends \
         within the deadline.",
    ),
    ("waiting-serves-nothing-old", "A caller that waited for another load is not served what changed meanwhile."),
    (
        "removed-rows-stay-removed",
        "No late fill brings a removed or changed row back, also where Redis forgot the removal.",
    ),
    (
        "expired-values-only-in-outages",
        "An expired value is served only while the backend gives no answer, never as an absence, and never \
         past a drop or an announce.",
    ),
    (
        "deadline-ends-a-lookup",
        "A lookup ends by its deadline and leaves no work behind; a load goes on only while a caller waits for it.",
    ),
    (
        "backend-outage-one-call",
        "A backend that gives no answer is asked by one call at a time, and is found again by itself.",
    ),
    (
        "redis-is-not-the-promise",
        "Where nothing is announced, no outage, restart or wipe of Redis keeps the filter from answering 404, or makes it \
         answer wrongly.",
    ),
    ("redis-outage-costs-no-answer", "A Redis that breaks costs no answer and no task, and is used again by itself."),
    (
        "rate-is-kept",
        "The false-positive rate is at most the configured rate, past the capacity too; where that ends the \
         keyspace says so.",
    ),
    ("growth-loses-no-key", "No key is lost by growth, by saved layers or by the removal of other keys."),
    ("same-bits-everywhere", "Every processor computes the same bits and the same answers."),
    ("unions-are-exact", "A union of filters is exact, or refused with the difference named."),
    ("one-key-one-form", "A key is the same key in every request, format, batch and source."),
    ("spelling-is-kept", "A row is found as it is spelled, however its database folds case."),
    ("batch-equals-single", "Many keys at once are answered as each alone, and fail alone."),
    ("fast-path-equals-layers", "The fast path answers and counts exactly as the layers do, in order."),
    ("parsers-survive-any-bytes", "No bytes crash a parser or are read in two ways."),
    ("probes-allocate-nothing", "A probe allocates nothing."),
    (
        "secrets-are-never-told",
        "No answer, log line or error holds a secret of the configuration or a text of a database.",
    ),
    ("scopes-limit-tokens", "A token does what its scopes allow, and a page of another site changes nothing."),
];

/// Tests by the invariant that they name, each as `(file, test)`.
fn marks(files: &[(String, String)]) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut marks: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (path, text) in files {
        let mut names = vec![];
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix(MARK) {
                names.push(name);
            } else if let Some(test) = function(line) {
                names.drain(..).for_each(|name| marks.entry(name).or_default().push((path, test)));
            } else if !names.is_empty() {
                assert!(line.starts_with("///") || line.starts_with("#["), "{path}: the mark {names:?} is on no test");
            }
        }
        assert!(names.is_empty(), "{path}: the mark {names:?} is on no test");
    }
    marks
}

fn function(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

fn page(marks: &BTreeMap<&str, Vec<(&str, &str)>>) -> String {
    let mut page = HEAD.to_owned();
    for (name, sentence) in INVARIANTS {
        let link = |(path, test): &(&str, &str)| match path.strip_prefix("tests/") {
            Some(path) => format!("[`{test}`]({path})"),
            None => format!("[`{test}`](../{path})"),
        };
        let tests: Vec<_> = marks[name].iter().map(link).collect();
        writeln!(page, "| **{name}**: {sentence} | {} |", tests.join(", ")).unwrap();
    }
    page
}

#[test]
fn every_invariant_has_a_test_and_the_page_lists_them() {
    let files: Vec<_> =
        files(&["src", "tests"]).into_iter().filter(|(path, _)| !path.ends_with("invariants.rs")).collect();
    let marks = marks(&files);
    let untested: Vec<_> = INVARIANTS.iter().map(|(name, _)| name).filter(|name| !marks.contains_key(*name)).collect();
    assert!(untested.is_empty(), "no test is marked with {MARK}… of {untested:?}");
    let unknown: Vec<_> = marks.iter().filter(|(name, _)| INVARIANTS.iter().all(|(known, _)| known != *name)).collect();
    assert!(unknown.is_empty(), "INVARIANTS lacks {unknown:?}");
    let (page, file) = (page(&marks), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/INVARIANTS.md"));
    if given::<String>(WRITE).is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == page, "tests/INVARIANTS.md is not up to date: run `make invariants`");
}

#[test]
fn names_of_invariants_differ() {
    for (at, (name, _)) in INVARIANTS.iter().enumerate() {
        assert!(INVARIANTS[..at].iter().all(|(other, _)| other != name), "{name} is there twice");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
    }
}
