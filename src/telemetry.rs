//! Logs: text on a terminal, one JSON object a line otherwise; on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};

/// Changes what is logged.
pub struct LogLevel(Box<dyn Fn(EnvFilter) -> anyhow::Result<()> + Send + Sync>);

impl std::fmt::Debug for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogLevel")
    }
}

impl LogLevel {
    /// Logs at this level, or by this filter, from now on.
    ///
    /// # Errors
    /// A level that is no filter.
    pub fn set(&self, level: &str) -> anyhow::Result<()> {
        (self.0)(filter(level)?)
    }
}

fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(level).map_err(|e| {
        anyhow::anyhow!(
            "log.level: must be error, warn, info, debug, trace or a filter such as \"info,bloomguard::keyspace=debug\", is {level:?}: {e}"
        )
    })
}

/// Begins to log as configured.
///
/// # Errors
/// A level that is no filter, or a second call.
pub fn init(config: &LogConfig) -> anyhow::Result<LogLevel> {
    let filter = filter(&config.level)?;
    let terminal = std::io::stderr().is_terminal();
    let text = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // It would be told of on standard error too, by a macro that panics: whoever logs would die with the reader of the log.
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
