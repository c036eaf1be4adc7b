//! The fuzz targets with their corpus and with mutations of it, the same ones every time. `make fuzz TARGET=…` looks
//! for new ones.

#[path = "../../../fuzz/bodies/mod.rs"]
mod bodies;

use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::support::long_run::FUZZ_ROUNDS;

/// Pieces that bytes alone rarely make.
const WORDS: [&[u8]; 20] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"GET /v1/check/users/1 HTTP/1.1\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Host: x\r\n",
    b"0\r\n\r\n",
    b"\xef\xbb\xbf",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\"",
    b"\\u0000",
    b"[[",
    b"]",
    b"{\"key\":",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"\xc4\xb0",
];

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// One input made of others, by a few random steps.
fn mutated(rng: &mut StdRng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus.choose(rng).unwrap().clone();
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=bytes.len());
        let end = rng.random_range(at..=bytes.len().min(at + 32));
        match rng.random_range(0..6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = rng.random(),
            2 => drop(bytes.drain(at..end)),
            3 => drop(bytes.splice(at..end, WORDS.choose(rng).unwrap().iter().copied())),
            4 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
            _ => {
                let other = corpus.choose(rng).unwrap();
                let from = rng.random_range(0..=other.len());
                bytes.splice(at..end, other[from..].iter().copied().take(64));
            }
        }
    }
    bytes
}

/// Tries the corpus and this number of mutations; an input that fails is in the message.
fn try_target(target: &str, mutations: usize) {
    let corpus = corpus(target);
    let rounds = FUZZ_ROUNDS.size();
    for round in 0..rounds {
        let mut rng = StdRng::seed_from_u64(0xb100_f11e + round);
        let inputs =
            corpus.iter().cloned().chain(std::iter::repeat_with(|| mutated(&mut rng, &corpus)).take(mutations));
        for input in inputs {
            let tried = std::panic::catch_unwind(|| assert!(bodies::run(target, &input), "no such target"));
            assert!(tried.is_ok(), "{target} fails with b\"{}\"", input.escape_ascii());
        }
    }
}

/// Invariant: parsers-survive-any-bytes
#[test]
fn any_body_is_the_same_batch_however_it_is_cut() {
    try_target("batch", 5000);
}

/// Invariant: parsers-survive-any-bytes
#[test]
fn any_text_is_a_configuration_or_has_mistakes_of_one_line() {
    try_target("config", 40);
}

/// Invariant: parsers-survive-any-bytes
#[test]
fn any_bytes_are_an_entry_of_the_log_or_none() {
    try_target("entry", 100_000);
}

/// Invariant: parsers-survive-any-bytes
#[test]
fn any_requests_are_answered_in_front_of_hyper_as_behind_it() {
    try_target("http1", 500);
}

/// Invariant: parsers-survive-any-bytes
#[test]
fn any_file_opens_as_a_journal() {
    try_target("journal", 100);
}

/// Invariant: parsers-survive-any-bytes
#[test]
fn any_bytes_have_one_canonical_form_or_none() {
    try_target("key", 50_000);
}

/// Invariant: parsers-survive-any-bytes
#[test]
fn any_file_is_a_snapshot_or_refused() {
    try_target("snapshot", 3000);
}

/// A target that no test names would not be tried here.
#[test]
fn every_fuzz_target_is_tried_with_a_corpus() {
    let names = |folder: &str| {
        let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(folder)).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let tried = include_str!("fuzz.rs");
    for target in names("fuzz_targets") {
        assert!(tried.contains(&format!("try_target(\"{target}\"")), "{target}");
    }
    assert_eq!(names("fuzz_targets"), names("corpus"));
}
