//! `BLOOMGUARD__SECTION__KEY` variables, which override the files.
//!
//! The double underscore matters: Kubernetes injects `BLOOMGUARD_PORT` and the like for a service of that name.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::error::{ErrorCollector, key_path};

const PREFIX: &str = "BLOOMGUARD__";

/// A value from the environment.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) variable: String,
    /// The text as written, for text fields whose value looks like a number.
    pub(super) raw: String,
}

/// The process environment. Invalid UTF-8 is replaced, so that validation rejects such a value instead of missing it.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
}

/// Writes the overrides into the tree and returns them by key path.
pub(super) fn apply(
    tree: &mut Table,
    environment: impl Iterator<Item = (String, String)>,
    errors: &mut ErrorCollector,
) -> BTreeMap<String, Override> {
    // Sorted, so that the result does not depend on the order of the environment.
    let variables: BTreeMap<String, String> = environment.filter(|(name, _)| name.starts_with(PREFIX)).collect();
    let mut overrides = BTreeMap::new();
    for (variable, raw) in variables {
        let segments: Vec<String> = variable[PREFIX.len()..].split("__").map(str::to_lowercase).collect();
        let value = parse(&raw);
        if segments.iter().any(String::is_empty) || !put(tree, &segments, value) {
            errors.add(variable, "does not name a key; the form is BLOOMGUARD__SECTION__KEY");
            continue;
        }
        overrides.insert(key_path(&segments), Override { variable, raw });
    }
    overrides
}

/// Parses a TOML scalar or array; other text stays a string.
fn parse(raw: &str) -> Value {
    match raw.trim().parse::<Value>() {
        Ok(value) if !value.is_table() => value,
        _ => Value::String(raw.to_owned()),
    }
}

/// Sets a value and creates tables on the way. Returns false if a value that is not a table is in the way.
fn put(tree: &mut Table, segments: &[String], value: Value) -> bool {
    match segments {
        [] => false,
        [key] => {
            tree.insert(key.clone(), value);
            true
        }
        [table, rest @ ..] => match tree.entry(table.clone()).or_insert_with(|| Value::Table(Table::new())) {
            Value::Table(table) => put(table, rest, value),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_where_they_read_as_toml() {
        assert_eq!(parse("0.01"), Value::Float(0.01));
        assert_eq!(parse("[1, 2]"), Value::Array(vec![Value::Integer(1), Value::Integer(2)]));
        assert_eq!(parse("true"), Value::Boolean(true));
        assert_eq!(parse("\"quoted\""), Value::String("quoted".into()));
        for text in ["250ms", "SELECT 1", "", "{ a = 1 }", "0660", "1\nx = 2"] {
            assert_eq!(parse(text), Value::String(text.into()));
        }
    }
}
