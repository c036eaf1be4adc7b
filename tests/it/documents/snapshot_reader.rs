//! The reader in Python that proves the page on the format.

use std::path::Path;
use std::process::Command;

use bloomguard::filter::snapshot::{HASH, Header, Hex, JournalMark, Taken, open, stage_snapshot, views};
use bloomguard::filter::{Filter, FilterKind, FilterSpec};
use bloomguard::key::{KeyForm, KeySecret};

use crate::support::long_run::SNAPSHOT_KEYS;

fn header(secret: &KeySecret, spec: FilterSpec) -> Header {
    Header {
        keyspace: "users".into(),
        written_by: "test".into(),
        hash: HASH.into(),
        secret: Hex(*secret.as_bytes()),
        key_form: "text".into(),
        basis: Hex([1; 8]),
        kind: spec.kind.as_str().into(),
        capacity: spec.capacity,
        rate: spec.rate,
        generation: 1,
        items: 0,
        counted: vec![],
        taken: Taken { unix_nanos: 1, boot_id: String::new(), boot_nanos: 2 },
        scan_age: 3,
        log: None,
        polls: None,
        journal: JournalMark { id: Hex([3; 16]), next: 9 },
        proven: true,
        layers: Vec::new(),
    }
}

/// Of every length that XXH3 treats otherwise.
fn key(number: usize) -> String {
    format!("käy:{number}{}", "x".repeat([0, 10, 100, 180, 400][number % 5]))
}

#[test]
fn a_reader_of_the_page_alone_answers_as_we_do_for_every_kind() {
    FilterKind::ALL.into_iter().for_each(the_reader_answers_as_we_do);
}

fn the_reader_answers_as_we_do(kind: FilterKind) {
    let dir = tempfile::tempdir().unwrap();
    let (secret, spec) = (KeySecret::random(), FilterSpec { kind, capacity: 300, rate: 0.05 });
    let hash = |key: &str| secret.hash(&KeyForm::Text.canonical(key.as_bytes()).unwrap()).get();
    let filter = Filter::new(spec).unwrap();
    // Past its capacity, so that it has grown by a layer if its kind does.
    (0..600).for_each(|i| filter.insert(hash(&key(i))));
    let layers = filter.layer_count();
    assert_eq!(layers > 1, kind != FilterKind::Counting, "{kind:?}");
    let place = dir.path().join("users.snapshot");
    stage_snapshot(&place, header(&secret, spec), &views(&filter), || false).unwrap().publish().unwrap();

    let keys: Vec<String> = (0..2_000).map(key).collect();
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/snapshot_reader.py");
    let told = Command::new("python3").arg(&reader).arg(&place).args(&keys).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let expected: String = keys
        .iter()
        .map(|key| format!("{} {key}\n", if filter.contains(hash(key)) { "maybe" } else { "absent" }))
        .collect();
    assert!(expected.contains("absent"), "{kind:?}: all keys are in it");
    assert!(String::from_utf8_lossy(&told.stdout) == expected, "{kind:?}: the reader and the filter differ");

    // And we read what we wrote.
    let again = open(&place).unwrap().load().unwrap().into_filter(Box::new(|_| Some(Box::new(())))).unwrap();
    assert!(keys.iter().all(|key| again.contains(hash(key)) == filter.contains(hash(key))));
    assert_eq!((again.items(), again.capacity(), again.layer_count()), (filter.items(), filter.capacity(), layers));
}

/// A long run shows that a restart with 10M keys takes at most 50 ms.
#[test]
#[allow(clippy::print_stdout)]
fn a_large_snapshot_is_read_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let capacity = SNAPSHOT_KEYS.size();
    let (secret, spec) = (KeySecret::random(), FilterSpec { kind: FilterKind::Bloom, capacity, rate: 0.001 });
    let filter = Filter::new(spec).unwrap();
    (0..1000).for_each(|n| filter.insert(secret.hash(&KeyForm::Text.canonical(key(n).as_bytes()).unwrap()).get()));
    let place = dir.path().join("users.snapshot");
    let began = std::time::Instant::now();
    stage_snapshot(&place, header(&secret, spec), &views(&filter), || false).unwrap().publish().unwrap();
    println!("written and synced in {:?}, {} bytes", began.elapsed(), filter.bytes());
    for _ in 0..5 {
        let began = std::time::Instant::now();
        let again = open(&place).unwrap().load().unwrap().into_filter(Box::new(|_| Some(Box::new(())))).unwrap();
        println!("read and verified in {:?}, {} bytes", began.elapsed(), again.bytes());
        assert_eq!((again.capacity(), again.items()), (capacity, filter.items()));
    }
}
