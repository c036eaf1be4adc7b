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
        let _ = write!(text, " {:?} {} {:?}", backend.kind, backend.url.redacted(), backend.query);
        for source in self.source.iter() {
            let shared = redis.filter(|_| source.kind == SourceKind::Redis && source.url.is_empty());
            let url = shared.unwrap_or(&source.url).redacted();
            let _ = write!(text, " [{:?} {url} {:?} {:?}", source.kind, source.query, source.format);
            let _ = write!(text, " {:?} {:?} {:?} {:?}", source.path, source.pattern, source.strip_prefix, source.set);
            if let Some(polls) = &source.incremental {
                let _ = write!(text, " {:?} {:?} {:?}", polls.query, polls.watermark, polls.overlap);
            }
            text.push(']');
        }
        xxh3_64(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{IncrementalConfig, SourceConfig};
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
        assert_eq!(
            keyspace(|keyspace| keyspace.max_staleness = Duration::from_secs(7)).basis(None, false),
            plain,
            "its age is judged when it is read"
        );
    }
}
