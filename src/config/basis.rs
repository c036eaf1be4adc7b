//! What a keyspace's promise rests on, as a number: a filter that was built on another basis shows nothing here.

use std::fmt::Write;

use xxhash_rust::xxh3::xxh3_64;

use super::{KeyspaceConfig, SecretUrl, SourceKind};

impl KeyspaceConfig {
    /// Fingerprint of everything that says which keys a filter holds and why it may be believed: sources, backend, key form, promise, filter. Of URLs all but
    /// passwords, which are changed and mean the same data. `redis`: where it is, for sources that are there. `has_log`: whether instances tell each other of
    /// announces.
    #[must_use]
    pub fn basis(&self, redis: Option<&SecretUrl>, has_log: bool) -> u64 {
        let mut text = format!("1 {:?} {:?} {:?} {has_log}", self.freshness, self.commit_window, self.key);
        let Self { filter, backend, .. } = self;
        // A `String` takes whatever is written to it.
        let _ = write!(text, " {:?} {:?}", filter.kind, filter.false_positive_rate);
        let _ = write!(text, " {:?} {} {:?}", backend.kind, data_of(&backend.url), backend.query);
        for source in self.source.iter() {
            let shared = redis.filter(|_| source.kind == SourceKind::Redis && source.url.is_empty());
            let url = data_of(shared.unwrap_or(&source.url));
            let _ = write!(text, " [{:?} {url} {:?} {:?}", source.kind, source.query, source.format);
            let _ = write!(text, " {:?} {:?} {:?} {:?}", source.path, source.pattern, source.strip_prefix, source.set);
            // Whose keys an API lists may hang on a header. What a secret one holds may be changed and mean the same, so it counts by its name.
            let _ = write!(text, " {:?}", source.headers.plain().collect::<Vec<_>>());
            let _ = write!(text, " {:?} {:?}", source.headers, source.secret_headers);
            if let Some(polls) = &source.incremental {
                let _ = write!(text, " {:?} {:?} {:?}", polls.query, polls.watermark, polls.overlap);
            }
            text.push(']');
        }
        xxh3_64(text.as_bytes())
    }
}

impl KeyspaceConfig {
    /// Fingerprint of what this keyspace calls a key: backend and source, as far as they say which rows a key stands for. Instances that share a delta log must
    /// agree on it. Neither where the server is, which may be another replica, nor which columns make up a value says that. Other instances compare it, so it
    /// must not change from release to release.
    #[must_use]
    pub fn data_fingerprint(&self) -> u64 {
        let Self { backend, .. } = self;
        let mut text = format!("{:?} {} {}", backend.kind, whose(&backend.url), rows_of(&backend.query));
        for source in self.source.iter() {
            // A `String` takes whatever is written to it.
            let _ = write!(text, " [{:?} {} {}", source.kind, whose(&source.url), one_line(&source.query));
            let _ = write!(text, " {:?} {:?} {:?} {:?}]", source.path, source.pattern, source.strip_prefix, source.set);
        }
        xxh3_64(text.as_bytes())
    }
}

impl KeyspaceConfig {
    /// Fingerprint of which rows these are, of which server: what two namespaces have in common that guard the same.
    #[must_use]
    pub fn place_fingerprint(&self) -> u64 {
        xxh3_64(format!("{:016x} {}", self.data_fingerprint(), data_of(&self.backend.url)).as_bytes())
    }
}

/// Which database of its server a URL leads to, or which path.
fn whose(url: &SecretUrl) -> String {
    let exposed = url.expose();
    let (place, parameters) = exposed.split_once('?').unwrap_or((exposed, ""));
    let (scheme, rest) = place.split_once("://").or_else(|| place.split_once(':')).unwrap_or(("", place));
    // The last @ ends the password, which may hold a slash.
    let path = rest.rsplit('@').next().and_then(|rest| rest.split_once('/')).map_or("", |(_, path)| path);
    match scheme {
        "" | "sqlite" => place.to_owned(),
        "http" | "https" => format!("{path}?{parameters}"),
        // All others say how to get there; `options` may set the search path.
        _ => {
            let told = parameters
                .split('&')
                .filter(|parameter| parameter.starts_with("options") || parameter.starts_with("dbname="));
            std::iter::once(path).chain(told).collect::<Vec<_>>().join("&")
        }
    }
}

/// A query without the columns that it selects.
fn rows_of(query: &str) -> String {
    let line = one_line(query);
    match line.to_ascii_lowercase().find(" from ") {
        Some(at) => line[at..].to_owned(),
        None => line,
    }
}

fn one_line(query: &str) -> String {
    query.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What says which data it leads to: the URL without its password; all of it, where what is shown would not tell one host from another.
fn data_of(url: &SecretUrl) -> String {
    let identity = url.identity();
    if identity.contains("<redacted>") { format!("{:016x}", xxh3_64(url.expose().as_bytes())) } else { identity }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Headers, IncrementalConfig, SourceConfig};
    use crate::key::KeyForm;

    #[test]
    fn what_a_key_stands_for_is_told_apart_and_all_else_is_not() {
        let of = |url: &str, query: &str, source: &str| {
            let source = SourceConfig { query: source.into(), ..SourceConfig::default() };
            let mut keyspace = KeyspaceConfig { source: source.into(), ..KeyspaceConfig::default() };
            (keyspace.backend.url, keyspace.backend.query) = (SecretUrl::new(url.into()), query.into());
            keyspace.data_fingerprint()
        };
        let (url, query, source) =
            ("postgres://u:p@h:1/db", "SELECT name FROM users WHERE id = $1", "SELECT id FROM users");
        let plain = of(url, query, source);
        for same in [
            of("postgres://u:other@h:1/db", query, source),
            of("postgres://replica/db?sslmode=require", query, source),
            of("postgres://u:a/b@h:1/db", query, source),
            of(url, "SELECT name, email\n  FROM users WHERE id = $1", source),
            of(url, query, "SELECT  id FROM users"),
        ] {
            assert_eq!(same, plain);
        }
        for other in [
            of("postgres://u:p@h:1/shop", query, source),
            of(url, "SELECT name FROM users WHERE email = $1", source),
            of(url, "SELECT name FROM accounts WHERE id = $1", source),
            of(url, query, "SELECT email FROM users"),
            of("sqlite:/data/users.db", query, source),
            of("postgres://u:p@h:1/db?options=-csearch_path%3Dtenant", query, source),
        ] {
            assert_ne!(other, plain);
        }
        assert_ne!(of("http://h/users/{key}", "", ""), of("http://h/accounts/{key}", "", ""));
        assert_ne!(of("http://h/find?user={key}", "", ""), of("http://h/find?mail={key}", "", ""));
        assert_eq!(of("http://h/users/{key}", "", ""), of("http://other:80/users/{key}", "", ""));
    }

    #[test]
    fn whatever_changes_the_meaning_of_a_filter_changes_its_basis() {
        let source = |change: fn(&mut SourceConfig)| {
            let mut source = SourceConfig { query: "SELECT id FROM users".into(), ..SourceConfig::default() };
            change(&mut source);
            KeyspaceConfig { source: source.into(), ..KeyspaceConfig::default() }
        };
        let keyspace = |change: fn(&mut KeyspaceConfig)| {
            let mut keyspace = source(|_| {});
            change(&mut keyspace);
            keyspace
        };
        let headers = |name: &str, value: &str| Headers::new(vec![(name.into(), value.into())]);
        let with_header = |name: &str, value: &str| {
            let source = SourceConfig { headers: headers(name, value), ..SourceConfig::default() };
            KeyspaceConfig { source: source.into(), ..KeyspaceConfig::default() }.basis(None, false)
        };
        let with_secret_header = |name: &str, value: &str| {
            let source = SourceConfig { secret_headers: headers(name, value), ..SourceConfig::default() };
            KeyspaceConfig { source: source.into(), ..KeyspaceConfig::default() }.basis(None, false)
        };
        assert_ne!(with_header("x-tenant", "a"), with_header("x-tenant", "b"), "another tenant's keys");
        assert_ne!(with_header("x-tenant", "a"), with_header("x-shop", "a"));
        assert_eq!(with_header("authorization", "old"), with_header("authorization", "new"));
        assert_eq!(with_secret_header("x-tenant", "old"), with_secret_header("x-tenant", "new"));
        assert_ne!(with_secret_header("x-tenant", "a"), with_secret_header("x-shop", "a"));
        let plain = source(|_| {}).basis(None, false);
        assert_ne!(source(|_| {}).basis(None, true), plain);
        for changed in [
            source(|source| source.query.push_str(" WHERE active")),
            source(|source| source.url = SecretUrl::new("postgres://u@other/db".into())),
            source(|source| source.kind = SourceKind::File),
            source(|source| source.strip_prefix = "user:".into()),
            source(|source| source.incremental = Some(IncrementalConfig::default())),
            keyspace(|keyspace| keyspace.key = Some(KeyForm::Text)),
            keyspace(|keyspace| keyspace.freshness = crate::config::Freshness::Announced),
            keyspace(|keyspace| keyspace.commit_window = Duration::from_secs(1)),
            keyspace(|keyspace| keyspace.filter.false_positive_rate = 0.01),
            keyspace(|keyspace| keyspace.backend.url = SecretUrl::new("postgres://u@h/db".into())),
            keyspace(|keyspace| keyspace.backend.query = "SELECT 1".into()),
        ] {
            assert_ne!(changed.basis(None, false), plain, "{changed:?}");
        }
        let with_password = |password: &str| {
            let url = SecretUrl::new(format!("postgres://u:{password}@h/db"));
            let mut keyspace = source(|_| {});
            keyspace.backend.url = url;
            keyspace.basis(None, false)
        };
        assert_eq!(with_password("old"), with_password("new"));
        let of_url = |url: &str| {
            let mut keyspace = source(|_| {});
            keyspace.backend.url = SecretUrl::new(url.into());
            keyspace.basis(None, false)
        };
        assert_ne!(
            of_url("postgres://u:p?w@h/db"),
            of_url("postgres://u:p?w@other/db"),
            "hosts that are not shown for a stray @"
        );
        assert_ne!(of_url("u:p@h/db"), of_url("u:p@other/db"), "nor where it is no url");
        assert_eq!(
            keyspace(|keyspace| keyspace.max_staleness = Duration::from_secs(7)).basis(None, false),
            plain,
            "its age is judged when it is read"
        );
    }
}
