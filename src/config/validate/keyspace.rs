//! `[keyspaces.NAME]` and its sections.

use humantime::format_duration;

use super::section::Section;
use super::{http, promise, set, source, url};
use crate::config::error::{ErrorCollector, key_path, shown_text};
use crate::config::{
    BackendConfig, BackendKind, CacheConfig, CanaryConfig, EnforcementSetting, FilterConfig, Freshness, KeyspaceConfig,
    RebuildConfig, RedisConfig, parse_schedule,
};
use crate::sqltext::{Dialect, parameter_numbers};

/// The largest value that Redis stores.
const MAX_VALUE_BYTES: u64 = 512 << 20;

pub(super) fn check(name: &str, keyspace: &KeyspaceConfig, shared: Option<&RedisConfig>, errors: &mut ErrorCollector) {
    let section = &mut Section::new(key_path(["keyspaces", name]), errors);
    if !is_name(name) {
        let path = section.path.clone();
        section.errors.add(path, "the name of a keyspace must match [a-z][a-z0-9_-]{0,62}");
    }
    section.duration("max_staleness", keyspace.max_staleness);
    section.duration("commit_window", keyspace.commit_window);
    section.duration("deadline", keyspace.deadline);
    if keyspace.freshness == Freshness::Announced && keyspace.announces == Some(false) {
        let rule = "must be true with freshness = \"announced\", whose promise rests on announces, is false; use another \
                    freshness if no writer announces";
        section.add("announces", rule);
    }
    let percent = keyspace.enforce_percent;
    section.must(percent <= EnforcementSetting::ALL, "enforce_percent", "be from 0 to 100", percent);
    if let Some(redis) = shared {
        log(keyspace, redis, section);
    }
    filter(&keyspace.filter, &mut section.inner("filter"));
    cache(&keyspace.cache, &mut section.inner("cache"));
    let dialect = if keyspace.backend.kind == BackendKind::Set {
        set::check(keyspace, section);
        None
    } else {
        backend(&keyspace.backend, &mut section.inner("backend"))
    };
    source::check(keyspace, dialect, shared, section);
    rebuild(&keyspace.rebuild, &mut section.inner("rebuild"));
    canary(&keyspace.canary, &mut section.inner("canary"));
    promise::check(keyspace, section);
}

/// An instance that starts or has lost the log reads this far back.
fn log(keyspace: &KeyspaceConfig, redis: &RedisConfig, section: &mut Section<'_>) {
    let (needed, kept) = (keyspace.commit_window.saturating_add(keyspace.deadline), redis.log.retention);
    let rule = format!("and deadline together must be shorter than redis.log.retention = {}", format_duration(kept));
    if needed >= kept {
        section.add("commit_window", format!("{rule}, are {}", format_duration(needed)));
    }
}

fn is_name(name: &str) -> bool {
    let tail = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    name.len() <= 63 && name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(tail)
}

fn filter(filter: &FilterConfig, section: &mut Section<'_>) {
    let rate = filter.false_positive_rate;
    section.must(rate > 0.0 && rate < 1.0, "false_positive_rate", "be greater than 0 and less than 1", rate);
    if let Some(keys) = filter.expected_keys {
        section.must(keys >= 1, "expected_keys", "be at least 1", keys);
    }
    let headroom = filter.headroom;
    section.must(headroom >= 1.0 && headroom.is_finite(), "headroom", "be a finite number, at least 1", headroom);
}

fn cache(cache: &CacheConfig, section: &mut Section<'_>) {
    section.duration("ttl", cache.ttl);
    section.duration("absent_ttl", cache.absent_ttl);
    section.duration("hot_ttl", cache.hot_ttl);
    section.duration_or_zero("stale_if_error", cache.stale_if_error);
    section.share("jitter", cache.jitter);
    section.share("refresh_ahead", cache.refresh_ahead);
    section.must(
        cache.max_value_bytes <= MAX_VALUE_BYTES,
        "max_value_bytes",
        "be at most 512MiB",
        cache.max_value_bytes,
    );
}

fn backend(backend: &BackendConfig, section: &mut Section<'_>) -> Option<Dialect> {
    section.duration("timeout", backend.timeout);
    section.must(
        (1..=100_000).contains(&backend.max_concurrency),
        "max_concurrency",
        "be from 1 to 100000",
        backend.max_concurrency,
    );
    section.must(backend.max_queue <= 10_000_000, "max_queue", "be at most 10000000", backend.max_queue);
    let fits = backend.min_connections as usize <= backend.max_concurrency || section.was_rejected("max_concurrency");
    section.must(
        fits,
        "min_connections",
        &format!("be at most max_concurrency ({})", backend.max_concurrency),
        backend.min_connections,
    );
    section.must(backend.statement_cache <= 100_000, "statement_cache", "be at most 100000", backend.statement_cache);
    if backend.kind == BackendKind::Http {
        http::backend(backend, section);
        return None;
    }
    http::reject_http_keys(backend, section);
    let dialect = url::database(&backend.url, backend.url_file.is_some(), section);
    if section.require_query(&backend.query)
        && let Some(dialect) = dialect
    {
        let taken = parameter_numbers(&backend.query, dialect);
        let rule = format!("take the key as its only parameter, {}", dialect.first_parameter());
        section.must(taken.len() == 1 && taken.contains(&1), "query", &rule, shown_text(&backend.query));
    }
    dialect
}

fn canary(canary: &CanaryConfig, section: &mut Section<'_>) {
    section.share("sample_rate", canary.sample_rate);
    let pace = canary.max_per_second;
    section.must(
        (1..=100_000).contains(&pace),
        "max_per_second",
        "be from 1 to 100000; sample_rate = 0 checks nothing",
        pace,
    );
    section.duration_or_zero("hold", canary.hold);
    section.must(canary.proof <= 100_000, "proof", "be at most 100000; 0 enforces without proof", canary.proof);
}

fn rebuild(rebuild: &RebuildConfig, section: &mut Section<'_>) {
    if let Err(error) = parse_schedule(&rebuild.schedule) {
        let rule = "be a cron expression of 5 fields, or 6 with seconds first";
        section.add("schedule", format!("must {rule} ({error}), is {}", shown_text(&rebuild.schedule)));
    }
    section.duration_or_zero("jitter", rebuild.jitter);
    section.share("min_keys_ratio", rebuild.min_keys_ratio);
    let deleted = rebuild.max_deleted_ratio;
    section.must(deleted > 0.0 && deleted <= 1.0, "max_deleted_ratio", "be greater than 0 and at most 1", deleted);
}
