//! Rejects keys and values that are named but not implemented, so that nobody relies on them.
//!
//! Also rejects arrays in the place of sections: a derived `Deserialize` would accept one for a struct, field by field.

use toml::{Table, Value};

use super::error::{ErrorCollector, push_key, shown};

/// When a key is rejected.
enum When {
    /// Only with one of these values; others are validated as usual.
    Is(&'static [&'static str]),
    /// Only if it is an array.
    Array,
}

struct UnsupportedKey {
    /// `*` matches any name.
    path: &'static [&'static str],
    when: When,
    rule: &'static str,
}

const fn section(path: &'static [&'static str]) -> UnsupportedKey {
    UnsupportedKey { path, when: When::Array, rule: "must be a table, is an array" }
}

const UNSUPPORTED: &[UnsupportedKey] = &[
    section(&["server"]),
    section(&["log"]),
    section(&["redis"]),
    section(&["keyspaces", "*"]),
    section(&["keyspaces", "*", "filter"]),
    section(&["keyspaces", "*", "cache"]),
    section(&["keyspaces", "*", "backend"]),
    section(&["keyspaces", "*", "rebuild"]),
    section(&["keyspaces", "*", "canary"]),
    section(&["keyspaces", "*", "source", "incremental"]),
    UnsupportedKey {
        path: &["keyspaces", "*", "filter", "kind"],
        when: When::Is(&["counting"]),
        rule: "not supported on a keyspace: a delete would remove a key, and neither filter nor backend can prove \
               that it was in",
    },
    UnsupportedKey {
        path: &["keyspaces", "*", "filter", "kind"],
        when: When::Is(&["windowed"]),
        rule: "not supported on a keyspace: a windowed filter forgets keys by design",
    },
];

/// Reports unsupported keys and removes them from the tree, so that they are not reported as unknown too.
pub(super) fn reject(tree: &mut Table, errors: &mut ErrorCollector) {
    for unsupported in UNSUPPORTED {
        descend(tree, unsupported.path, unsupported, "", errors);
    }
}

fn descend(table: &mut Table, path: &[&str], unsupported: &UnsupportedKey, at: &str, errors: &mut ErrorCollector) {
    let [segment, rest @ ..] = path else { return };
    let names: Vec<String> =
        if *segment == "*" { table.keys().cloned().collect() } else { vec![(*segment).to_owned()] };
    for name in names {
        let mut at = at.to_owned();
        push_key(&mut at, &name);
        match table.get_mut(&name) {
            Some(Value::Table(inner)) if !rest.is_empty() => descend(inner, rest, unsupported, &at, errors),
            Some(Value::Array(items)) if !rest.is_empty() => {
                for (index, item) in items.iter_mut().enumerate() {
                    if let Value::Table(inner) = item {
                        descend(inner, rest, unsupported, &format!("{at}[{index}]"), errors);
                    }
                }
            }
            Some(value) if rest.is_empty() && unsupported.when.holds(value) => {
                let rule = match unsupported.when {
                    When::Is(_) => format!("{} is {}", shown(value), unsupported.rule),
                    When::Array => unsupported.rule.to_owned(),
                };
                errors.reject(at, rule);
                table.remove(&name);
            }
            _ => {}
        }
    }
}

impl When {
    fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Is(values) => value.as_str().is_some_and(|text| values.contains(&text)),
            Self::Array => value.is_array(),
        }
    }
}
