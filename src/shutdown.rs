//! The signals that stop the process.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The exit status that shells report for a process that SIGINT ended.
const INTERRUPTED: i32 = 128 + 2;

/// The stream of SIGHUPs. From this call on SIGHUP does not end the process.
///
/// # Errors
/// If the process can't install signal handlers.
pub fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// A token that SIGTERM or SIGINT cancels. A second SIGTERM is ignored, because supervisors may repeat it. A second
/// SIGINT comes from a person at a terminal who does not want to wait for the drain.
///
/// # Errors
/// If the process can't install signal handlers.
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
        // Loses no more than a crash would: what was acknowledged is on disk or in Redis.
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
