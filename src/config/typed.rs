//! Turns the TOML tree into typed fields, without stopping at the first error.

use std::collections::{BTreeMap, BTreeSet};

use serde_path_to_error::{Path, Segment};
use strsim::levenshtein;
use toml::{Table, Value};

use super::Config;
use super::environment::Override;
use super::error::{ErrorCollector, push_key, shown};

/// Deserializes the tree. Reports and removes what does not fit, and tries again. Each round removes one value or turns
/// one override into text, so the loop ends.
pub(super) fn read(tree: Table, overrides: &BTreeMap<String, Override>, errors: &mut ErrorCollector) -> Config {
    let mut tree = Value::Table(tree);
    let mut retried_as_text = BTreeSet::new();
    loop {
        let error = match serde_path_to_error::deserialize(tree.clone()) {
            Ok(config) => return config,
            Err(error) => error,
        };
        let steps = existing(&tree, error.path());
        let Some(slot) = slot(&mut tree, &steps).filter(|_| !steps.is_empty()) else {
            errors.reject("configuration", error.inner().message());
            return Config::default();
        };
        let path = path_text(&steps);
        if let Some(set) = overrides.get(&path)
            && !slot.is_str()
            && retried_as_text.insert(path.clone())
        {
            *slot = Value::String(set.raw.clone());
            continue;
        }
        // A value in the place of headers may be a secret.
        let hidden = Value::String("redacted".into());
        let is_header = steps.iter().any(|step| matches!(step, PathStep::Key(key) if key == "headers"));
        errors.reject(path, rule(error.inner().message(), if is_header { &hidden } else { slot }));
        take(&mut tree, &steps);
    }
}

/// One step into the tree.
enum PathStep {
    Key(String),
    Index(usize),
}

/// The part of an error's path that exists in the tree; the rest are indices of plain values and enum variants.
fn existing(tree: &Value, path: &Path) -> Vec<PathStep> {
    let mut value = tree;
    let mut steps = Vec::new();
    for segment in path {
        let (step, next) = match (segment, value) {
            (Segment::Map { key } | Segment::Enum { variant: key }, Value::Table(table)) => {
                (PathStep::Key(key.clone()), table.get(key))
            }
            (Segment::Seq { index }, Value::Array(items)) => (PathStep::Index(*index), items.get(*index)),
            _ => break,
        };
        let Some(next) = next else { break };
        steps.push(step);
        value = next;
    }
    steps
}

fn slot<'t>(tree: &'t mut Value, steps: &[PathStep]) -> Option<&'t mut Value> {
    steps.iter().try_fold(tree, |value, step| match step {
        PathStep::Key(key) => value.get_mut(key),
        PathStep::Index(index) => value.get_mut(*index),
    })
}

fn take(tree: &mut Value, steps: &[PathStep]) {
    let Some((last, parents)) = steps.split_last() else { return };
    match (last, slot(tree, parents)) {
        (PathStep::Key(key), Some(Value::Table(table))) => {
            table.remove(key);
        }
        // An empty section keeps the numbers of later ones. If an empty section is the error, or the list contains
        // words, the item is removed: otherwise the next section would be the next error, forever.
        (PathStep::Index(index), Some(Value::Array(items))) => match &mut items[*index] {
            Value::Table(section) if section.is_empty() => drop(items.remove(*index)),
            Value::String(_) => drop(items.remove(*index)),
            item => *item = Value::Table(Table::new()),
        },
        _ => {}
    }
}

/// `keyspaces.users.source[1].query`
fn path_text(steps: &[PathStep]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            PathStep::Key(key) => push_key(&mut path, key),
            PathStep::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// Translates serde's message into words of the configuration. Takes the value from the tree, where it can be redacted.
fn rule(message: &str, value: &Value) -> String {
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let mut names = rest.split('`').skip(1).step_by(2);
        let unknown = names.next().unwrap_or_default();
        return match nearest(unknown, names) {
            Some(known) => format!("unknown key; did you mean {known}?"),
            None => "unknown key".to_owned(),
        };
    }
    if message.starts_with("unknown variant ") {
        let names: Vec<String> = message.split('`').skip(3).step_by(2).map(|name| format!("{name:?}")).collect();
        let one_of = if names.len() == 1 { "" } else { "one of " };
        return format!("must be {one_of}{}, is {}", names.join(", "), shown(value));
    }
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("must be {}, is {}", expected_in_words(expected), shown(value)),
        None => message.to_owned(),
    }
}

/// What serde expects, in words of the configuration.
fn expected_in_words(expected: &str) -> &str {
    match expected {
        "usize" | "u64" => "a whole number, 0 or more",
        "u32" => "a whole number from 0 to 4294967295",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a map" => "a table",
        "path string" => "a path",
        // The TOML crate's text for a word of a list.
        "string only" | "string or table" => "a string",
        other if other.starts_with("struct ") => "a table",
        other => other,
    }
}

/// The most similar known key: at most two edits away, or with this prefix.
fn nearest<'n>(unknown: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let close = |name: &&str| {
        (levenshtein(unknown, name) <= 2 && unknown.len() > 2) || (unknown.len() > 3 && name.starts_with(unknown))
    };
    known.filter(close).min_by_key(|name| levenshtein(unknown, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(levenshtein("kitten", "sitting"), 3);
        assert_eq!(levenshtein("", "abc"), 3);
        assert_eq!(levenshtein("ttl", "ttl"), 0);
    }

    #[test]
    fn only_near_names_are_suggested() {
        let known = || ["timeout", "query", "url", "token_file"].into_iter();
        assert_eq!(nearest("qurey", known()), Some("query"));
        assert_eq!(nearest("token", known()), Some("token_file"));
        assert_eq!(nearest("colour", known()), None);
        assert_eq!(nearest("x", known()), None);
    }
}
