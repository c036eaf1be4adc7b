//! Logs to standard error: text on a terminal, otherwise one JSON object per line.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};

/// Changes the log level at run time.
pub struct LogLevel(Box<dyn Fn(EnvFilter) -> anyhow::Result<()> + Send + Sync>);

impl std::fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogLevel")
    }
}

impl LogLevel {
    /// Sets the level or filter.
    ///
    /// # Errors
    /// The text is not a level or filter.
    pub fn set(&self, level: &str) -> anyhow::Result<()> {
        (self.0)(filter(level)?)
    }
}

fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(level).map_err(|e| {
        anyhow::anyhow!(
            "log.level: must be error, warn, info, debug, trace or a filter such as \
             \"info,bloomguard::keyspace=debug\", is {level:?}: {e}"
        )
    })
}

/// Starts logging as configured.
///
/// # Errors
/// The level is not a filter, or logging was started before.
pub fn init(config: &LogConfig) -> anyhow::Result<LogLevel> {
    let filter = filter(&config.level)?;
    let terminal = std::io::stderr().is_terminal();
    let text = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // Internal errors would be written to standard error by a macro that panics, so a task that logs would die with the
    // reader of the log.
    let lines = lines.log_internal_errors(false);
    Ok(if text {
        let lines = lines.with_filter_reloading();
        let level = lines.reload_handle();
        lines.finish().try_init()?;
        LogLevel(Box::new(move |filter| Ok(level.reload(filter)?)))
    } else {
        let lines =
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).with_filter_reloading();
        let level = lines.reload_handle();
        lines.finish().try_init()?;
        LogLevel(Box::new(move |filter| Ok(level.reload(filter)?)))
    })
}
