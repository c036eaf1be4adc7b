//! Logs: text on a terminal, one JSON object a line otherwise; on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};

/// Begins to log as configured.
///
/// # Errors
/// A level that is no filter, or a second call.
pub fn init(config: &LogConfig) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.level).map_err(|e| {
        anyhow::anyhow!(
            "log.level: must be error, warn, info, debug, trace or a filter such as \"info,bloomguard::guard=debug\", is {:?}: {e}",
            config.level
        )
    })?;
    let terminal = std::io::stderr().is_terminal();
    let text = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // It would be told of on standard error too, by a macro that panics: whoever logs would die with the reader of the log.
    let lines = lines.log_internal_errors(false);
    if text {
        lines.finish().try_init()
    } else {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).finish().try_init()
    }?;
    Ok(())
}
