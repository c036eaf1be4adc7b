//! From files and environment to a judged [`Config`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::mistake::Mistakes;
use super::{Config, ConfigErrors, Freshness, SourceKind, environment, files, typed, unsupported, validate};

/// Reads TOML files, later ones overriding earlier ones key by key, then the `BLOOMGUARD__SECTION__KEY` variables of `environment`.
///
/// Reads the files that the configuration names (`url_file`, `token_file`, `headers_file`, `ca_file` and the like) too; it connects nowhere and binds nothing.
///
/// # Errors
/// Every mistake at once. Only a file that can't be read or is no TOML ends the search early, because nobody knows what it would have said.
pub fn load(paths: &[PathBuf], environment: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigErrors> {
    let mut mistakes = Mistakes::default();
    let mut tree = Table::new();
    for path in paths {
        if let Some(table) = read(path, &mut mistakes) {
            merge(&mut tree, table);
        }
    }
    if let Some(errors) = std::mem::take(&mut mistakes).into_errors(&BTreeMap::new()) {
        return Err(errors);
    }

    let overrides = environment::apply(&mut tree, environment, &mut mistakes);
    unsupported::refuse(&mut tree, &mut mistakes);
    polled_by_default(&mut tree);
    let mut config = typed::read(tree, &overrides, &mut mistakes);
    files::resolve(&mut config, &mut mistakes);
    validate::check(&config, &mut mistakes);

    let variables = overrides.into_iter().map(|(path, set)| (path, set.variable)).collect();
    if let Some(errors) = mistakes.into_errors(&variables) {
        return Err(errors);
    }
    for keyspace in config.keyspaces.values_mut() {
        for source in keyspace.source.iter_mut().filter(|source| source.url.is_empty()) {
            source.url = match (source.kind, &config.redis) {
                (SourceKind::Sql, _) => keyspace.backend.url.clone(),
                (SourceKind::Redis, Some(redis)) => redis.url.clone(),
                (SourceKind::Redis, None) | (SourceKind::Http | SourceKind::File, _) => continue,
            };
        }
    }
    Ok(config)
}

/// A keyspace that polls rests its promise on that unless it says otherwise.
fn polled_by_default(tree: &mut Table) {
    let Some(Value::Table(keyspaces)) = tree.get_mut("keyspaces") else { return };
    for (_, keyspace) in keyspaces.iter_mut() {
        let Some(keyspace) = keyspace.as_table_mut() else { continue };
        let polls = |source: &Value| source.get("incremental").is_some();
        let polled =
            keyspace.get("source").is_some_and(|source| source.as_array().map_or_else(|| polls(source), |all| all.iter().any(polls)));
        if polled && !keyspace.contains_key("freshness") {
            keyspace.insert("freshness".into(), Freshness::Polled.as_str().into());
        }
    }
}

fn read(path: &Path, mistakes: &mut Mistakes) -> Option<Table> {
    let name = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            mistakes.add(name, format!("can't be read: {error}"));
            return None;
        }
    };
    let (_, errors) = toml::de::DeTable::parse_recoverable(&text);
    for error in &errors {
        let offset = error.span().map_or(0, |span| span.start);
        let (line, column) = position(&text, offset);
        // The message alone: the error's own display quotes the line, which may hold a password.
        mistakes.add(format!("{name}:{line}:{column}"), format!("not valid TOML: {}", error.message()));
    }
    if !errors.is_empty() {
        return None;
    }
    text.parse::<Table>().map_err(|error| mistakes.add(name, format!("not valid TOML: {}", error.message()))).ok()
}

/// Line and column, both from 1, of a byte offset.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Tables are merged key by key; anything else is replaced.
fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
