//! Who may import whom inside `keyspace`.

use super::architecture::{Source, sources};

/// Rooms by level: each imports lower levels only. The facade's files are above all of them.
const LEVELS: &[&[&str]] = &[
    &["journal", "membership", "rebuild_signal", "secret", "snapshot_file"],
    &["build_state", "error", "freshness", "identity"],
    &["backend", "outcome"],
    &["probe", "single_flight", "stats"],
    &["request", "write"],
    &["polls", "replicate"],
    &["audit", "snapshot"],
    &["read"],
    &["build", "compose", "fleet_secret", "mod", "probe_batch", "run", "status"],
];

fn level(room: &str) -> Option<usize> {
    LEVELS.iter().position(|rooms| rooms.contains(&room))
}

/// The room of a file, and the rooms that it imports; `Keyspace`: the facade.
fn imports(source: &Source) -> Option<(String, Vec<String>)> {
    let mut parts = source.path.iter().map(|part| part.to_str().unwrap());
    let room = (parts.next() == Some("keyspace")).then(|| parts.next())??.trim_end_matches(".rs").to_owned();
    let imported = source.imports_below("keyspace").into_iter();
    let imported = imported.filter(|name| *name != room && (level(name).is_some() || name == "Keyspace")).collect();
    Some((room, imported))
}

fn breaches(sources: &[Source]) -> Vec<String> {
    let mut found = vec![];
    for source in sources {
        let Some((room, imported)) = imports(source) else { continue };
        let Some(own) = level(&room) else {
            found.push(format!("keyspace/{room} has no level"));
            continue;
        };
        let facade = own + 1 == LEVELS.len();
        let above = imported.iter().filter(|name| !facade && level(name).is_none_or(|level| level >= own));
        found.extend(above.map(|name| format!("{}: {room} must not import {name}", source.path.display())));
    }
    found
}

#[test]
fn rooms_of_the_keyspace_import_lower_levels_only() {
    let breaches = breaches(&sources());
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn breaches_between_rooms_are_found() {
    for (path, text, breach) in [
        ("keyspace/backend/mod.rs", "use super::read::Reader;", "backend must not import read"),
        ("keyspace/freshness/hold.rs", "use crate::keyspace::probe::Prober;", "freshness must not import probe"),
        ("keyspace/write/mod.rs", "fn f(_: &super::replicate::LogFollower) {}", "write must not import replicate"),
        (
            "keyspace/stats/growth.rs",
            "use super::super::{audit::Audit, outcome::Probe};",
            "stats must not import audit",
        ),
        ("keyspace/probe.rs", "use super::Keyspace;", "probe must not import Keyspace"),
        ("keyspace/attic.rs", "", "keyspace/attic has no level"),
    ] {
        let found = breaches(&[Source::new(path, text)]);
        assert!(found.len() == 1 && found[0].contains(breach), "{path}: {found:?}");
    }
    for (path, text) in [
        ("keyspace/read/load.rs", "use super::shared::SharedRead; use crate::keyspace::backend::Fetched;"),
        ("keyspace/compose.rs", "use super::{Keyspace, read::Reader, write::Writer};"),
        ("rebuild/mod.rs", "use crate::keyspace::Keyspace;"),
    ] {
        assert!(breaches(&[Source::new(path, text)]).is_empty(), "{path}");
    }
}

#[test]
fn the_facade_has_at_most_twelve_fields() {
    let sources = sources();
    let facade = sources.iter().find(|source| source.path.ends_with("keyspace/mod.rs")).unwrap();
    let fields = facade.code.split("pub struct Keyspace {").nth(1).unwrap().split("\n}").next().unwrap();
    let count = fields.lines().filter(|line| line.contains(':')).count();
    assert!((5..=12).contains(&count), "{count} fields");
}
