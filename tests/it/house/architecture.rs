//! Who may import whom, what only `app` may name, and how long a file may be: read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules by level: each imports lower levels only.
const LEVELS: &[&[&str]] = &[
    &["labels", "key", "metrics", "filter", "breaker", "buffers", "background", "clock", "client", "sqltext", "pool"],
    &["config", "sql"],
    &["cache", "backend", "source", "redis"],
    &["keyspace", "fleet"],
    &["rebuild", "poll", "plan"],
    &["http"],
    &["app", "reload", "shutdown", "telemetry", "quickstart"],
    &["cli", "main"],
];

/// Imports within a level: one way only, and none that isn't used.
const SIBLINGS: &[(&str, &str)] = &[
    ("metrics", "labels"), // label values
    ("breaker", "labels"), // its states
    ("buffers", "labels"), // why something was refused
    ("buffers", "metrics"),
    ("client", "pool"),    // the connections to an origin
    ("cache", "backend"),  // `Value`, what a cache holds
    ("cache", "redis"),    // the connection that one of the caches is behind
    ("source", "redis"),   // how to connect, for keys that Redis holds
    ("keyspace", "fleet"), // `DeltaLog`, and what is read of it
    ("app", "shutdown"),   // the composition root builds everything
    ("app", "quickstart"),
    ("app", "reload"),
    ("app", "telemetry"),    // the handle of the log, handed on
    ("reload", "telemetry"), // the level of the log
    ("main", "cli"),
];

/// Types that only `app` and their own module name; everyone else holds the trait.
const CONCRETE: &[(&str, &[&str])] = &[
    ("SqlBackend", &["backend"]),
    ("HttpBackend", &["backend"]),
    ("SetBackend", &["backend"]),
    ("SqlSource", &["source"]),
    ("SqlPolls", &["source"]),
    ("HttpSource", &["source"]),
    ("FileSource", &["source"]),
    ("RedisSource", &["source"]),
    ("Union", &["source"]),
    ("RedisCache", &["cache"]),
    ("RedisLink", &["redis", "cache", "fleet"]),
    ("MemoryCache", &["cache"]),
    ("NoCache", &["cache"]),
    ("RedisDeltaLog", &["fleet"]),
    ("RedisScanPermit", &["fleet"]),
];

/// How the `metrics` crate is used.
const METRICS_CRATE: &[&str] =
    &["use metrics::", "metrics_exporter_prometheus::", "metrics::counter!", "metrics::gauge!", "metrics::histogram!"];

/// Where `unsafe` may stand: the memory of filters, the one call that leads from one safe interface of SQLite to the
/// other, and a system call that no crate has.
const UNSAFE: &[&str] = &["filter/", "source/sql/sqlite/step.rs", "background.rs"];

const LONGEST_FILE: usize = 400;
/// Files that may be longer, each with its reason.
const LONG_FILES: &[&str] = &[];

/// A file of `src/`: its path below it, and its text without comments.
pub(super) struct Source {
    pub(super) path: PathBuf,
    lines: usize,
    pub(super) code: String,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), lines: text.lines().count(), code: without_comments(text) }
    }

    /// The top-level module that the file belongs to.
    fn module(&self) -> String {
        let first = self.path.iter().next().unwrap().to_str().unwrap();
        first.trim_end_matches(".rs").to_owned()
    }

    /// How many `super` lead from this file to the crate root.
    fn depth(&self) -> usize {
        let parts = self.path.iter().count();
        if self.path.ends_with("mod.rs") { parts - 1 } else { parts }
    }

    /// Modules directly below `parent`, to which the file belongs, that the file names.
    pub(super) fn imports_below(&self, parent: &str) -> BTreeSet<String> {
        let outside_tests = self.code.split("#[cfg(test)]").next().unwrap();
        let climb = "super::".repeat(self.depth() - 1);
        let (down, own) = (format!("crate::{parent}::"), "self::");
        let roots = after(outside_tests, &down).chain(after(outside_tests, &climb).filter(|_| !climb.is_empty()));
        let facade = after(outside_tests, own).filter(|_| climb.is_empty());
        roots.chain(facade).flat_map(first_segments).collect()
    }

    /// Top-level modules that the file names, itself excluded.
    fn imports(&self) -> BTreeSet<String> {
        let mut roots: Vec<&str> = after(&self.code, "crate::").collect();
        if self.module() == "main" {
            roots.extend(after(&self.code, "bloomguard::"));
        }
        // Test modules are one level deeper, so their `super` is the file itself.
        let outside_tests = self.code.split("#[cfg(test)]").next().unwrap();
        let climb = "super::".repeat(self.depth());
        roots.extend(after(outside_tests, &climb));
        let own = self.module();
        roots.into_iter().flat_map(first_segments).filter(|name| *name != own).collect()
    }
}

/// Cuts `//` comments off, but not within a string that holds a URL.
fn without_comments(text: &str) -> String {
    let code = |line: &str| {
        let cut =
            line.match_indices("//").map(|(at, _)| at).find(|at| line[..*at].matches('"').count().is_multiple_of(2));
        line[..cut.unwrap_or(line.len())].to_owned()
    };
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

/// What follows each `prefix` that begins a path.
fn after<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(prefix)
        .filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
        .map(move |(at, _)| &code[at + prefix.len()..])
}

/// `a` of `a::b`, `a` and `c` of `{a::b, c::{d, e}}`.
fn first_segments(rest: &str) -> Vec<String> {
    let identifier =
        |text: &str| text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = rest.strip_prefix('{') else { return vec![identifier(rest)] };
    let (mut nesting, mut names, mut begins) = (0, vec![], true);
    for (at, c) in group.char_indices() {
        if begins && !c.is_whitespace() && c != '}' {
            names.push(identifier(&group[at..]));
            begins = false;
        }
        match c {
            '{' => nesting += 1,
            '}' if nesting == 0 => break,
            '}' => nesting -= 1,
            ',' if nesting == 0 => begins = true,
            _ => {}
        }
    }
    names
}

fn level(module: &str) -> Option<usize> {
    LEVELS.iter().position(|modules| modules.contains(&module))
}

/// Every breach of the rules, one line each.
fn breaches(sources: &[Source]) -> Vec<String> {
    let mut found = vec![];
    let mut edges: BTreeMap<(String, String), &Path> = BTreeMap::new();
    for source in sources.iter().filter(|s| s.path != Path::new("lib.rs")) {
        if level(&source.module()).is_none() {
            found.push(format!("{}: module {} has no level", source.path.display(), source.module()));
        }
        for imported in source.imports() {
            edges.entry((source.module(), imported)).or_insert(&source.path);
        }
        for (name, owners) in CONCRETE {
            let module = source.module();
            let may = module == "app" || owners.contains(&module.as_str()) || source.path.ends_with("tests.rs");
            if !may && names_type(&source.code, name) {
                found.push(format!(
                    "{}: names {name}, which only app and {} may",
                    source.path.display(),
                    owners.join(" and ")
                ));
            }
        }
        if source.module() != "metrics" && METRICS_CRATE.iter().any(|used| source.code.contains(used)) {
            found.push(format!("{}: uses the metrics crate, which only src/metrics may", source.path.display()));
        }
        if source.code.contains("allow(unsafe_code)")
            && !UNSAFE.iter().any(|place| source.path.to_str().unwrap().starts_with(place))
        {
            found.push(format!(
                "{}: allows unsafe code, which only {} may",
                source.path.display(),
                UNSAFE.join(" and ")
            ));
        }
        if source.lines > LONGEST_FILE && !LONG_FILES.contains(&source.path.to_str().unwrap()) {
            found.push(format!("{}: has {} lines, more than {LONGEST_FILE}", source.path.display(), source.lines));
        }
    }
    for ((from, to), path) in &edges {
        let allowed = match (level(from), level(to)) {
            (Some(from_level), Some(to_level)) => {
                to_level < from_level || SIBLINGS.contains(&(from.as_str(), to.as_str()))
            }
            _ => level(from).is_none(),
        };
        if !allowed {
            found.push(format!("{}: {from} must not import {to}", path.display()));
        }
    }
    found
}

fn names_type(code: &str, name: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name)
        .any(|(at, _)| !code[..at].ends_with(inside) && !code[at + name.len()..].starts_with(inside))
}

pub(crate) fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

pub(super) fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = vec![];
    rust_files(&src, &mut paths);
    let read = |path: &PathBuf| {
        Source::new(path.strip_prefix(&src).unwrap().to_str().unwrap(), &std::fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

#[test]
fn modules_import_lower_levels_only_and_the_house_rules_hold() {
    let sources = sources();
    assert!(sources.len() > 50, "only {} sources found", sources.len());
    let breaches = breaches(&sources);
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn files_of_the_model_are_short_too() {
    let mut paths = vec![];
    rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/model"), &mut paths);
    assert!(paths.len() > 10, "only {} files found", paths.len());
    for path in paths {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LONGEST_FILE, "{}: has {lines} lines, more than {LONGEST_FILE}", path.display());
    }
}

#[test]
fn every_exception_is_in_use() {
    let sources = sources();
    for (from, to) in SIBLINGS {
        assert!(
            sources.iter().any(|s| s.module() == *from && s.imports().contains(*to)),
            "{from} does not import {to} any more"
        );
        assert!(!SIBLINGS.contains(&(to, from)), "{from} and {to} import each other");
    }
    for (name, owners) in CONCRETE {
        let owner = owners[0];
        assert!(
            sources.iter().any(|s| s.module() == owner && names_type(&s.code, name)),
            "{owner} has no {name} any more"
        );
    }
    for place in UNSAFE {
        let inside = |s: &&Source| s.path.to_str().unwrap().starts_with(place);
        assert!(
            sources.iter().filter(inside).any(|s| s.code.contains("allow(unsafe_code)")),
            "{place} holds no unsafe code any more"
        );
    }
    for path in LONG_FILES {
        assert!(
            sources.iter().any(|s| s.path == Path::new(path) && s.lines > LONGEST_FILE),
            "{path} is not long any more"
        );
    }
}

#[test]
fn breaches_are_found_however_they_are_written() {
    let found = |path: &str, text: &str| breaches(&[Source::new(path, text)]);
    for (path, text, breach) in [
        ("filter/active.rs", "use crate::key::KeyHash;", "filter/active.rs: filter must not import key"),
        ("cache/hot.rs", "use crate::keyspace::Keyspace;", "cache/hot.rs: cache must not import keyspace"),
        ("backend/mod.rs", "use crate::cache::Entry;", "backend/mod.rs: backend must not import cache"),
        (
            "keyspace/load.rs",
            "use crate::{\n    key::{Key, KeyHash},\n    http::Problem,\n};",
            "keyspace/load.rs: keyspace must not import http",
        ),
        ("keyspace/mod.rs", "fn f() -> crate::rebuild::Runner {}", "keyspace/mod.rs: keyspace must not import rebuild"),
        ("breaker.rs", "use super::config::Config;", "breaker.rs: breaker must not import config"),
        ("keyspace/load.rs", "use super::super::http::serve;", "keyspace/load.rs: keyspace must not import http"),
        ("key.rs", "use crate::hash::Hash;", "key.rs: key must not import hash"),
        (
            "rebuild/build.rs",
            "let source: Arc<SqlSource>;",
            "rebuild/build.rs: names SqlSource, which only app and source may",
        ),
        (
            "keyspace/load.rs",
            "metrics::counter!(\"x\");",
            "keyspace/load.rs: uses the metrics crate, which only src/metrics may",
        ),
        (
            "source/sql/sqlite/mod.rs",
            "#[allow(unsafe_code)]",
            "source/sql/sqlite/mod.rs: allows unsafe code, which only filter/ and source/sql/sqlite/step.rs and \
                background.rs may",
        ),
        ("flotilla/mod.rs", "", "flotilla/mod.rs: module flotilla has no level"),
    ] {
        assert_eq!(found(path, text), [breach], "{path}: {text}");
    }
    assert_eq!(found("key.rs", &"\n".repeat(401)), ["key.rs: has 401 lines, more than 400"]);
    for (path, text) in [
        ("keyspace/load.rs", "use super::Keyspace; // not crate::http\nuse crate::cache::{Entry, Stamp};"),
        ("breaker.rs", "use crate::labels::BreakerState;\n#[cfg(test)]\nmod tests { use super::*; }"),
        ("app.rs", "use crate::cache::{MemoryCache, RedisCache}; use crate::shutdown;"),
        ("keyspace/mod.rs", "use crate::metrics::KeyspaceMetrics; let url = \"redis://x\";"),
        ("keyspace/mod.rs", "struct MemoryCacheStatus;"),
    ] {
        assert!(found(path, text).is_empty(), "{path}: {text}: {:?}", found(path, text));
    }
}

#[test]
fn every_metric_begins_with_our_prefix_or_is_of_every_process() {
    let metrics = bloomguard::metrics::Metrics::new();
    let _users = metrics.keyspace("users");
    let scrape = metrics.render();
    let mut series = scrape.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    assert!(series.peek().is_some());
    for line in series {
        assert!(line.starts_with("bloomguard_") || line.starts_with("process_"), "{line}");
    }
}

fn page() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap()
}

/// One column of the table under `header`.
fn cells<'a>(page: &'a str, header: &str, column: usize) -> Vec<&'a str> {
    let rows = page.split(header).nth(1).unwrap_or_else(|| panic!("no table {header}")).lines().skip(2);
    rows.take_while(|row| row.starts_with('|')).map(|row| row.split(" | ").nth(column).unwrap()).collect()
}

fn quoted<'a>(cells: &[&'a str]) -> BTreeSet<&'a str> {
    cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_page_names_every_room_at_its_level() {
    let page = page();
    let header = "| level | module | what happens there |";
    let rooms = quoted(&cells(&page, header, 1));
    assert_eq!(rooms, LEVELS.concat().into_iter().collect());
    for (at, room) in cells(&page, header, 0).into_iter().zip(cells(&page, header, 1)) {
        for module in quoted(&[room]) {
            assert_eq!(at.trim_start_matches("| ").parse(), Ok(level(module).unwrap()), "{module}");
        }
    }
}

#[test]
fn every_test_that_the_page_names_exists() {
    let invariants = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/INVARIANTS.md");
    let pages = [page(), std::fs::read_to_string(invariants).unwrap()];
    let mut named: BTreeSet<_> =
        pages.iter().flat_map(|page| quoted(&cells(page, "| invariant | held by |", 1))).collect();
    named.insert("bytes_are_as_documented");
    assert!(named.len() > 40, "{named:?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = vec![];
    ["src", "tests"].iter().for_each(|dir| rust_files(&root.join(dir), &mut paths));
    let all: String = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let missing: Vec<_> = named
        .into_iter()
        .filter(|name| !["(", "<"].iter().any(|next| all.contains(&format!("fn {name}{next}"))))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
