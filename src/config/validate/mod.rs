//! Validates what types can't express: ranges, formats, and settings that must fit each other. Collects all errors.

mod http;
mod incremental;
mod keyspace;
mod promise;
mod redis;
mod section;
mod server;
mod set;
mod source;
mod url;

use self::section::Section;
use super::error::{ErrorCollector, shown_text};
use super::{Config, LogConfig};

/// Validates a whole configuration.
pub(super) fn check(config: &Config, errors: &mut ErrorCollector) {
    server::check(&config.server, errors);
    log(&config.log, &mut Section::new("log", errors));
    if let Some(settings) = &config.redis {
        redis::check(settings, &mut Section::new("redis", errors));
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
