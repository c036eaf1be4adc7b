//! What types can't say: ranges, formats, and settings that must fit each other. Collects every error.

mod http;
mod incremental;
mod keyspace;
mod promise;
mod server;
mod set;
mod source;
mod url;

use std::fmt::Display;
use std::time::Duration;

use super::error::{ErrorCollector, key_path, shown_text};
use super::{Config, LogConfig, RedisConfig, RedisPlace};

/// Shorter durations would be 0 where Redis counts milliseconds.
const MIN_DURATION: Duration = Duration::from_millis(1);
/// Longer ones mean a mistyped unit, and could overflow a clock.
const MAX_DURATION: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Judges a whole configuration.
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
    // A filter takes any lone word for a module's name and then shows nothing else: "inof" would silence the log.
    let filter = level.contains(['=', ',']) && tracing_subscriber::EnvFilter::try_new(level).is_ok();
    let rule = "be one of \"error\", \"warn\", \"info\", \"debug\", \"trace\", or a filter such as \"info,bloomguard::keyspace=debug\"";
    section.must(named || filter, "level", rule, shown_text(level));
}

fn redis(settings: &RedisConfig, section: &mut Section<'_>) {
    url::redis(&settings.url, settings.url_file.is_some(), section);
    section.duration("timeout", settings.timeout);
    section.duration("max_lag", settings.max_lag);
    let log = &mut section.inner("log");
    log.duration("retention", settings.log.retention);
    log.must(settings.log.max_bytes >= 1 << 20, "max_bytes", "be at least 1MiB", settings.log.max_bytes);
    let prefix = &settings.key_prefix;
    let sane = (1..=128).contains(&prefix.len()) && prefix.bytes().all(|b| b.is_ascii_graphic());
    section.must(sane, "key_prefix", "be 1 to 128 printable ASCII characters without spaces", shown_text(prefix));
    // They say which part of a name decides on its node.
    let untagged = !RedisPlace::is_cluster(&settings.url) || !prefix.contains(['{', '}']);
    section.must(untagged, "key_prefix", "have no braces where redis.url names a cluster", shown_text(prefix));
}

/// A section of the configuration under judgement.
struct Section<'m> {
    path: String,
    errors: &'m mut ErrorCollector,
}

impl<'m> Section<'m> {
    fn new(path: impl Into<String>, errors: &'m mut ErrorCollector) -> Self {
        Self { path: path.into(), errors }
    }

    /// The section `name` within this one.
    fn inner(&mut self, name: &str) -> Section<'_> {
        Section { path: self.path_of(name), errors: self.errors }
    }

    fn path_of(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    fn was_rejected(&self, key: &str) -> bool {
        self.errors.was_rejected(&self.path_of(key))
    }

    fn add(&mut self, key: &str, rule: impl Into<String>) {
        self.errors.add(self.path_of(key), rule);
    }

    fn must(&mut self, holds: bool, key: &str, rule: &str, value: impl Display) {
        if !holds {
            self.add(key, format!("must {rule}, is {value}"));
        }
    }

    /// A time that is no time at all makes no sense here.
    fn duration(&mut self, key: &str, value: Duration) {
        self.must(value >= MIN_DURATION, key, "be at least 1ms", humantime::format_duration(value));
        self.duration_or_zero(key, value);
    }

    fn duration_or_zero(&mut self, key: &str, value: Duration) {
        self.must(value <= MAX_DURATION, key, "be at most 10 years", humantime::format_duration(value));
    }

    /// A share from 0 to 1. A value that is no number is in no range.
    fn share(&mut self, key: &str, value: f64) {
        self.must((0.0..=1.0).contains(&value), key, "be from 0 to 1", value);
    }
}

/// The path of a keyspace's section.
pub(super) fn keyspace_path(name: &str) -> String {
    key_path(["keyspaces", name])
}
