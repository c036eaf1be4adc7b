//! When the process is told to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The stream of SIGHUPs, which no more end the process from here on.
///
/// # Errors
/// Where the process may not listen to signals.
pub fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// A token that SIGTERM or SIGINT cancels.
///
/// # Errors
/// Where the process may not listen to signals.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = token.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping: requests in flight are finished");
        told.cancel();
    });
    Ok(token)
}
