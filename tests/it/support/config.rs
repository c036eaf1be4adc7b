//! Configurations of tests: built key by key, rendered as TOML.

use std::fmt;
use std::path::Path;

use toml::{Table, Value};

use super::redis::RedisServer;

/// A configuration. A key that is set again has its last value.
#[derive(Debug, Clone, Default)]
pub struct Config(Table);

impl Config {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `server.max_connections` and the like.
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        put(&mut self.0, path, value.into());
        self
    }

    /// Sets the keys of a section `[server]`.
    pub fn server(self, key: &str, value: impl Into<Value>) -> Self {
        self.set(&format!("server.{key}"), value)
    }

    pub fn redis(self, server: &RedisServer) -> Self {
        self.redis_at(&server.url())
    }

    /// Redis behind any URL. The default of `max_lag` is too short for a busy machine: only tests of the lag set one.
    pub fn redis_at(self, url: &str) -> Self {
        self.set("redis.url", url).set("redis.timeout", "5s").set("redis.max_lag", "1m")
    }

    pub fn maybe_redis(self, server: Option<&RedisServer>) -> Self {
        match server {
            Some(server) => self.redis(server),
            None => self,
        }
    }

    /// Adds or changes a keyspace. It starts without a proof: a proof would send lookups of its own to the backend.
    pub fn keyspace(mut self, name: &str, edit: impl FnOnce(Keyspace) -> Keyspace) -> Self {
        let path = format!("keyspaces.{name}");
        let keyspace = match get(&self.0, &path) {
            Some(Value::Table(table)) => Keyspace(table.clone()),
            _ => Keyspace::default().set("canary.proof", 0),
        };
        put(&mut self.0, &path, Value::Table(edit(keyspace).0));
        self
    }

    /// Adds or changes the keyspace that most tests have.
    pub fn users(self, edit: impl FnOnce(Keyspace) -> Keyspace) -> Self {
        self.keyspace("users", edit)
    }

    /// Writes `bloomguard.toml` into this folder.
    pub fn write(&self, folder: &Path) -> String {
        let file = folder.join("bloomguard.toml");
        std::fs::write(&file, self.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(&self.0).unwrap())
    }
}

/// A change of a keyspace.
pub type Edit = fn(Keyspace) -> Keyspace;

/// A section `[keyspaces.<name>]`.
#[derive(Debug, Clone, Default)]
pub struct Keyspace(Table);

impl Keyspace {
    /// Sets `deadline`, `filter.capacity` and the like.
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        put(&mut self.0, path, value.into());
        self
    }

    /// Goes back to the default.
    pub fn unset(mut self, path: &str) -> Self {
        match path.rsplit_once('.') {
            None => self.0.remove(path),
            Some((section, key)) => at(&mut self.0, section).remove(key),
        };
        self
    }

    pub fn backend(self, url: &str, query: &str) -> Self {
        self.set("backend.url", url).set("backend.query", query)
    }

    /// A query on the backend's database.
    pub fn source_sql(self, query: &str) -> Self {
        self.source(Source::sql(query))
    }

    pub fn source_file(self, path: &Path) -> Self {
        self.source(Source::new("file").set("path", path.to_str().unwrap()))
    }

    /// Replaces the source.
    pub fn source(self, source: Source) -> Self {
        self.set("source", source.0)
    }

    pub fn sources<const N: usize>(self, sources: [Source; N]) -> Self {
        self.set("source", sources.into_iter().map(|source| source.0).collect::<Vec<_>>())
    }

    /// Deadline, commit window and the backend's timeout.
    pub fn times(self, deadline: &str, commit_window: &str, timeout: &str) -> Self {
        self.set("deadline", deadline).set("commit_window", commit_window).set("backend.timeout", timeout)
    }
}

/// A section `[keyspaces.<name>.source]`.
#[derive(Debug, Clone, Default)]
pub struct Source(Table);

impl Source {
    pub fn new(kind: &str) -> Self {
        Self::default().set("kind", kind)
    }

    pub fn sql(query: &str) -> Self {
        Self::default().set("query", query)
    }

    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        put(&mut self.0, path, value.into());
        self
    }
}

/// The table at `path`, made where it is missing.
fn at<'a>(table: &'a mut Table, path: &str) -> &'a mut Table {
    path.split('.').fold(table, |table, section| {
        let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
        inner.as_table_mut().unwrap_or_else(|| panic!("{path} is not a table"))
    })
}

fn put(table: &mut Table, path: &str, value: Value) {
    let (table, key) = match path.rsplit_once('.') {
        None => (table, path),
        Some((section, key)) => (at(table, section), key),
    };
    table.insert(key.to_owned(), value);
}

fn get<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let mut names = path.split('.');
    let first = table.get(names.next()?)?;
    names.try_fold(first, |value, name| value.get(name))
}
