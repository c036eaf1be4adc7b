//! `[keyspaces.NAME.source]`: what each kind needs, and what it does not use.

use super::section::Section;
use super::{http, incremental, url};
use crate::config::error::shown_text;
use crate::config::{
    BackendKind, KeyspaceConfig, KeyspaceFilterKind, RedisConfig, RedisPlace, SourceConfig, SourceKind,
};
use crate::sqltext::{Dialect, parameter_numbers};

/// Characters with a meaning in a pattern.
const GLOB: [char; 4] = ['*', '?', '[', '\\'];

/// Validates all sources of a keyspace. `backend`: the dialect of its database; `shared`: the cache, whose URL is a
/// source's default.
pub(super) fn check(
    keyspace: &KeyspaceConfig,
    backend: Option<Dialect>,
    shared: Option<&RedisConfig>,
    section: &mut Section<'_>,
) {
    if keyspace.source.iter().len() == 0 {
        section.add("source", "must hold at least one source");
    }
    for (index, source) in keyspace.source.iter().enumerate() {
        let key = keyspace.source.key(index);
        check_one(source, (keyspace.backend.kind, backend), shared, &mut section.inner(&key));
        if section.was_rejected(&format!("{key}.kind")) {
            continue;
        }
        let kind = source.kind.as_str();
        if source.kind != SourceKind::Sql && keyspace.key.is_none() && !section.was_rejected("key") {
            section.add(
                "key",
                format!("is required, because a source of kind {kind:?} ({key}) does not report the form of its keys"),
            );
        }
        let grows = keyspace.filter.kind == KeyspaceFilterKind::Scalable;
        if source.is_uncounted()
            && !grows
            && keyspace.filter.expected_keys.is_none()
            && !section.was_rejected("filter.expected_keys")
        {
            let rule = format!(
                "is required, because {key} can't count its keys before a scan, unless filter.kind = \"scalable\""
            );
            section.add("filter.expected_keys", rule);
        }
    }
    incremental::promise(keyspace, section);
}

fn check_one(
    source: &SourceConfig,
    backend: (BackendKind, Option<Dialect>),
    shared: Option<&RedisConfig>,
    section: &mut Section<'_>,
) {
    reject_keys_of_other_kinds(source, section);
    match source.kind {
        SourceKind::Sql => sql(source, backend, section),
        SourceKind::Http => http::source(source, section),
        SourceKind::File => {
            if source.path.as_os_str().is_empty() && !section.was_rejected("path") && !section.was_rejected("kind") {
                section.add("path", "is required");
            }
        }
        SourceKind::Redis => redis(source, shared, section),
    }
}

/// Rejects keys of other kinds, which would be ignored.
fn reject_keys_of_other_kinds(source: &SourceConfig, section: &mut Section<'_>) {
    if section.was_rejected("kind") {
        return;
    }
    let (sql, http) = (&[SourceKind::Sql][..], &[SourceKind::Http][..]);
    let (trusting, file, redis, served) = (
        &[SourceKind::Http, SourceKind::Redis][..],
        &[SourceKind::File][..],
        &[SourceKind::Redis][..],
        &[SourceKind::Sql, SourceKind::Http, SourceKind::Redis][..],
    );
    for (key, is_set, kinds) in [
        ("url", !source.url.is_empty() && source.url_file.is_none(), served),
        ("url_file", source.url_file.is_some(), served),
        ("query", !source.query.is_empty(), sql),
        ("incremental", source.incremental.is_some(), sql),
        ("format", source.format.is_some(), http),
        ("headers", !source.headers.is_empty(), http),
        ("headers_file", source.headers_file.is_some(), http),
        ("ca_file", source.ca_file.is_some(), trusting),
        ("path", !source.path.as_os_str().is_empty(), file),
        ("pattern", source.pattern.is_some(), redis),
        ("strip_prefix", !source.strip_prefix.is_empty(), redis),
        ("set", source.set.is_some(), redis),
    ] {
        if is_set && !kinds.contains(&source.kind) {
            section.add(key, format!("is not used by a source of kind {:?}", source.kind.as_str()));
        }
    }
}

fn sql(source: &SourceConfig, (backend, dialect): (BackendKind, Option<Dialect>), section: &mut Section<'_>) {
    let own = !source.url.is_empty() || source.url_file.is_some() || section.was_rejected("url");
    // The URL of an HTTP backend is not a database's.
    let own = own || backend != BackendKind::Sql;
    let dialect = if own { url::database(&source.url, source.url_file.is_some(), section) } else { dialect };
    if section.require_query(&source.query)
        && let Some(dialect) = dialect
    {
        section.must(
            parameter_numbers(&source.query, dialect).is_empty(),
            "query",
            "take no parameters",
            shown_text(&source.query),
        );
    }
    if let Some(settings) = &source.incremental {
        incremental::check(settings, dialect, &mut section.inner("incremental"));
    }
}

fn redis(source: &SourceConfig, shared: Option<&RedisConfig>, section: &mut Section<'_>) {
    let own = !source.url.is_empty() || source.url_file.is_some() || section.was_rejected("url");
    if own {
        url::redis_server(&source.url, source.url_file.is_some(), section);
        if source.ca_file.is_some() && !source.url.is_empty() && !RedisPlace::is_secure(&source.url) {
            section.add("ca_file", "is for rediss:// URLs, and the url is not one");
        }
    } else {
        match shared {
            None => section.add("url", "is required where there is no [redis]"),
            Some(shared) if RedisPlace::has_several_servers(&shared.url) => {
                section.add("url", "is required where redis.url names more than one server");
            }
            Some(_) if source.ca_file.is_some() => section.add("ca_file", "is set by redis.ca_file for redis.url"),
            Some(_) => {}
        }
    }
    match (&source.pattern, &source.set) {
        (None, None) if !section.was_rejected("pattern") && !section.was_rejected("set") => {
            section.add("pattern", "is required, or set");
        }
        (Some(_), Some(_)) => section.add("set", "can't be set together with pattern"),
        (Some(pattern), None) => pattern_given(pattern, source, shared.filter(|_| !own), section),
        (None, Some(set)) => section.must(!set.is_empty(), "set", "be the name of a set", "\"\""),
        (None, None) => {}
    }
    if source.set.is_some() && !source.strip_prefix.is_empty() {
        section.add("strip_prefix", "is not used together with set");
    }
}

fn pattern_given(pattern: &str, source: &SourceConfig, shared: Option<&RedisConfig>, section: &mut Section<'_>) {
    section.must(!pattern.is_empty(), "pattern", "not be empty", shown_text(pattern));
    let head = pattern.split(GLOB).next().unwrap_or_default();
    let prefix = &source.strip_prefix;
    let rule = format!("be a prefix of pattern, at most {head:?}");
    section.must(head.starts_with(prefix.as_str()), "strip_prefix", &rule, shown_text(prefix));
    if let Some(shared) = shared {
        let own = format!("{}:", shared.key_prefix);
        let matches_own = own.starts_with(head) || head.starts_with(&own);
        let rule = format!("not match bloomguard's own entries, which begin with redis.key_prefix ({own:?})");
        section.must(!matches_own, "pattern", &rule, shown_text(pattern));
    }
}
