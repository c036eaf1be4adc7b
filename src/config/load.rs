//! Loads files and environment into a validated [`Config`].

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::{Table, Value};
use xxhash_rust::xxh3::Xxh3;

use super::error::ErrorCollector;
use super::{
    Config, ConfigErrors, Freshness, SourceKind, environment, files, regular_file, typed, unsupported, validate,
};

/// Reads TOML files, later ones overriding earlier ones key by key, then the `BLOOMGUARD__SECTION__KEY` variables of
/// `environment`.
///
/// Also reads the files that the configuration names (`url_file`, `token_file`, `headers_file`, `ca_file` and the
/// like). It connects nowhere and binds nothing.
///
/// # Errors
/// All errors at once. Only an unreadable file or invalid TOML ends the search early, because its content is unknown.
pub fn load(paths: &[PathBuf], environment: impl Iterator<Item = (String, String)>) -> Result<Config, ConfigErrors> {
    let mut errors = ErrorCollector::default();
    let mut tree = Table::new();
    for path in paths {
        if let Some(table) = read(path, &mut errors) {
            merge(&mut tree, table);
        }
    }
    if let Some(errors) = std::mem::take(&mut errors).into_errors(&BTreeMap::new()) {
        return Err(errors);
    }

    let overrides = environment::apply(&mut tree, environment, &mut errors);
    unsupported::reject(&mut tree, &mut errors);
    polled_by_default(&mut tree);
    let mut config = typed::read(tree, &overrides, &mut errors);
    files::resolve(&mut config, &mut errors);
    validate::check(&config, &mut errors);

    let variables = overrides.into_iter().map(|(path, set)| (path, set.variable)).collect();
    if let Some(errors) = errors.into_errors(&variables) {
        return Err(errors);
    }
    for keyspace in config.keyspaces.values_mut() {
        keyspace.announces = Some(keyspace.takes_announces());
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

/// A fingerprint of everything that [`load`] reads: the files, and the content of the files that they name.
#[must_use]
pub fn fingerprint(paths: &[PathBuf], environment: impl Iterator<Item = (String, String)>) -> u64 {
    let mut errors = ErrorCollector::default();
    let mut tree = Table::new();
    let mut seen = Xxh3::new();
    // A pipe, for example, can be read only once.
    for path in paths.iter().filter(|path| !is_special(path)) {
        add_file(&mut seen, path);
        if let Some(table) = read(path, &mut errors) {
            merge(&mut tree, table);
        }
    }
    environment::apply(&mut tree, environment, &mut errors);
    add_named_files(&mut seen, &Value::Table(tree));
    seen.digest()
}

/// Whether a key names a file of secrets or certificates.
fn names_a_file(key: &str) -> bool {
    key == "file" || key.ends_with("_file")
}

fn add_named_files(seen: &mut Xxh3, tree: &Value) {
    match tree {
        Value::Table(table) => {
            for (key, value) in table {
                match value.as_str().filter(|_| names_a_file(key)) {
                    Some(path) => add_file(seen, Path::new(path)),
                    None => add_named_files(seen, value),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_named_files(seen, item)),
        _ => {}
    }
}

fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| !file.is_file())
}

fn add_file(seen: &mut Xxh3, path: &Path) {
    if is_special(path) {
        return;
    }
    let mut content = Vec::new();
    let held = regular_file::open(path).and_then(|mut file| file.read_to_end(&mut content)).map(|_| content);
    // Includes the length, so that content that moves between files is a change. An unreadable file differs from an
    // empty one.
    seen.update(&held.as_ref().map_or(u64::MAX, |held| held.len() as u64).to_le_bytes());
    seen.update(held.as_deref().unwrap_or_default());
}

/// Sets `freshness` to `polled` for keyspaces that poll, unless it is set.
fn polled_by_default(tree: &mut Table) {
    let Some(Value::Table(keyspaces)) = tree.get_mut("keyspaces") else { return };
    for (_, keyspace) in keyspaces.iter_mut() {
        let Some(keyspace) = keyspace.as_table_mut() else { continue };
        let polls = |source: &Value| source.get("incremental").is_some();
        let polled = keyspace
            .get("source")
            .is_some_and(|source| source.as_array().map_or_else(|| polls(source), |all| all.iter().any(polls)));
        if polled && !keyspace.contains_key("freshness") {
            keyspace.insert("freshness".into(), Freshness::Polled.as_str().into());
        }
    }
}

fn read(path: &Path, errors: &mut ErrorCollector) -> Option<Table> {
    let name = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            errors.add(name, format!("can't be read: {error}"));
            return None;
        }
    };
    let (_, parse_errors) = toml::de::DeTable::parse_recoverable(&text);
    for error in &parse_errors {
        let offset = error.span().map_or(0, |span| span.start);
        let (line, column) = position(&text, offset);
        // Only the message: the error's own display quotes the line, which may contain a password.
        errors.add(format!("{name}:{line}:{column}"), format!("not valid TOML: {}", error.message()));
    }
    if !parse_errors.is_empty() {
        return None;
    }
    text.parse::<Table>().map_err(|error| errors.add(name, format!("not valid TOML: {}", error.message()))).ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_changes_with_the_files_and_with_those_that_they_name() {
        let dir = tempfile::TempDir::new().unwrap();
        let (file, secret) = (dir.path().join("a.toml"), dir.path().join("secret"));
        let look = || fingerprint(std::slice::from_ref(&file), std::iter::empty());
        let mut seen = vec![look()];
        let mut write = |path: &Path, text: &str| {
            std::fs::write(path, text).unwrap();
            assert_eq!(look(), look());
            seen.push(look());
        };
        let names = format!("[[keyspaces.users.source]]\nurl_file = {secret:?}\n");
        write(&file, "");
        write(&file, &names);
        write(&secret, "");
        write(&secret, "one");
        write(&secret, "two");
        write(&file, "[keyspaces");
        let distinct: std::collections::BTreeSet<u64> = seen.iter().copied().collect();
        assert_eq!(distinct.len(), seen.len());
    }
}
