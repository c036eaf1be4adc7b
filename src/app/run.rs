//! Serves the listeners, drains them in order, and stops the background tasks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::App;
use crate::http::{self, ConnectionLimits, FastResponder, HttpContext};
use crate::labels::Listener;

/// Time for the last snapshot if the drain has used up its own.
const MIN_SNAPSHOT_TIME: Duration = Duration::from_secs(1);
/// Time for scrapes and probes that are under way once everything else has stopped.
const TELEMETRY_GRACE: Duration = Duration::from_secs(1);

impl App {
    /// Serves until `shutdown`, then finishes the requests in flight. The telemetry listener answers until the end, so
    /// that probes see the drain.
    pub async fn run(mut self, shutdown: CancellationToken) {
        // Closes the channel if no reloader took it, so that a reload request fails instead of waiting.
        drop(self.reload.take());
        let [data, telemetry, admin] = self.addresses();
        let (version, keyspaces) = (env!("CARGO_PKG_VERSION"), self.context.keyspaces.len());
        tracing::info!(version, %data, %telemetry, %admin, keyspaces, "serving");
        let drained = CancellationToken::new();
        let (context, connections) = (|| Arc::clone(&self.context), self.connections);
        let limits = |max_connections| ConnectionLimits { max_connections, ..self.limits };
        let gauges = |listener| self.context.metrics.connections(listener);
        let responder = Arc::new(FastResponder::new(context()));
        let data = http::serve_with_fast_path(
            self.data,
            http::data_service(context()),
            responder,
            limits(connections.data),
            gauges(Listener::Data),
            shutdown.clone(),
        );
        let admin = http::serve(
            self.admin,
            http::admin_router(context()),
            limits(connections.admin),
            gauges(Listener::Admin),
            shutdown.clone(),
        );
        // The drain timeout has passed by then: a slow reader must not get another one.
        let last = ConnectionLimits {
            drain_timeout: TELEMETRY_GRACE.min(self.drain_timeout),
            ..limits(connections.telemetry)
        };
        let telemetry = http::serve(
            self.telemetry,
            http::telemetry_router(context()),
            last,
            gauges(Listener::Telemetry),
            drained.clone(),
        );
        let work = async {
            let ((data, admin), drain_began) =
                tokio::join!(async { tokio::join!(data, admin) }, announce_drain(&self.context, &shutdown));
            // After the last announce, while probes still see the drain.
            let keyspaces = || self.context.keyspaces.values().map(|served| Arc::clone(&served.keyspace));
            let leaving = keyspaces().map(|keyspace| async move { keyspace.leave_roster().await });
            futures_util::future::join_all(leaving).await;
            let deadline = (drain_began + self.drain_timeout).max(Instant::now() + MIN_SNAPSHOT_TIME);
            let last_snapshots = keyspaces().map(|keyspace| keyspace.last_snapshot(deadline));
            futures_util::future::join_all(last_snapshots).await;
            drained.cancel();
            data.forced + admin.forced
        };
        let (forced, _) = tokio::join!(work, telemetry);
        self.tasks.shutdown().await;
        if forced == 0 {
            tracing::info!("stopped: all requests answered");
        } else {
            tracing::warn!(forced, "stopped: drain timeout cut connections");
        }
    }
}

/// Makes `/readyz` answer 503 as soon as the drain begins.
async fn announce_drain(context: &HttpContext, shutdown: &CancellationToken) -> Instant {
    shutdown.cancelled().await;
    context.begin_drain();
    Instant::now()
}
