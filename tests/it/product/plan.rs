//! `bloomguard plan`, run as a user runs it.

use std::process::{Command, Output};

use tempfile::TempDir;

use crate::product::users::{config, site};
use crate::support::config::Config;
use crate::support::database::Site;

fn plan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bloomguard")).arg("plan").args(arguments).output().unwrap()
}

fn page(arguments: &[&str]) -> String {
    let output = plan(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The columns of the line that begins so.
fn line<'a>(page: &'a str, begin: &str) -> Vec<&'a str> {
    let line = page
        .lines()
        .find(|line| line.trim_start().starts_with(begin))
        .unwrap_or_else(|| panic!("no {begin:?} in\n{page}"));
    line.split_whitespace().collect()
}

#[test]
fn every_kind_is_shown_with_what_it_takes() {
    let page = page(&["--keys", "1_000_000", "--fpr", "1e-3", "--rps", "10000"]);
    assert!(page.starts_with("1,000,000 keys at a false-positive rate of 0.001; 10,000 lookups"), "{page}");
    let classic = line(&page, "classic");
    assert_eq!(classic[1..4], ["10", "14,377,640", "14.38"], "{page}");
    assert_eq!(classic.last(), Some(&"10.00"), "ten of 10,000 calls a second leak: {page}");
    let bloom = line(&page, "bloom");
    assert!(bloom[1] == "8" && bloom[3].starts_with("15.7"), "{page}");
    assert_eq!((bloom[4], bloom[5]), ("1,965,632", "3.7"), "filter and candidate: {page}");
    assert!(
        page.contains(
            "128.0 MiB for caches, 32.0 MiB for announces within their commit window, 64.0 MiB for \
        requests and responses, 32.0 MiB for the process\n"
        ),
        "{page}"
    );
    for kind in ["scalable", "counting", "windowed"] {
        assert!(line(&page, kind).len() >= 8, "{page}");
    }
    assert!(line(&page, "10,000 ").len() > 6 && line(&page, "1,000,000,000 ").len() > 6, "{page}");
    assert!(line(&page, "3e-2")[4] == "bloom:" && line(&page, "1e-6")[4] == "classic:", "{page}");
}

#[test]
fn what_can_not_be_planned_is_refused_by_its_value() {
    for (arguments, told) in [
        (&["--keys", "10", "--fpr", "0"][..], "'0'"),
        (&["--keys", "10", "--fpr", "1"], "'1'"),
        (&["--keys", "10", "--fpr", "NaN"], "'NaN'"),
        (&["--keys", "10", "--fpr=-0.5"], "'-0.5'"),
        (&["--keys", "0", "--fpr", "0.1"], "'0'"),
        (&["--keys", "10", "--fpr", "0.1", "--rps", "many"], "'many'"),
        (&["--keys", "10"], "--fpr"),
        (&["--keyspace", "users"], "--config"),
        (
            &["--keys", "18446744073709551615", "--fpr", "1e-9"],
            "18446744073709551615 keys at a false-positive rate of 0.000000001",
        ),
    ] {
        let output = plan(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(told), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_a_keyspace_are_counted() {
    let (dir, site) = (TempDir::new().unwrap(), site(Site::postgres()).await);
    let file = dir.path().join("bloomguard.toml");
    let keyspace = |config: Config| vec!["--config".to_owned(), config.write(dir.path())];
    let page_of = |arguments: Vec<String>| page(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let counted = page_of(keyspace(
        config(&site.url()).users(|k| k.set("filter.kind", "classic").set("filter.false_positive_rate", 0.01)),
    ));
    assert!(counted.starts_with(
        "1,300 keys (keyspace users: 1000 counted by the source; headroom 1.3) at a false-positive rate of 0.01"
    ));
    assert_eq!(line(&counted, "classic")[1], "*", "what is configured: {counted}");

    let ids = dir.path().join("ids");
    std::fs::write(&ids, (0..500).map(|id| format!("{id}\n")).collect::<String>()).unwrap();
    let two = config(&site.url()).keyspace("others", |k| {
        k.set("freshness", "announced").set("backend.kind", "set").set("key", "integer").source_file(&ids)
    });
    let others = [keyspace(two), vec!["--keyspace".into(), "others".into()]].concat();
    assert!(page_of(others).starts_with("650 keys (keyspace others: 500 counted by"));

    let unnamed = plan(&["--config", file.to_str().unwrap()]);
    assert_eq!(
        (unnamed.status.code(), String::from_utf8(unnamed.stderr).unwrap()),
        (Some(1), "name one with --keyspace: others, users\n".into())
    );
    std::fs::write(&file, "nonsense = 1").unwrap();
    assert_eq!(plan(&["--config", file.to_str().unwrap()]).status.code(), Some(78));
}
