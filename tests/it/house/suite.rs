//! Rules about the tests.

use std::path::{Path, PathBuf};

use super::architecture::rust_files;
use crate::support::long_run::IGNORED;

/// Names are sentences that fit on a line of a report.
const LONGEST_NAME: usize = 69;

/// Files that may read the environment, each with its reason.
const READ_ENVIRONMENT: &[(&str, &str)] = &[
    ("tests/it/documents/reference/mod.rs", "writes the reference instead of comparing it"),
    ("tests/it/support/long_run.rs", "the sizes of long runs, for all tests"),
    ("tests/it/support/server.rs", "PATH; the benchmarks use this file without the others"),
    ("tests/loom/build.rs", "the folder that cargo names"),
    ("tests/model/src/main.rs", "a program of its own"),
];

/// Files that hold a configuration as text, each with its reason. The others build theirs, see `support::config`.
const HOLD_TOML: &[(&str, &str)] = &[
    ("tests/it/attacks/secrets.rs", "texts that are broken around their secrets"),
    ("tests/it/config/mod.rs", "the text is what is tested"),
    ("tests/it/house/suite.rs", "this rule"),
    ("tests/it/product/reload.rs", "half a section"),
    ("tests/it/support/config.rs", "documentation"),
];

/// Path below the repository and text of each file.
pub fn files(folders: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = vec![];
    folders.iter().for_each(|folder| rust_files(&root.join(folder), &mut paths));
    paths.sort();
    let read = |path: &PathBuf| {
        (path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

/// Names of functions, of which those of tests are the longest.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()).filter(|name| !name.contains(' '))
}

#[test]
fn names_of_tests_are_short() {
    let files = files(&["src", "tests"]);
    let long: Vec<_> = files
        .iter()
        .flat_map(|(path, text)| functions(text).map(move |name| (path, name)))
        .filter(|(_, name)| name.len() > LONGEST_NAME)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn only_long_runs_depend_on_the_environment() {
    let read = ["env::var(", "env::var_os(", "env::vars"];
    for (path, text) in files(&["tests"]).iter().filter(|(path, _)| path != "tests/it/house/suite.rs") {
        let may = READ_ENVIRONMENT.iter().any(|(file, _)| file == path);
        let does = read.iter().any(|call| text.contains(call));
        assert_eq!(does, may, "{path}: sizes of tests come from tests/it/support/long_run.rs");
    }
}

#[test]
fn an_ignored_test_is_a_long_run() {
    for (path, text) in files(&["src", "tests"]) {
        for line in text.lines().map(str::trim).filter(|line| line.starts_with("#[ignore")) {
            assert_eq!(line, format!("#[ignore = \"{IGNORED}\"]"), "{path}");
        }
    }
}

#[test]
fn configurations_are_built_and_not_written_as_text() {
    for (path, text) in files(&["tests/it"]) {
        let may = HOLD_TOML.iter().any(|(file, _)| *file == path);
        assert_eq!(text.contains("[keyspaces"), may, "{path}: build configurations with support::config");
    }
}
