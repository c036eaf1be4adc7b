//! `/status` and `/metrics`.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::context::HttpContext;
use crate::keyspace::KeyspaceStatus;
use crate::metrics::Gauges;

/// What `/status` shows.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    version: &'static str,
    uptime_seconds: u64,
    draining: bool,
    keyspaces: BTreeMap<String, KeyspaceStatus>,
}

pub(super) async fn status(State(context): State<Arc<HttpContext>>) -> Json<Status> {
    Json(Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: context.uptime().as_secs(),
        draining: context.is_draining(),
        keyspaces: context.keyspaces.iter().map(|(name, served)| (name.clone(), served.keyspace.status())).collect(),
    })
}

/// The Prometheus text format, with current gauges.
///
/// Rendering takes about a millisecond, in which a worker answers a hundred lookups, so a blocking thread does it.
pub(super) async fn metrics(State(context): State<Arc<HttpContext>>) -> ([(HeaderName, &'static str); 1], String) {
    let text = spawn_blocking(move || {
        for served in context.keyspaces.values() {
            served.metrics.set_gauges(&gauges(&served.keyspace.status()));
        }
        context.buffers.show();
        context.metrics.render()
    });
    // Only a runtime that shuts down cancels the task, and then nothing polls this.
    let text = text.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

/// Unknown values are NaN, as is usual in Prometheus: an age of 0 would look fresh, and a rate of 0 perfect.
fn gauges(status: &KeyspaceStatus) -> Gauges {
    Gauges {
        state: status.state,
        items: status.items,
        capacity: status.capacity,
        load_ratio: status.load_ratio,
        fill_ratio: status.fill_ratio,
        bytes: status.bytes,
        target_fpr: status.asked_fpr,
        estimated_fpr: status.estimated_fpr,
        observed_fpr: status.observed_fpr.unwrap_or(f64::NAN),
        distinct_absent_keys: status.distinct_absent_keys,
        distinct_inserted_keys: status.distinct_inserted_keys,
        generation: status.generation,
        age_seconds: status.age_seconds.unwrap_or(f64::NAN),
        freshness_lag_seconds: status.freshness_lag_seconds.unwrap_or(f64::NAN),
        max_staleness_seconds: status.max_staleness_seconds.unwrap_or(f64::NAN),
        delta_lag_seconds: status.delta_lag_seconds.unwrap_or_default(),
        proof_remaining: status.enforcement.proof.map_or(0, |proof| proof.needed - proof.compared),
        source_sample_absent_ratio: status.source_sample_absent_ratio.unwrap_or(f64::NAN),
        set_keys: status.set.map_or(0, |set| set.keys),
        set_bytes: status.set.map_or(0, |set| set.bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;
    use crate::config::ServerConfig;
    use crate::http::HttpSettings;
    use crate::metrics::Metrics;

    #[test]
    fn a_scrape_is_written_by_nobody_who_answers_lookups() {
        let settings = HttpSettings::new(&ServerConfig::default());
        let context = Arc::new(HttpContext::new(BTreeMap::new(), Arc::new(Metrics::new()), settings));
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // Occupies the only blocking thread.
            let (free, until) = std::sync::mpsc::channel::<()>();
            let held = spawn_blocking(move || until.recv());
            let mut scrape = pin!(metrics(State(context)));
            assert!(poll!(&mut scrape).is_pending());
            drop(free);
            assert!(held.await.unwrap().is_err());
            assert!(scrape.await.1.contains("\nprocess_threads "));
        });
    }
}
