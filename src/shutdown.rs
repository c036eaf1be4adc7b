//! The signals that stop the process.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// What a shell reports of a process that SIGINT ended.
const INTERRUPTED: i32 = 128 + 2;

/// The stream of SIGHUPs, which no more end the process from here on.
///
/// # Errors
/// Where the process may not listen to signals.
pub fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// A token that SIGTERM or SIGINT cancels. A second SIGTERM changes nothing, for supervisors send it again at will; a SIGINT after the first signal is
/// somebody at a terminal who does not want to wait for the drain.
///
/// # Errors
/// Where the process may not listen to signals.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let cancelled = token.clone();
    tokio::spawn(async move {
        let name = next(&mut terminate, &mut interrupt).await;
        cancelled.cancel();
        tracing::info!(signal = name, "draining: finishing requests in flight");
        while next(&mut terminate, &mut interrupt).await != "SIGINT" {
            tracing::info!("second SIGTERM ignored: draining");
        }
        tracing::warn!("second SIGINT: exiting without drain");
        // Nothing is lost by it that a crash would not lose: what was acknowledged is on disk or in Redis.
        std::process::exit(INTERRUPTED);
    });
    Ok(token)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
