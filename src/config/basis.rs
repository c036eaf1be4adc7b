//! Fingerprints of what a keyspace's promise depends on. A filter that was built on another basis shows nothing here.

use xxhash_rust::xxh3::xxh3_64;

use super::encoding::Encoding;
use super::{BackendKind, KeyListFormat, KeyspaceConfig, KeyspaceFilterKind, SecretUrl, SourceConfig, SourceKind};

impl KeyspaceConfig {
    /// Fingerprint of everything that decides which keys a filter holds and why it can be trusted: sources, backend,
    /// key form, promise, filter. Of URLs all but the password, which may change while the data stays the same.
    ///
    /// `redis`: where it is, for sources that read it. `has_log`: whether instances send each other their announces.
    #[must_use]
    pub fn basis(&self, redis: Option<&SecretUrl>, has_log: bool) -> u64 {
        self.basis_encoding(redis, has_log).hash()
    }

    fn basis_encoding(&self, redis: Option<&SecretUrl>, has_log: bool) -> Encoding {
        let Self { filter, backend, .. } = self;
        let basis = Encoding::new("basis")
            .text("freshness", self.freshness.as_str())
            .duration("commit_window", self.commit_window)
            .optional_text("key", self.key.map(|form| form.as_str()))
            .number("has_log", u64::from(has_log))
            .text("filter.kind", filter_word(filter.kind))
            .number("filter.false_positive_rate", filter.false_positive_rate.to_bits())
            .text("backend.kind", backend_word(backend.kind))
            .text("backend.url", &data_of(&backend.url))
            .text("backend.query", &backend.query);
        let basis = if self.takes_announces() { basis } else { basis.number("announces", 0) };
        self.source.iter().fold(basis, |basis, source| basis.fields("source", &source_basis(source, redis)))
    }

    /// Fingerprint of what this keyspace calls a key: backend and source, as far as they decide which rows a key stands
    /// for. Instances that share a delta log must agree on it. It ignores where the server is, which may be another
    /// replica, and which columns make up a value. Other instances compare it, so it must not change between releases.
    #[must_use]
    pub fn data_fingerprint(&self) -> u64 {
        let Self { backend, .. } = self;
        let data = Encoding::new("data")
            .text("backend.kind", backend_word(backend.kind))
            .text("backend.database", &database_of(&backend.url))
            .text("backend.rows", &rows_of(&backend.query));
        let encoding = self.source.iter().fold(data, |data, source| {
            let rows = Encoding::group()
                .text("kind", source.kind.as_str())
                .text("database", &database_of(&source.url))
                .text("query", &one_line(&source.query));
            data.fields("source", &place_in_source(rows, source))
        });
        encoding.hash()
    }

    /// Fingerprint of which rows of which server these are: what two namespaces that guard the same rows have in
    /// common.
    #[must_use]
    pub fn place_fingerprint(&self) -> u64 {
        Encoding::new("place")
            .number("data", self.data_fingerprint())
            .text("backend.url", &data_of(&self.backend.url))
            .hash()
    }
}

fn source_basis(source: &SourceConfig, redis: Option<&SecretUrl>) -> Encoding {
    let shared = redis.filter(|_| source.kind == SourceKind::Redis && source.url.is_empty());
    let encoding = Encoding::group()
        .text("kind", source.kind.as_str())
        .text("url", &data_of(shared.unwrap_or(&source.url)))
        .text("query", &source.query)
        .optional_text("format", source.format.map(format_word));
    let mut encoding = place_in_source(encoding, source);
    // Which keys an API lists may depend on a header. The value of a secret one may change while the data stays the
    // same, so its name counts and its value does not.
    for (name, value) in source.headers.plain() {
        encoding = encoding.fields("plain_header", &Encoding::group().text(name, value));
    }
    for (field, headers) in [("headers", &source.headers), ("secret_headers", &source.secret_headers)] {
        for (name, _) in headers.iter() {
            encoding = encoding.text(field, name);
        }
    }
    let Some(polls) = &source.incremental else { return encoding };
    let polls = Encoding::group()
        .text("query", &polls.query)
        .optional_text("watermark", polls.watermark.as_deref())
        .duration("overlap", polls.overlap);
    encoding.fields("incremental", &polls)
}

/// Which of a source's data are the keys, where no query says it.
fn place_in_source(encoding: Encoding, source: &SourceConfig) -> Encoding {
    encoding
        .bytes("path", source.path.as_os_str().as_encoded_bytes())
        .optional_text("pattern", source.pattern.as_deref())
        .text("strip_prefix", &source.strip_prefix)
        .optional_text("set", source.set.as_deref())
}

const fn backend_word(kind: BackendKind) -> &'static str {
    match kind {
        BackendKind::Sql => "sql",
        BackendKind::Http => "http",
        BackendKind::Set => "set",
    }
}

const fn filter_word(kind: KeyspaceFilterKind) -> &'static str {
    match kind {
        KeyspaceFilterKind::Bloom => "bloom",
        KeyspaceFilterKind::Classic => "classic",
        KeyspaceFilterKind::Scalable => "scalable",
    }
}

const fn format_word(format: KeyListFormat) -> &'static str {
    match format {
        KeyListFormat::Lines => "lines",
        KeyListFormat::Ndjson => "ndjson",
    }
}

/// Which database of its server a URL leads to, or which path.
fn database_of(url: &SecretUrl) -> String {
    let exposed = url.expose();
    let (place, parameters) = exposed.split_once('?').unwrap_or((exposed, ""));
    let (scheme, rest) = place.split_once("://").or_else(|| place.split_once(':')).unwrap_or(("", place));
    // The last @ ends the password, which may hold a slash.
    let path = rest.rsplit('@').next().and_then(|rest| rest.split_once('/')).map_or("", |(_, path)| path);
    match scheme {
        "" | "sqlite" => place.to_owned(),
        "http" | "https" => format!("{path}?{parameters}"),
        // All other parameters say how to get there; `options` may set the search path.
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

/// Which data a URL leads to: the URL without its password. A hash of all of it, if two hosts would look the same
/// without.
fn data_of(url: &SecretUrl) -> String {
    let identity = url.identity();
    if identity.contains("<redacted>") { format!("{:016x}", xxh3_64(url.expose().as_bytes())) } else { identity }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Freshness, Headers, IncrementalConfig};
    use crate::key::KeyForm;

    #[test]
    fn only_what_a_key_stands_for_changes_the_data_fingerprint() {
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
            source(|source| source.path = "keys.txt".into()),
            source(|source| source.pattern = Some("user:*".into())),
            source(|source| source.set = Some("users".into())),
            source(|source| source.format = Some(KeyListFormat::Lines)),
            source(|source| source.format = Some(KeyListFormat::Ndjson)),
            source(|source| source.incremental = Some(IncrementalConfig::default())),
            keyspace(|keyspace| keyspace.key = Some(KeyForm::Text)),
            keyspace(|keyspace| keyspace.freshness = Freshness::Announced),
            keyspace(|keyspace| keyspace.announces = Some(true)),
            keyspace(|keyspace| keyspace.commit_window = Duration::from_secs(1)),
            keyspace(|keyspace| keyspace.filter.false_positive_rate = 0.01),
            keyspace(|keyspace| keyspace.filter.kind = KeyspaceFilterKind::Classic),
            keyspace(|keyspace| keyspace.backend.kind = BackendKind::Http),
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
            "its age is checked when it is read"
        );
    }

    #[test]
    fn fingerprints_are_as_they_always_were() {
        let mut keyspace = KeyspaceConfig::default();
        keyspace.backend.url = SecretUrl::new("postgres://u:p@h:1/db".into());
        keyspace.backend.query = "SELECT name FROM users WHERE id = $1".into();
        (keyspace.key, keyspace.announces) = (Some(KeyForm::Integer), Some(true));
        let source = SourceConfig {
            query: "SELECT id FROM users".into(),
            incremental: Some(IncrementalConfig::default()),
            headers: Headers::new(vec![("x-tenant".into(), "a".into()), ("authorization".into(), "b".into())]),
            ..SourceConfig::default()
        };
        keyspace.source = source.into();
        let found = [keyspace.basis(None, true), keyspace.data_fingerprint(), keyspace.place_fingerprint()];
        assert_eq!(
            found.map(|fingerprint| format!("{fingerprint:016x}")),
            ["671c9ed1a21e8005", "422072764fdd9b2d", "53c51e21de96e6a0"]
        );
    }
}
