//! Validates what types can't express: ranges, formats, and settings that must fit each other. Collects all errors.

mod http;
mod incremental;
mod keyspace;
mod promise;
mod section;
mod server;
mod set;
mod source;
mod url;

use std::time::Duration;

use self::section::Section;
use super::error::{ErrorCollector, shown_text};
use super::{Config, LogConfig, RedisConfig, RedisPlace};

/// Validates a whole configuration.
pub(super) fn check(config: &Config, errors: &mut ErrorCollector) {
    server::check(&config.server, errors);
    log(&config.log, &mut Section::new("log", errors));
    if let Some(settings) = &config.redis {
        redis(settings, &mut Section::new("redis", errors));
    }
    if config.keyspaces.is_empty() {
        errors.add("keyspaces", "must hold at least one keyspace, as [keyspaces.NAME]");
    }
    for (name, settings) in &config.keyspaces {
        keyspace::check(name, settings, config.redis.as_ref(), errors);
    }
}

fn log(settings: &LogConfig, section: &mut Section<'_>) {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let level = settings.level.as_str();
    let named = LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
    // A filter takes any single word for a module name and then shows nothing else: "inof" would silence the log.
    let filter = level.contains(['=', ',']) && tracing_subscriber::EnvFilter::try_new(level).is_ok();
    let rule = "be one of \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a filter such as \
                \"info,bloomguard::keyspace=debug\"";
    section.must(named || filter, "level", rule, shown_text(level));
}

fn redis(settings: &RedisConfig, section: &mut Section<'_>) {
    url::redis(&settings.url, settings.url_file.is_some(), section);
    section.duration("timeout", settings.timeout);
    section.duration("max_lag", settings.max_lag);
    let roll_call = settings.roll_call;
    section.must(
        roll_call <= Duration::from_secs(10),
        "roll_call",
        "be at most 10s",
        humantime::format_duration(roll_call),
    );
    let log = &mut section.inner("log");
    log.duration("retention", settings.log.retention);
    log.must(settings.log.max_bytes >= 1 << 20, "max_bytes", "be at least 1MiB", settings.log.max_bytes);
    let prefix = &settings.key_prefix;
    let sane = (1..=128).contains(&prefix.len()) && prefix.bytes().all(|b| b.is_ascii_graphic());
    section.must(sane, "key_prefix", "be 1 to 128 printable ASCII characters without spaces", shown_text(prefix));
    // Braces select the part of a key that decides on its node.
    let untagged = !RedisPlace::is_cluster(&settings.url) || !prefix.contains(['{', '}']);
    section.must(untagged, "key_prefix", "have no braces where redis.url names a cluster", shown_text(prefix));
}
