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
        assert_ne!(of_url("postgres://u:p?w@h/db"), of_url("postgres://u:p?w@other/db"), "hosts that are not shown for a stray @");
        assert_ne!(of_url("u:p@h/db"), of_url("u:p@other/db"), "nor where it is no url");
        assert_eq!(
            keyspace(|keyspace| keyspace.max_staleness = Duration::from_secs(7)).basis(None, false),
            plain,
            "its age is judged when it is read"
        );
    }
}
